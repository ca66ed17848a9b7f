"""A partition's log on disk: segments in Kafka's layout; append, fetch, truncate."""

from collections.abc import Iterator
from os import PathLike
from types import TracebackType
from typing import NamedTuple, Self

from typing_extensions import Buffer

from kraft._core.codec.message_schema import Uuid
from kraft._core.log.disk import Disk, OsFile
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft._core.log.recovery import Gap, TornTail
from kraft._core.log.segment import Segment

DEFAULT_SEGMENT_BYTES: int
DEFAULT_SEGMENT_MS: int
DEFAULT_INDEX_INTERVAL_BYTES: int
DEFAULT_INDEX_MAX_BYTES: int

class LogBatch(NamedTuple):
    """One batch of the log: its segment's path, its position in that file, and its mapped bytes."""

    path: str
    position: int
    base_offset: int
    last_offset: int
    epoch: int
    data: memoryview

class Log:
    """The log of one partition. Made by `Log.open`; a context manager that closes it.

    One thread writes (append, roll, truncate, advance, close); `sync`, `fetch` and `batches` may
    run in other threads. After a failed write or sync, every further write is a StorageError.
    """

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        *,
        disk: Disk | None = None,
        segment_bytes: int = ...,
        segment_ms: int = ...,
        index_interval_bytes: int = ...,
        index_max_bytes: int = ...,
        read_only: bool = False,
        salvage: bool = False,
        topic_id: Uuid | None = ...,
        synced_offset: int = -1,
    ) -> Self:
        """Open a partition directory; create it if it does not exist, unless `read_only`.

        Every batch is checked, CRC included, like Kafka after an unclean stop. The indexes are
        rebuilt from the batches (their files are corrected unless `read_only`). A torn tail is cut
        off (on disk, unless `read_only`) and reported in `torn_tail`. `salvage`, which requires
        `read_only`, skips damage and reports it in `gaps`. A partition.metadata of `topic_id` is
        written if there is none. `synced_offset` is an end offset up to which the log was on the
        device: an incomplete batch before it is damage, and after it a torn tail, whatever follows.
        With `read_only` nothing in the directory changes; another process must not truncate the
        log meanwhile.

        Defaults are Kafka's: segments of 1 GiB or 7 days, an index entry each 4096 bytes, indexes
        of at most 10 MiB.

        Raises DamagedLogError if valid batches follow invalid bytes or the log ends before
        `synced_offset`, StorageError if the disk fails, CorruptRecordError if a file's content is
        malformed.
        """

    def append(
        self,
        batches: Buffer,
        *,
        sync: bool = False,
        verify_crc: bool = False,
        write_epochs: bool = True,
    ) -> tuple[int, int]:
        """Append whole batches with offsets and epochs set; return (first offset, last offset).

        `batches` is one or more v2 batches: they begin at `log_end_offset`, leave out no offset,
        and their epochs do not decrease. Each segment gets one write; only a buffer larger than a
        segment needs more than one. `verify_crc` is for batches from another process. `sync` calls
        `sync()` at the end. Without `write_epochs` the caller calls `write_epochs()` later.

        Raises CorruptRecordError (nothing was written) for other bytes, RecordTooLargeError for a
        batch larger than a segment, StorageError, ValueError for an empty buffer.
        """

    def write_epochs(self) -> None:
        """Write `leader-epoch-checkpoint` durably if an append has begun an epoch since.

        An open reads the epochs from the batches and corrects the file, as Kafka does. So it may be
        written after the batches are acknowledged.
        """

    def sync(self) -> None:
        """Make everything appended before the call durable, and set `synced_offset`.

        Raises StorageError; the log then accepts no more writes.
        """

    def stage(self, batches: Buffer) -> bool:
        """Return whether the caller may append `batches` to `staging_file` itself and sync them.

        They come after the batches staged before. It may if they are of the last epoch and fit into
        the last segment. After its sync it calls `add_staged`; no other write is allowed before.
        Raises CorruptRecordError for bytes that are not the next batches, like `append`, and
        StorageError.
        """

    @property
    def staging_file(self) -> tuple[OsFile, int]:
        """The (file, position) for staged batches; call it while none is being written."""

    def add_staged(self, batches: Buffer) -> None:
        """Add the oldest staged batches to the log; they are on the device."""

    def roll(self) -> None:
        """Begin a new segment at the log's end, unless the last segment is empty."""

    def fetch(self, offset: int, max_size: int, end_offset: int = ...) -> memoryview:
        """Return whole batches from the one with `offset` on, as a view of the mapped file.

        Returns at least one batch, and otherwise at most `max_size` bytes, from one segment, none
        that ends after `end_offset`; empty at `log_end_offset`. The view is read-only and stays
        valid whatever happens to the log. Raises OffsetOutOfRangeError.
        """

    def batches(self, since: int | None = None) -> Iterator[LogBatch]:
        """Yield a LogBatch for every batch from the one with offset `since` on.

        The log must not be truncated or closed meanwhile.
        """

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset | None:
        """Return the largest known epoch at or below `epoch`, and its end offset.

        Kafka returns it to a diverging fetch (LeaderEpochFileCache.endOffsetFor). Returns None if
        `epoch` is above every known one.
        """

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, or -1 if unknown."""

    def truncate_to(self, offset: int) -> int:
        """Durably remove the batch with `offset` and all after it; return the new end offset.

        That is `offset` itself if a batch begins there. An offset below the first segment empties
        the log, which then begins at `offset`.
        """

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at `offset`, as after a snapshot."""

    def advance_log_start(self, offset: int) -> int:
        """Remove whole segments before `offset`; return the number of removed segments.

        This is retention up to a snapshot: the caller has one that ends at `offset`. An offset
        below the log's start changes nothing. As in Kafka, the log's start is not written to disk:
        at the next open it is the first segment's base offset. Raises OffsetOutOfRangeError for an
        offset after the end.
        """

    def close(self) -> None:
        """Complete the index files, sync unsynced bytes, and close the files.

        Fetched slices stay valid. Closing twice does nothing.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    @property
    def directory(self) -> str: ...
    @property
    def disk(self) -> Disk: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def failed(self) -> bool:
        """True after a failed write or sync: the disk's bytes are in doubt until a new open."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def synced_offset(self) -> int:
        """The log's end at the last `sync` (opening for writing syncs too)."""

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 for an empty log."""

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of every epoch in the log, ascending."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, ascending; callers may read their attributes only."""

    @property
    def size(self) -> int:
        """Bytes in all segments."""

    @property
    def topic_id(self) -> Uuid | None:
        """The topic id of partition.metadata, None without it. Raises CorruptRecordError."""

    @property
    def torn_tail(self) -> TornTail | None:
        """The bytes that opening cut off, or None."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damage that a salvaging open skipped."""
