"""Run one writer of files alone, in a process that is recorded and whose system calls may fail.

    python -m tests.durability.calls WRITER DIRECTORY

Writes `CONTENT` to ``DIRECTORY/content``, or its own files, with the named writer. After a disk
failure it continues, like a caller that ignores the error: no later write may reach the file. The
exit code is 3 where the disk failed and the writer reported it.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from kraft._core.bytes.batch import assign_offsets
from kraft._core.log.disk import OsDisk, write_atomically
from kraft._core.log.group_writer import GroupWriter
from kraft._core.log.log import Log
from kraft._core.snapshot.column_checkpoint import save_columns
from kraft._core.snapshot.snapshot_file import SnapshotWriter
from kraft.errors import StorageError
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records.batches import encode_records
from kraft.records.classes import NoOp
from kraft.server.disk.snapshot_output import SnapshotOutput
from tests.durability.store_workload import table_of

CONTENT = Random(1).randbytes(200_000)
PIECES = [CONTENT[start : start + 700] for start in range(0, len(CONTENT), 700)]

_refusals: list[str] = []


@contextmanager
def refused() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        _refusals.append(str(error))


def buffers(directory: Path) -> None:
    """`OsFile.append`, with more buffers than one system call takes."""
    file = OsDisk().open(str(directory / "content"), create=True)
    for start in range(0, len(PIECES), 100):
        pieces = [memoryview(piece) for piece in PIECES[start : start + 100]]
        with refused():
            expected = 700 * start
            assert file.append(pieces) == expected, (file.size(), expected)
        if _refusals:
            return
    assert file.size() == len(CONTENT)
    assert file.read_at(0, len(CONTENT) + 1) == CONTENT
    with refused():
        file.sync()


def positions(directory: Path) -> None:
    """`OsFile.write_at`, from the end to the beginning."""
    file = OsDisk().open(str(directory / "content"), create=True)
    for number, piece in reversed(list(enumerate(PIECES))):
        with refused():
            file.write_at(700 * number, piece)
        if _refusals:
            return
        assert file.size() == len(CONTENT)


def atomic(directory: Path) -> None:
    """`write_atomically`."""
    with refused():
        write_atomically(OsDisk(), str(directory / "content"), CONTENT)


def group(directory: Path) -> None:
    """`GroupWriter`, in its thread and on the loop, with synced offsets."""
    signal_fd = os.eventfd(0, os.EFD_NONBLOCK)
    disk = OsDisk()
    notes = disk.open(str(directory / "notes"), create=True)
    writer = GroupWriter(signal_fd, notes)
    writer.set_position(disk.open(str(directory / "content"), create=True), 0)
    thread = threading.Thread(target=writer.run)
    thread.start()
    for number, piece in enumerate(PIECES):
        writer.put(piece, 512 * (number % 2), b"%064d\n" % number)
        with refused():
            if number % 3 or _refusals:
                writer.hand_over()
                # After a failure no thread signals any more.
                select.select([signal_fd], [], [], 0.1 if _refusals else 30)
            else:
                writer.write_now()
            assert writer.take_done() == 1
            with suppress(BlockingIOError):
                os.eventfd_read(signal_fd)
        if len(_refusals) > 1:
            break
    writer.close()
    thread.join()


def log(directory: Path) -> None:
    """`Log`, several segments of it."""
    opened = Log.open(str(directory), segment_bytes=20_000)
    for _ in range(100):
        data = encode_records([NoOp()] * 300)
        assign_offsets(data, opened.log_end_offset, 1)
        with refused():
            opened.append(data, sync=True)
        if len(_refusals) > 1:
            return
    opened.close()


def snapshot(directory: Path) -> None:
    """`SnapshotWriter`, in small parts, and the column checkpoint."""
    with refused():
        with SnapshotWriter(
            directory, 5, 1, last_contained_log_timestamp_ms=0, timestamp_ms=0, chunk_size=2000
        ) as writer:
            writer.append_batches(encode_records([NoOp()] * 5000))
            path = writer.finish()
        save_columns(path, table_of(Random(1)))


def output(directory: Path) -> None:
    """`SnapshotOutput`, with further writes after a failure."""
    output = SnapshotOutput(OsDisk(), str(directory), OffsetAndEpoch(5, 1))
    ended = threading.Event()
    for piece in PIECES:
        output.write([memoryview(piece)])
    results: list[BaseException | None] = []

    def done(future: object) -> None:
        results.append(future.exception())  # type: ignore[attr-defined]
        ended.set()

    output.finish(done)
    assert ended.wait(30)
    if results[0] is not None:
        _refusals.append(str(results[0]))


WRITERS: dict[str, Callable[[Path], None]] = {
    writer.__name__: writer for writer in (buffers, positions, atomic, group, log, snapshot, output)
}


def main() -> int:
    WRITERS[sys.argv[1]](Path(sys.argv[2]))
    return 3 if _refusals else 0


if __name__ == "__main__":
    sys.exit(main())
