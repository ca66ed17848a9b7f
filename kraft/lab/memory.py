"""How much memory this process holds, as the operating system counts it.

Owns the two figures of a scenario's table: resident bytes now, and the most that they have been.
Both count mapped pages of files too, so that a log that has just been read shows.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_size() -> int:
    """Bytes resident now; where the system does not tell (no /proc), the most there have been."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_resident_size()
    return pages * resource.getpagesize()


def peak_resident_size() -> int:
    """The most bytes that were ever resident in this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage counts bytes on macOS and KiB elsewhere.
    return peak if sys.platform == "darwin" else peak * 1024
