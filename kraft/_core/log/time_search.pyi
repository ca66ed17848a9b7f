"""Search for a record by its timestamp within one segment (ListOffsets)."""

from typing import NamedTuple

class TimedOffset(NamedTuple):
    """A record: its timestamp in ms (-1: none), its offset, its leader epoch (-1: unknown)."""

    timestamp_ms: int
    offset: int
    epoch: int
