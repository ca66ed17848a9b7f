"""The machine of a run: properties on which figures depend; memory and CPU time of processes."""

from __future__ import annotations

import os
import platform
import re
import sysconfig
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")


def described() -> dict[str, Any]:
    """Return memory, kernel, C library, compiler and its flags, numpy, and kraft's build."""
    flags = os.environ.get("CFLAGS", "")
    return {
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "libc": "-".join(platform.libc_ver()),
        "compiler": sysconfig.get_config_var("CC") or "",
        "cflags": flags,
        "numpy": version("numpy"),
        "is_portable_build": os.environ.get("KRAFT_MARCH", "native") != "native",
    }


def available_memory() -> int:
    """Return the bytes available without swapping; all memory if the system does not say."""
    if not _MEMORY.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY.read_text())
    return int(found[1]) * 1024 if found else 0


def begin_peak_memory() -> None:
    """Reset the process's highest resident memory, if the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """Return the highest resident memory since then in bytes; 0 if it is not reported."""
    if not _STATUS.exists():
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    return int(found[1]) * 1024 if found else 0


def own_bytes_of(pid: int) -> int:
    """Return the resident memory of a process, without mapped files."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def steal_seconds() -> float:
    """Return the seconds that the host gave to others while a processor of this machine had work.

    Of all processors since the boot; 0 where the system does not say.
    """
    fields = Path("/proc/stat").read_text().splitlines()[0].split() if _STATUS.exists() else []
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else 0.0


def keep_on_cores(pid: int, cores: Collection[int]) -> None:
    """Let the threads of a process, and those that they start, run on these cores alone."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants; 0 if it has ended.

    Read from /proc, in steps of 10 ms. Ended children count if their parent has waited for them.
    """
    try:
        # The name in brackets may contain spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        tasks = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds_of(int(child)) for task in tasks for child in task)
