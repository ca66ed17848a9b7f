"""Write the column checkpoint of one snapshot: the child process of a running node.

Run by ``kraft.server.snapshot_upkeep`` as ``python -m kraft.metadata.column_writer PATH``, in a
session of its own. It takes processor time that nothing else wants.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from kraft._core.snapshot.snapshot_file import parse_snapshot_name
from kraft.errors import KraftError
from kraft.metadata.directory import SnapshotFile
from kraft.metadata.snapshots import load_snapshot, save_snapshot_columns


def write_columns(path: Path) -> None:
    """Load the snapshot at ``path`` and write its columns beside it.

    Raises :class:`CorruptRecordError` for a damaged snapshot, :class:`StorageError`.
    """
    id = parse_snapshot_name(path.name)
    assert id is not None, path
    snapshot = SnapshotFile(path, *id, path.stat().st_size)
    save_snapshot_columns(path, load_snapshot(snapshot, use_column_cache=False))


def give_way() -> None:
    """Take the lowest priority, among the processes of other sessions too."""
    os.nice(19)
    # Where Linux shares the processors between sessions, it compares the priorities of processes
    # only within one, and between sessions those written here (man 7 sched, "autogroup").
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


if __name__ == "__main__":
    give_way()
    try:
        write_columns(Path(sys.argv[1]))
    except (KraftError, OSError) as error:
        sys.exit(str(error))
