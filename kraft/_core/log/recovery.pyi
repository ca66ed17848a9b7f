"""The full scan of a log, as after an unclean stop: which bytes are whole, torn or damaged."""

from typing import NamedTuple

from kraft._core.log.disk import Disk
from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.segment import Segment

class TornTail(NamedTuple):
    """The bytes of an interrupted write, cut off in memory or on disk; nothing valid follows."""

    path: str
    offset: int
    """The log's end: the base offset of the torn batch."""
    position: int
    """The first byte cut."""
    size: int
    """Bytes cut, those of later segments included."""
    reason: str

class Gap(NamedTuple):
    """Damage that a salvaging open skipped; next_offset is -1 if nothing follows it."""

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
    """One scan over a log's directory; its attributes have the result after `run`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index_interval_bytes: int,
        read_only: bool,
        salvage: bool,
        synced_offset: int = -1,
        is_sparse: bool = False,
    ) -> None: ...
    def run(self, base_offsets: list[int]) -> None:
        """Scan the segments in order; cut off a torn tail, and reject or skip damage.

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
