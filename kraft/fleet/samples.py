"""``ProcessUse``: CPU, memory and disk bytes of processes, from ``/proc`` (Linux; else zeros).

``queue_time_p99_ms`` reads the metrics of kraft's controllers. ``listening_processes`` finds the
controllers of this machine by their ports, so that a quorum that the fleet did not start is
measured too.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_LISTEN = "0A"
_METRICS_TIMEOUT_S = 1.0
_QUEUE_TIME = re.compile(
    r'^kafka_controller_controllereventmanager_eventqueuetimems\{quantile="0.99"\} (\S+)',
    re.MULTILINE,
)


class ProcessUse(NamedTuple):
    """CPU seconds so far, resident bytes without mapped files, and bytes written to disks."""

    cpu_s: float = 0.0
    rss: int = 0
    disk_bytes: int = 0

    def __add__(self, other: object) -> ProcessUse:
        assert isinstance(other, ProcessUse)
        return ProcessUse(
            self.cpu_s + other.cpu_s, self.rss + other.rss, self.disk_bytes + other.disk_bytes
        )


def use_of(pids: Iterable[int]) -> ProcessUse:
    """Return the sum over processes; one that has ended counts as nothing."""
    total = ProcessUse()
    for pid in pids:
        with suppress(OSError):
            total += _use_of(pid)
    return total


def _use_of(pid: int) -> ProcessUse:
    home = _PROC / str(pid)
    # The name in brackets may contain spaces.
    fields = (home / "stat").read_text().rpartition(") ")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found = re.search(r"RssAnon:\s+(\d+) kB", (home / "status").read_text())
    rss = int(found[1]) * 1024 if found else 0
    written = 0
    with suppress(OSError):
        io = re.search(r"^write_bytes: (\d+)", (home / "io").read_text(), re.MULTILINE)
        written = int(io[1]) if io else 0
    return ProcessUse(cpu_s, rss, written)


def queue_time_p99_ms(ports: Iterable[int]) -> float | None:
    """Return the longest p99 of the event queues of controllers, by their metrics on loopback.

    None where no controller has one: only the active controller's queue has operations.
    """
    longest: float | None = None
    for port in ports:
        connection = HTTPConnection("127.0.0.1", port, timeout=_METRICS_TIMEOUT_S)
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("GET", "/metrics")
            found = _QUEUE_TIME.search(connection.getresponse().read().decode())
            value = float(found[1]) if found else math.nan
            if not math.isnan(value):
                longest = value if longest is None else max(longest, value)
    return longest


def listening_processes(ports: Iterable[int]) -> list[int]:
    """Return the processes of this machine that listen at these TCP ports, as far as visible."""
    wanted = {f"{port:04X}" for port in ports}
    sockets: set[str] = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and fields[1].rpartition(":")[2] in wanted:
                    sockets.add(f"socket:[{fields[9]}]")
    pids = []
    for home in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(each) in sockets for each in (home / "fd").iterdir()):
                pids.append(int(home.name))
    return sorted(pids)
