"""Memory of an active controller's whole state: python -m benchmarks.controller_memory FILE.

A separate process reads a snapshot as a node does, becomes the leader, and makes one decision, so
that all derived state exists (the index of brokers' rows, the context of elections, sessions). It
prints one line of JSON: ``bytes`` is the growth of its anonymous resident memory since the imports,
after the allocator returned free memory; ``columns`` is the table's own figure.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path

from benchmarks.controller_driver import ActiveController
from kraft._core.snapshot.snapshot_file import read_snapshot
from kraft.image.replay import MetadataState


def resident() -> int:
    """Return anonymous resident memory in bytes, after garbage collection and malloc_trim."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


def loaded(path: Path) -> MetadataState:
    """Return a cluster loaded as by `kraft.server.controller`; the file name has the offset."""
    cluster = MetadataState()
    with cluster.loading_snapshot(int(path.name.split("-")[0])) as callbacks:
        read_snapshot(path, cluster.table, **callbacks)
    cluster.start_journal()
    return cluster


def main() -> None:
    before = resident()
    active = ActiveController(loaded(Path(sys.argv[1])))
    active.silence_below(1)
    # Fencing waits until the partitions are indexed, a slice every 10 ms.
    active.run(5_000)
    assert active.bytes_written, "a broker was fenced"
    active.revert()
    after = resident()
    table = active.cluster.table
    sizes = table.memory_sizes
    line = {"partitions": table.partition_count, "bytes": after - before, "table": sizes}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
