"""Kafka's metadata snapshots (``%020d-%010d.checkpoint``): write and read.

Sources: ``raft/.../snapshot/RecordsSnapshotWriter.java``, ``RecordsSnapshotReader.java``,
KIP-630, KIP-853.
"""

from collections.abc import Callable, Iterable
from os import PathLike
from types import TracebackType
from typing import NamedTuple, Self

from typing_extensions import Buffer

from kraft._core.log.disk import Disk
from kraft._core.table.table import PartitionTable

MAX_BATCH_RECORDS: int
CHUNK_SIZE: int
SUFFIX: str
PART_SUFFIX: str

def snapshot_name(end_offset: int, epoch: int) -> str:
    """Return the file name of the snapshot of the log before ``end_offset``.

    ``epoch`` is that of its last record.
    """

def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """Return (end offset, epoch) of a snapshot's file name, or None for any other name."""

class SnapshotWriter:
    """Writes one snapshot to ``.checkpoint.part``; `finish` renames it.

    Data records go into batches of ``max_batch_records`` across calls, all at ``timestamp_ms``.
    Every ``chunk_size`` bytes are written to the file, so that memory does not grow with the
    snapshot. ``control_records`` are (type, value) pairs after the SnapshotHeader in its batch:
    KRaftVersion and KRaftVoters from kraft.version 1 on. As a context manager it removes an
    unfinished file. Raises StorageError; an old ``.part`` is overwritten.
    """

    @property
    def path(self) -> str: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def next_offset(self) -> int:
        """The offset inside of the snapshot at which the current chunk began."""

    def __init__(
        self,
        directory: str | PathLike[str],
        end_offset: int,
        epoch: int,
        *,
        last_contained_log_timestamp_ms: int,
        timestamp_ms: int,
        control_records: Iterable[tuple[int, Buffer]] = (),
        disk: Disk | None = None,
        max_batch_records: int = ...,
        chunk_size: int = ...,
    ) -> None: ...
    def append_batches(self, buffer: Buffer) -> None:
        """Append the record values of ``buffer``'s batches (uncompressed data batches) in order.

        Ignores the batches' offsets, timestamps and CRCs. Raises CorruptRecordError for malformed
        batches, InvalidRequestError for compressed and control batches.
        """

    def append_table(self, table: PartitionTable, *, version: int) -> None:
        """Append each live topic's Topic record and then its Partition records of ``version``."""

    def finish(self) -> str:
        """Write the footer, sync, rename and sync the directory; return the snapshot's path."""

    def abort(self) -> None:
        """Close and remove the ``.part``; do nothing once the snapshot is finished."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

def write_snapshot(
    directory: str | PathLike[str],
    end_offset: int,
    epoch: int,
    table: PartitionTable,
    *,
    partition_version: int,
    before_topics: Iterable[Buffer] = (),
    after_topics: Iterable[Buffer] = (),
    control_records: Iterable[tuple[int, Buffer]] = (),
    last_contained_log_timestamp_ms: int,
    timestamp_ms: int,
    disk: Disk | None = None,
) -> str:
    """Write a whole snapshot: batches before the topics, the table, batches after; return its path.

    Raises the errors of `SnapshotWriter`, and then leaves no file.
    """

class SnapshotInfo(NamedTuple):
    """The result of opening a snapshot. ``end_offset`` is -1 if the name does not have it.

    ``record_count`` counts data records, ``size`` is in bytes.
    """

    end_offset: int
    epoch: int
    last_contained_log_timestamp_ms: int
    record_count: int
    control_record_count: int
    batch_count: int
    size: int

class SnapshotReader:
    """An opened snapshot: a path (mapped), or the bytes of one.

    Opening checks every batch header, that offsets run from 0 without a gap, that all batches (and
    the name) have the same epoch, and that the file begins with a SnapshotHeader and ends with a
    SnapshotFooter; `read` checks the records. Raises CorruptRecordError and StorageError.
    """

    @property
    def path(self) -> str | None: ...
    @property
    def info(self) -> SnapshotInfo: ...
    def __init__(
        self, source: str | PathLike[str] | Buffer, *, disk: Disk | None = None
    ) -> None: ...
    def read(
        self,
        table: PartitionTable,
        *,
        on_record: Callable[[int, bytes], object] | None = None,
        on_control: Callable[[int, int, int, bytes], object] | None = None,
        on_topic_removed: Callable[[int, str], object] | None = None,
        verify_crc: bool = True,
    ) -> SnapshotInfo:
        """Apply the records to ``table``, others to the callbacks like `PartitionTable.apply`.

        The rows are reserved once, by the batch headers' counts, limited by the bytes. Every CRC
        is checked, unless the caller has checked the same bytes. After an error the table has a
        part of the records: discard it.
        """

def read_snapshot(
    source: str | PathLike[str] | Buffer,
    table: PartitionTable,
    *,
    on_record: Callable[[int, bytes], object] | None = None,
    on_control: Callable[[int, int, int, bytes], object] | None = None,
    on_topic_removed: Callable[[int, str], object] | None = None,
    disk: Disk | None = None,
) -> SnapshotInfo:
    """Open a snapshot and read it into ``table``; see `SnapshotReader`."""
