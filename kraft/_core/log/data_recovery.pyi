"""The check of a partition's segments after an unclean stop."""

from typing import NamedTuple

from kraft._core.log.recovery import TornTail
from kraft._core.log.segment import Segment

class RecoveredSegments(NamedTuple):
    """The outcome: bytes that were cut off, segments after the log's end, changes of the epochs."""

    torn_tail: TornTail | None
    doomed: list[Segment]
    has_new_epoch: bool
