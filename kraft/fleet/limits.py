"""What a run of the fleet needs of the machine, checked before anything starts.

`check_limits` rejects a size that cannot be, and says how much it would need: open files, memory,
disk space, ports. The figures are measured, and rounded up.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

from kraft.errors import InvalidConfigError

#: Connections of a broker to the controllers: log, heartbeats, ISRs, directories.
_CONNECTIONS = 4
#: Open files of a process beside connections.
_OTHER_FILES = 256
#: Resident bytes of a process of the fleet, of a broker in it, and of a partition in its table.
_PROCESS_BYTES = 60 << 20
_BROKER_BYTES = 60 << 10
_PARTITION_BYTES = 200
#: Resident bytes of a controller of kraft, and of a partition in it.
_CONTROLLER_BYTES = 80 << 20
_CONTROLLER_PARTITION_BYTES = 250
#: Bytes of a partition in the log and the snapshots of one controller.
_DISK_PARTITION_BYTES = 700
_DISK_BYTES = 256 << 20
_SUFFIXES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
#: The part of the ephemeral ports that a fleet may take.
_PORT_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class FleetNeeds:
    """The size of a run. ``own_controllers``: those that the run starts; ``heap``: Java's.

    ``runs`` of this size are on the machine at a time.
    """

    brokers: int
    partitions: int
    processes: int
    own_controllers: int = 0
    heap: str = ""
    runs: int = 1


def check_limits(needs: FleetNeeds, directory: Path) -> None:
    """Raise InvalidConfigError where the machine cannot carry the run, with what it would need."""
    problems = [
        each
        for each in (
            _files(needs),
            _ports(needs),
            _memory(needs),
            _disk(needs, directory),
        )
        if each
    ]
    if problems:
        times = f" in each of {needs.runs} runs at a time" if needs.runs > 1 else ""
        raise InvalidConfigError(
            f"{needs.brokers} brokers and {needs.partitions} partitions{times} do not fit on this "
            "machine: " + "; ".join(problems)
        )


def _files(needs: FleetNeeds) -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    worker = -(-needs.brokers // needs.processes) * _CONNECTIONS + _OTHER_FILES
    controller = needs.brokers * _CONNECTIONS + _OTHER_FILES if needs.own_controllers else 0
    needed = max(worker, controller)
    if limit == resource.RLIM_INFINITY or needed <= limit:
        return ""
    return (
        f"a process may open {limit} files and needs {needed}: raise the hard limit "
        "(ulimit -Hn), or start more processes (--processes)"
    )


def _ports(needs: FleetNeeds) -> str:
    """All connections go to one address and port of the active controller at a time.

    Each takes an ephemeral port of this machine, wherever the controllers are.
    """
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return ""
    low, high = map(int, text.split())
    free = int((high - low + 1) * _PORT_SHARE)
    needed = needs.brokers * _CONNECTIONS
    if needed <= free:
        return ""
    return (
        f"they need {needed} ephemeral ports, and {free} may be taken: widen "
        "net.ipv4.ip_local_port_range"
    )


def _memory(needs: FleetNeeds) -> str:
    found = None
    with_memory = Path("/proc/meminfo")
    if with_memory.exists():
        found = re.search(r"MemAvailable:\s+(\d+) kB", with_memory.read_text())
    if found is None:
        return ""
    available = int(found[1]) * 1024
    needed = needs.processes * (_PROCESS_BYTES + needs.partitions * _PARTITION_BYTES)
    needed += needs.brokers * _BROKER_BYTES
    controller = _CONTROLLER_BYTES + needs.partitions * _CONTROLLER_PARTITION_BYTES
    if needs.heap:
        controller = int(heap_bytes(needs.heap) * 1.3)
    needed += needs.own_controllers * controller
    needed *= needs.runs
    if needed <= available:
        return ""
    return f"they need {_gib(needed)} of memory, and {_gib(available)} is available"


def _disk(needs: FleetNeeds, directory: Path) -> str:
    if not needs.own_controllers:
        return ""
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    controller = _DISK_BYTES + needs.partitions * _DISK_PARTITION_BYTES
    needed = needs.runs * needs.own_controllers * controller
    if needed <= free:
        return ""
    return f"they write up to {_gib(needed)}, and {directory} has {_gib(free)} free (--out)"


def heap_bytes(text: str) -> int:
    """Return the bytes of a heap such as ``2g``. Raises InvalidConfigError."""
    found = re.fullmatch(r"(\d+)([kmg]?)", text.lower())
    if found is None or not int(found[1]):
        raise InvalidConfigError(f"the heap is {text!r}: give a size such as 2g or 512m")
    return int(found[1]) * _SUFFIXES.get(found[2], 1)


def default_processes(brokers: int) -> int:
    """Return how many processes a fleet has by default: one for 500 brokers, at most one a core."""
    return max(1, min(-(-brokers // 500), os.cpu_count() or 1))


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
