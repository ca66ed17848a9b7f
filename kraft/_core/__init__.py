"""The compiled core: bytes, codecs, logs, tables, snapshots and decisions over many rows.

A portable build for x86-64 contains some modules twice: ``v3`` holds those for CPUs with AVX2,
which `use_newer_cpu` prefers. ``KRAFT_BASELINE=1`` disables this. Other builds have no ``v3``.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from typing import Any

_V3 = os.path.join(os.path.dirname(__file__), "v3")
#: CPU flags of the level x86-64-v3, as /proc/cpuinfo names them.
_V3_FLAGS = frozenset(("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"))


class _NewerCpuFinder:
    """Finds the modules of ``v3`` in place of their portable twins."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("kraft._core."):
            return None
        file = os.path.join(_V3, *name.split(".")[2:]) + EXTENSION_SUFFIXES[0]
        return spec_from_file_location(name, file) if os.path.exists(file) else None


def use_newer_cpu() -> bool:
    """Prefer the modules for newer CPUs if this build has them and this CPU can run them."""
    if not os.path.isdir(_V3) or os.environ.get("KRAFT_BASELINE", "") not in ("", "0"):
        return False
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return False
    if not _V3_FLAGS.issubset(flags.split()):
        return False
    sys.meta_path.insert(0, _NewerCpuFinder)
    return True


use_newer_cpu()
