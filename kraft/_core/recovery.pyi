"""The full scan of a log, as after an unclean stop: what is whole, torn or damaged."""

from typing import NamedTuple

from kraft._core.disk import Disk
from kraft._core.epoch_cache import EpochCache
from kraft._core.segment import Segment

class TornTail(NamedTuple):
    """What an interrupted write left: cut off, in memory or on disk. Nothing valid follows it."""

    path: str
    offset: int
    """The log's end: what the torn batch would have begun with."""
    position: int
    """The first byte cut."""
    size: int
    """Bytes cut, those of the segments behind included."""
    reason: str

class Gap(NamedTuple):
    """Damage that a salvaging open read past; next_offset is -1 where nothing follows it."""

    path: str
    offset: int
    """The first offset that is lost."""
    position: int
    """The first damaged byte."""
    next_path: str
    next_offset: int
    next_position: int
    reason: str

class LogScan:
    """One scan over a log's directory; what it found is in its attributes after `run`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index_interval_bytes: int,
        read_only: bool,
        salvage: bool,
        synced_offset: int = -1,
    ) -> None: ...
    def run(self, base_offsets: list[int]) -> None:
        """Scans the segments in order; cuts off a torn tail, refuses or reads past damage.

        Raises DamagedLogError; the segments are closed then.
        """

    @property
    def segments(self) -> list[Segment]: ...
    @property
    def epochs(self) -> EpochCache: ...
    @property
    def torn_tail(self) -> TornTail | None: ...
    @property
    def gaps(self) -> list[Gap]: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
