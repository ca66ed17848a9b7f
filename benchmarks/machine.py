"""The machine under the benchmarks: what figures depend on beside its processor; memory and CPU
time of processes."""

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


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process, of its children and theirs; 0 where it has ended.

    Read from /proc, in steps of 10 ms. Ended children count where their parent has waited for them.
    """
    try:
        # The name in brackets may hold blanks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        tasks = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds_of(int(child)) for task in tasks for child in task)
