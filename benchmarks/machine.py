"""The machine under the benchmarks: what figures depend on beside its processor; peak memory."""

from __future__ import annotations

import os
import platform
import re
import sysconfig
from importlib.metadata import version
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")


def described() -> dict[str, Any]:
    """Memory, kernel, C library, compiler and its flags, numpy; how kraft is built."""
    flags = os.environ.get("CFLAGS", "")
    return {
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "libc": "-".join(platform.libc_ver()),
        "compiler": sysconfig.get_config_var("CC") or "",
        "cflags": flags,
        "numpy": version("numpy"),
        "is_portable_build": os.environ.get("KRAFT_PORTABLE", "") not in ("", "0"),
    }


def available_memory() -> int:
    """Bytes that can be had without swapping; where the system does not say, all there is."""
    if not _MEMORY.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY.read_text())
    return int(found[1]) * 1024 if found else 0


def begin_peak_memory() -> None:
    """Forgets the process's highest resident memory so far, where the system lets us."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """The highest resident memory since then, in bytes; 0 where the system does not tell."""
    if not _STATUS.exists():
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    return int(found[1]) * 1024 if found else 0
