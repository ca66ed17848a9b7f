"""Kafka's metadata snapshots (``%020d-%010d.checkpoint``): written in pieces, checked before they
are read.

Sources: ``raft/.../snapshot/RecordsSnapshotWriter.java``, ``RecordsSnapshotReader.java``,
KIP-630, KIP-853.
"""

from collections.abc import Callable, Iterable
from os import PathLike
from types import TracebackType
from typing import NamedTuple, Self

from typing_extensions import Buffer

from kraft._core.disk import Disk
from kraft._core.table import PartitionTable

MAX_BATCH_RECORDS: int
PIECE_SIZE: int
SUFFIX: str
PART_SUFFIX: str

def snapshot_name(end_offset: int, epoch: int) -> str:
    """The file name of the snapshot that ends before ``end_offset``, whose last record is of
    ``epoch``.
    """

def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(end offset, epoch) of a snapshot's file name; None for any other name."""

class SnapshotWriter:
    """Writes one snapshot to ``.checkpoint.part``; `finish` puts it under its name.

    Data records go into batches of ``max_batch_records`` across calls, all at ``timestamp_ms``;
    every ``piece_size`` bytes go to the file, so memory does not grow with the snapshot.
    ``control_records`` are (type, value) pairs that follow the SnapshotHeader in its batch:
    KRaftVersion and KRaftVoters from kraft.version 1 on. As a context manager it removes what is
    not finished. Raises StorageError; a ``.part`` that was left behind is overwritten.
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
        """The offset inside the snapshot that the piece in hand began with."""

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
        piece_size: int = ...,
    ) -> None: ...
    def append_batches(self, buffer: Buffer) -> None:
        """The record values of ``buffer``'s batches (uncompressed, no control batch), in order.

        Offsets, timestamps and CRCs of the source are not looked at. Raises CorruptRecordError for
        bytes that are no batches, InvalidRequestError for compressed and control batches.
        """

    def append_table(self, table: PartitionTable, *, version: int) -> None:
        """A Topic record for each live topic, followed by its Partition records of ``version``."""

    def finish(self) -> str:
        """Writes the footer, syncs, renames and syncs the directory; the path of the snapshot."""

    def abort(self) -> None:
        """Closes and removes the ``.part``; does nothing once the snapshot is finished."""

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
    """A whole snapshot: the batches before the topics, the table, the batches after them.

    The path of the file. Raises what `SnapshotWriter` raises; nothing is left behind then.
    """

class SnapshotInfo(NamedTuple):
    """What a snapshot says of itself. ``end_offset`` is -1 where the name does not tell it.

    ``record_count`` is of data records, ``size`` in bytes.
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

    Opening checks every batch header, that offsets run from 0 without a gap, that one epoch stands
    in all batches (and in the name), and that a SnapshotHeader begins and a SnapshotFooter ends
    the file; records are checked by `read`. Raises CorruptRecordError and StorageError.
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
    ) -> SnapshotInfo:
        """Applies the records to ``table``, others to the callbacks as `PartitionTable.apply` does.

        The rows are reserved once, by what the batch headers say and the bytes bear out. Every CRC
        is checked. Where it raises, the table holds what came before and is to be thrown away.
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
    """Opens a snapshot and reads it into ``table``; see `SnapshotReader`."""
