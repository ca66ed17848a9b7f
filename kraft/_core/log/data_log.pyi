"""A partition's log of data: a `Log` with lazily opened files, and the rules of a broker."""

from collections.abc import Callable
from os import PathLike
from typing import NamedTuple, Self

from typing_extensions import Buffer

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.cleaned_segment import CleanedSegment
from kraft._core.log.disk import Disk
from kraft._core.log.log import Log
from kraft._core.log.segment import SegmentPool
from kraft._core.log.time_search import TimedOffset

class SegmentFacts(NamedTuple):
    """One segment: its offsets, its size in bytes, and timestamps in ms (-1: none)."""

    base_offset: int
    next_offset: int
    size: int
    max_timestamp: int
    first_timestamp: int
    offset_index_bytes: int
    time_index_bytes: int

class DataLog(Log):
    """The log of a partition of data. Made by `DataLog.load`.

    One thread changes it at a time; `read`, `fetch`, `sync` and `sync_rolled` may run in others.
    After a failed write or sync every further write is a StorageError.
    """

    @classmethod
    def load(
        cls,
        directory: str | PathLike[str],
        *,
        pool: SegmentPool,
        disk: Disk | None = None,
        segment_bytes: int = ...,
        segment_ms: int = ...,
        index_interval_bytes: int = ...,
        index_max_bytes: int = ...,
        start_offset: int = 0,
        recovery_point: int = 0,
        is_clean: bool = False,
        now_ms: int = 0,
        on_roll: Callable[[int], None] | None = None,
    ) -> Self:
        """Open a partition's directory; create it if it does not exist.

        `start_offset` and `recovery_point` are those of the checkpoints. After a clean stop
        (`is_clean`) only the end of the last segment is read. Otherwise every batch from the
        segment with the recovery point on is checked, and the log is cut at the first damaged one
        (`torn_tail`); their indexes are rebuilt. A log that ends before `start_offset` is emptied,
        and begins there. `on_roll` is called with the base offset of each new segment.

        Raises StorageError, ValueError for settings out of range.
        """

    def configure(
        self,
        *,
        segment_bytes: int,
        segment_ms: int,
        index_interval_bytes: int,
        index_max_bytes: int,
    ) -> None:
        """Use other limits from the next append on."""

    def write(
        self, batches: Buffer, *, now_ms: int = 0, verify_crc: bool = False
    ) -> tuple[int, int]:
        """Append whole batches with offsets and epochs set; return (old end, last offset).

        The first begins at `log_end_offset` or later. A segment whose first batch has no timestamp
        is rolled by `now_ms`. Nothing is synced. Raises like `Log.append`.
        """

    def sync_rolled(self) -> None:
        """Make all segments but the last durable, and raise `synced_offset` to its base offset."""

    def read(self, offset: int, max_size: int, end_offset: int = ...) -> FileSlice:
        """Return the bytes of `fetch` as a part of a segment's file."""

    def offset_at_time(self, timestamp_ms: int) -> TimedOffset | None:
        """Return the first record, from the log's start on, with this timestamp or a later one."""

    def offset_of_largest_time(self) -> TimedOffset | None:
        """Return the first record with the largest timestamp, None without timestamps."""

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """The base offset of each segment, ascending."""

    @property
    def segment_count(self) -> int: ...
    @property
    def segment_sizes(self) -> list[int]:
        """The bytes of each segment, the oldest first; opens no file."""

    @property
    def cuts(self) -> int:
        """The number of truncations and restarts since the load."""

    def segment_facts(self, index: int) -> SegmentFacts:
        """Return the facts of the segment at `index`, the oldest first; may open its files."""

    def restart_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at `offset`."""

    def raise_start_offset(self, offset: int) -> bool:
        """Let the log begin at `offset` without removing segments; return whether it began before.

        Raises OffsetOutOfRangeError for an offset after the end.
        """

    def remove_oldest(self, count: int) -> None:
        """Remove the oldest segments, not all; the log begins at the next one or later."""

    def batches_at(self, base_offset: int, position: int, max_size: int) -> memoryview:
        """Return whole batches of the segment that begins with `base_offset`, mapped.

        At least one, from a byte position on, and otherwise at most `max_size` bytes; none at the
        segment's end. Raises OffsetOutOfRangeError without that segment, StorageError.
        """

    def replace_segments(self, base_offsets: list[int], cleaned: CleanedSegment, cuts: int) -> bool:
        """Let a complete cleaned segment take the place of segments that follow each other.

        Return False, and change nothing, if they are not all there any more, if the last one is
        the log's last, or if the log was cut since `cuts` had this value. A recovery point at or
        after their end must be on disk: below it a load tolerates a gap after a segment.
        """

    def take_removed(self) -> list[str]:
        """Return the paths of files that got the suffix `.deleted` since the last call."""

    def move_to(self, directory: str) -> None:
        """Rename the log's directory."""

    def abandon(self) -> None:
        """Close the files and write nothing."""
