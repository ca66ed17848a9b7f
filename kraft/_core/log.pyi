"""A partition's log on disk: segments in Kafka's layout, appended to, fetched from and cut."""

from collections.abc import Iterator
from os import PathLike
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from typing_extensions import Buffer

from kraft._core.disk import Disk, OsFile
from kraft._core.epoch_cache import EpochEndOffset
from kraft._core.recovery import Gap, TornTail
from kraft._core.segment import Segment

DEFAULT_SEGMENT_BYTES: int
DEFAULT_SEGMENT_MS: int
DEFAULT_INDEX_INTERVAL_BYTES: int
DEFAULT_INDEX_MAX_BYTES: int

class LogBatch(NamedTuple):
    """One batch of the log, and where it lies: the segment's path and the position in that file;
    `data` is its bytes in the mapped file."""

    path: str
    position: int
    base_offset: int
    last_offset: int
    epoch: int
    data: memoryview

class Log:
    """The log of one partition. Made by `Log.open`; a context manager that closes it.

    One thread writes (append, roll, truncate, advance, close); `sync`, `fetch` and `batches` may
    run in others. After the disk refused a write or a sync, every further write is a StorageError.
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
        topic_id: UUID | None = ...,
        synced_offset: int = -1,
    ) -> Self:
        """Opens a partition directory, and makes it where it is not there and may be written.

        Every batch is checked, CRC included, as Kafka does after an unclean stop; the indexes are
        built from the batches (their files are brought in line unless `read_only`). A torn tail is
        cut off (on disk, unless `read_only`) and named by `torn_tail`. `salvage`, which goes with
        `read_only`, reads past damage and names it in `gaps`. A partition.metadata of `topic_id`
        is written where there is none. `synced_offset` is an end up to which the log is known to
        have been on the device: what is no whole batch before it is damage, and behind it a torn
        tail, whatever follows. With `read_only` nothing in the
        directory changes; it is not safe to map a log that another process may be truncating.

        Defaults are Kafka's: segments of 1 GiB or 7 days, an index entry each 4096 bytes, indexes
        of at most 10 MiB.

        Raises DamagedLogError where valid batches follow bytes that are none, or the log ends
        before `synced_offset`; StorageError where the disk refuses, CorruptRecordError where a
        file's content is malformed.
        """

    def append(
        self, batches: Buffer, *, sync: bool = False, verify_crc: bool = False
    ) -> tuple[int, int]:
        """Appends whole batches whose offsets and epochs are set; (first offset, last offset).

        `batches` is one or more v2 batches: they begin at `log_end_offset`, leave no offset out,
        and their epochs do not fall. One write goes to each segment concerned, which is one in all
        unless the buffer is larger than a segment. `verify_crc` is for batches that came from
        elsewhere. `sync` calls `sync()` at the end.

        Raises CorruptRecordError (nothing was written) where the bytes are not such batches,
        RecordTooLargeError where a batch is larger than a segment, StorageError, ValueError for an
        empty buffer.
        """

    def sync(self) -> None:
        """What was appended before the call is on the device when it returns: `synced_offset`.

        Raises StorageError, after which the log takes no more writes.
        """

    def stage(self, batches: Buffer) -> bool:
        """Whether another may append `batches` to `staging_file` and sync it, behind what it was
        given before: they are of the last epoch and fit into the last segment.

        Once that is done, `take_in` takes them up; until then nothing else may be written. Raises
        CorruptRecordError for bytes that are not the next batches, as `append` does, and
        StorageError.
        """

    @property
    def staging_file(self) -> tuple[OsFile, int]:
        """(file, position) where staged batches go, as long as none is under way."""

    def take_in(self, batches: Buffer) -> None:
        """Takes up batches that were staged, the oldest first: they are on the device."""

    def roll(self) -> None:
        """Begins a new segment at the log's end; does nothing where the last one is empty."""

    def fetch(self, offset: int, max_size: int, end_offset: int = ...) -> memoryview:
        """Whole batches from the one that holds `offset`, as a read-only view of the mapped file.

        At least one batch, and else at most `max_size` bytes, all of one segment, none that ends
        behind `end_offset`; empty at `log_end_offset`. The view stays valid whatever happens to
        the log. Raises OffsetOutOfRangeError.
        """

    def batches(self, since: int | None = None) -> Iterator[LogBatch]:
        """Yields a LogBatch for every batch from the one that holds offset `since` on.

        The log must not be cut or closed in between.
        """

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset | None:
        """Where the largest known epoch at or below `epoch` ends, as Kafka answers a diverging
        fetch (LeaderEpochFileCache.endOffsetFor); None where `epoch` is above every known one."""

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, -1 where it is not known."""

    def truncate_to(self, offset: int) -> int:
        """Cuts off the batch that holds `offset` and all behind it, durably; the new end offset.

        That is `offset` itself where it is a batch's first. An offset below the first segment
        empties the log, which then begins at `offset`.
        """

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything; the log is then empty and begins at `offset`, as after a snapshot."""

    def advance_log_start(self, offset: int) -> int:
        """Gives up what lies before `offset`, as far as whole segments go; the segments removed.

        This is retention up to a snapshot: the caller holds one that ends at `offset`. A smaller
        offset than the log's start changes nothing. As in Kafka the log's start is not written
        down: at the next open it is the first segment's base offset. Raises OffsetOutOfRangeError
        behind the end.
        """

    def close(self) -> None:
        """Completes the index files, syncs what is not synced, gives the files back.

        Slices that were fetched stay valid. Closing twice does nothing.
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
        """The disk refused a write or a sync: what lies on it is in doubt until the log is opened
        anew."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def synced_offset(self) -> int:
        """The log's end as of the last `sync` (opening for writing syncs too)."""

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 of an empty log."""

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of every epoch in the log, ascending."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, ascending; their attributes may be read, the rest is the log's."""

    @property
    def size(self) -> int:
        """Bytes in all segments."""

    @property
    def topic_id(self) -> UUID | None:
        """The topic id in partition.metadata; None without that file. Raises CorruptRecordError."""

    @property
    def torn_tail(self) -> TornTail | None:
        """What opening cut off, if anything."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damage that a salvaging open read past."""
