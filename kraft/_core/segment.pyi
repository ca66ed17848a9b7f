"""One segment of a log: `%020d.log` and the two indexes beside it."""

from kraft._core.disk import Disk
from kraft._core.segment_index import OffsetIndex, TimeIndex

class Segment:
    """A segment, as `Log.segments` shows it. Offsets and positions are i64, sizes in bytes."""

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
        """The first offset behind the last batch."""

    @property
    def size(self) -> int:
        """Bytes of the log file that hold whole batches (and gaps that a salvage read past)."""

    @property
    def max_timestamp(self) -> int:
        """In ms; -1 where no batch carries a timestamp."""

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp in ms; -1 where there is none."""

    @property
    def read_only(self) -> bool: ...
    @property
    def gaps(self) -> list[tuple[int, int]]:
        """(start, stop) byte positions of the damage that a salvaging open read past."""

    @property
    def offset_index(self) -> OffsetIndex: ...
    @property
    def time_index(self) -> TimeIndex: ...
