"""What the whole state of an active controller takes: python -m benchmarks.controller_memory FILE.

A process of its own reads a snapshot as a node does, leads, and decides once, so that everything
that is derived and kept is there (the index of brokers' rows, the context of elections, sessions).
One line of JSON: ``bytes`` is by how much its anonymous resident memory has grown since the imports
were done, with what the allocator keeps for later given back; ``columns`` what the table says of
itself.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path

from benchmarks.controller_driver import Active
from kraft._core.snapshot_file import read_snapshot
from kraft.image.replay import Cluster


def resident() -> int:
    """Anonymous resident memory, in bytes; the collector and the allocator keep nothing back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


def loaded(path: Path) -> Cluster:
    """A cluster as `kraft.server.controller` loads it; the offset is in the file's name."""
    cluster = Cluster()
    with cluster.loading_snapshot(int(path.name.split("-")[0])) as callbacks:
        read_snapshot(path, cluster.table, **callbacks)
    cluster.start_journal()
    return cluster


def main() -> None:
    before = resident()
    active = Active(loaded(Path(sys.argv[1])))
    active.silence_below(1)
    # Fencing waits until the partitions are indexed, a slice every 10 ms.
    active.run(5_000)
    assert active.bytes_written, "a broker was fenced"
    active.take_back()
    after = resident()
    table = active.cluster.table
    sizes = table.memory_sizes
    line = {"partitions": table.partition_count, "bytes": after - before, "table": sizes}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
