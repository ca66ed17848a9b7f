"""``LogPosition``: where one broker's copy of the metadata log ends; pure.

Responsible for the offset and the epoch that the broker's next Fetch names, and for the truncation
that a leader asks for (KIP-595). It holds no record.

Invariants: ``high_watermark`` never decreases, and no committed offset is truncated. Called by
`light_broker`.
"""

from __future__ import annotations

from kraft._core.log.epoch_cache import EpochCache, EpochEndOffset
from kraft.errors import CorruptRecordError


class LogPosition:
    """The end of a log, the epochs of its records, and the part of it that is committed."""

    def __init__(self) -> None:
        self.end_offset = 0
        #: The highest that a leader reported to this run of the broker; -1 before.
        self.high_watermark = -1
        #: The end (exclusive) of the snapshot that the log begins behind, all of it committed. The
        #: leader may have committed more by then, so that it is no high watermark.
        self._snapshot_end = 0
        self._epochs = EpochCache()

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; 0 for an empty log, as Kafka's replicas send it."""
        return max(self._epochs.last_epoch, 0)

    @property
    def committed_offset(self) -> int:
        """The end (exclusive) of the records that the broker has and knows to be committed."""
        return max(min(self.end_offset, self.high_watermark), self._snapshot_end)

    @property
    def is_caught_up(self) -> bool:
        """Whether the broker has all that its leader reported to be committed."""
        return 0 < self.high_watermark <= self.committed_offset

    def committed_copy(self) -> LogPosition:
        """Return the committed part, for a broker that starts with the same log."""
        other = LogPosition()
        other.high_watermark = self.high_watermark
        other._snapshot_end = self._snapshot_end
        other._epochs = EpochCache(self._epochs.entries)
        other.cut(self.committed_offset)
        return other

    def cut(self, end_offset: int) -> None:
        """End the log at this offset: the records behind it are fetched again."""
        self.end_offset = end_offset
        self._epochs.truncate_from_end(end_offset)

    def restart(self) -> None:
        """Forget the high watermark, which a stopped broker does not keep on disk."""
        self.high_watermark = -1

    def append(self, end_offset: int, epochs: list[tuple[int, int]]) -> None:
        """Note records up to ``end_offset``; ``epochs`` are (epoch, start offset), ascending."""
        for epoch, start_offset in epochs:
            if epoch > self._epochs.last_epoch:
                self._epochs.assign(epoch, max(start_offset, self.end_offset))
        self.end_offset = max(self.end_offset, end_offset)

    def commit(self, high_watermark: int) -> bool:
        """Note a leader's high watermark; return whether more records are committed now."""
        if high_watermark <= self.high_watermark:
            return False
        before = self.committed_offset
        self.high_watermark = high_watermark
        return self.committed_offset > before

    def truncate(self, diverging: EpochEndOffset) -> None:
        """Drop the records that the leader does not have.

        The leader names the largest epoch that both may share, and where that epoch ends in its
        log. Raises CorruptRecordError where a committed record would be dropped.
        """
        end_offset = min(self.end_offset, diverging.end_offset)
        own = self._epochs.end_offset_for(diverging.epoch, self.end_offset)
        if own is not None:
            end_offset = min(end_offset, own.end_offset)
        if end_offset < self.committed_offset:
            raise CorruptRecordError(
                f"the leader's log diverges at offset {end_offset}, below the committed offset "
                f"{self.committed_offset}"
            )
        self.cut(end_offset)

    def begin_at(self, offset: int, epoch: int) -> None:
        """Begin behind a snapshot that ends at ``offset`` with a record of ``epoch``."""
        self.end_offset = self._snapshot_end = offset
        self._epochs = EpochCache([(epoch, max(offset - 1, 0))])
