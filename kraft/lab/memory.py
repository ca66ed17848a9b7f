"""The memory of this process as the operating system counts it: resident bytes now, and their
maximum.

Both count mapped pages of files too, so a log that was just read is included.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_size() -> int:
    """Return the resident bytes; without /proc, the maximum so far."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_resident_size()
    return pages * resource.getpagesize()


def peak_resident_size() -> int:
    """Return the maximum of resident bytes in this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage counts bytes on macOS and KiB elsewhere.
    return peak if sys.platform == "darwin" else peak * 1024
