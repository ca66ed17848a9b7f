"""Count the elections that this process has seen, for the metrics of elections.

A publisher of images. The partition table counts the elections in the records that it replays. The
records of the first image, and of a snapshot that replaces the state, do not count: they may be
old, and a counter that grows at a restart would raise an alert. Called by `observed_node`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kraft._core.table.table import PartitionTable

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta


class ElectionCounts(NamedTuple):
    """Elections of a leader outside of the ISR and the ELR, and of one from the ELR."""

    unclean: int = 0
    eligible: int = 0


class ElectionCounter:
    """``counts`` are the elections since the first image; ``table`` returns the present table."""

    name = "ElectionCounter"

    def __init__(self, table: Callable[[], PartitionTable]) -> None:
        self._table = table
        self._replayed = ElectionCounts()
        self.counts = ElectionCounts()

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Add the elections since the previous image."""
        replayed, before = ElectionCounts(*self._table().election_counts), self._replayed
        self._replayed = replayed
        if not delta.is_full:
            self.counts = ElectionCounts(
                self.counts.unclean + replayed.unclean - before.unclean,
                self.counts.eligible + replayed.eligible - before.eligible,
            )
