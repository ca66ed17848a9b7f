"""One segment of a log: `%020d.log` and its two indexes."""

from kraft._core.log.disk import Disk
from kraft._core.log.segment_index import OffsetIndex, TimeIndex

class Segment:
    """A segment in `Log.segments`. Offsets and positions are i64, sizes in bytes."""

    @property
    def disk(self) -> Disk: ...
    @property
    def directory(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """The first offset after the last batch."""

    @property
    def size(self) -> int:
        """Bytes of the log file that are whole batches (and gaps that a salvaging open skipped)."""

    @property
    def max_timestamp(self) -> int:
        """In ms; -1 if no batch has a timestamp."""

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp in ms; -1 without one."""

    @property
    def read_only(self) -> bool: ...
    @property
    def gaps(self) -> list[tuple[int, int]]:
        """(start, stop) byte positions of damage that a salvaging open skipped."""

    @property
    def offset_index(self) -> OffsetIndex: ...
    @property
    def time_index(self) -> TimeIndex: ...

class SegmentPool:
    """The segments of many logs whose files are open; it closes some that were not used lately.

    Which of them is by chance: where all segments are used in turn, and a few more than may be
    open, most are open when their turn comes.

    `most_open` bounds open files; each has up to three mappings. More are open only while more
    segments are in use, or while slices of closed segments exist.
    """

    def __init__(self, most_open: int) -> None: ...
    @property
    def most_open(self) -> int: ...
    def __len__(self) -> int:
        """The number of segments with open files."""
