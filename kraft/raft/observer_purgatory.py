"""Observers' fetches that wait: answered in rounds, each for all commits since the last one.

A leader has up to thousands of observers (its brokers), and commits up to thousands of records a
second. An answer for each commit to each observer, and the next fetch after it, would be most of
the leader's work while a thousand brokers register. Therefore:

- An observer's fetch waits for committed records, and not for records that may still be lost. A
  change costs one answer, not one for the records and one for the high watermark.
- All waiting fetches are answered together, in a round, as soon as records are committed. Only
  while rounds need more than one answer per `ANSWER_MS`, for longer than `BURST_MS`, does the next
  round wait, and never longer than `MAX_DELAY_MS`. A single change is not delayed, nor are a few.

Voters' fetches are never here: a commit waits for them. Kafka's leader answers voters and observers
alike, for durable records and again for the high watermark. Called by `leader`; pure.
"""

from __future__ import annotations

from kraft.raft.connections import NEVER
from kraft.raft.fetch_purgatory import FetchPurgatory
from kraft.raft.rpc import FetchRequest

#: A leader that commits without a pause sends one answer in this time, in ms. An answer and the
#: next fetch take it about 0.1 ms of CPU: a quarter of its time goes to observers.
ANSWER_MS = 0.4
#: The answers of this time may be sent at once, in ms: two rounds of a thousand observers.
BURST_MS = 800.0
#: How long a commit waits for its round at most, in ms.
MAX_DELAY_MS = 400.0


class ObserverPurgatory(FetchPurgatory):
    """The waiting fetches of a leader's observers. The epoch begins at ``start_offset``."""

    __slots__ = ("_answered_until_ms", "_high_watermark", "_start_offset")

    def __init__(self, start_offset: int) -> None:
        super().__init__()
        self._start_offset = start_offset
        #: The high watermark of the last round; -1 before the first.
        self._high_watermark = -1
        #: When the answers so far would have been sent, at one in `ANSWER_MS`.
        self._answered_until_ms = 0.0

    def is_behind(self, request: FetchRequest) -> bool:
        """Return whether the sender lacks what the last round announced.

        Records of earlier epochs do not wait for the first commit of this one.
        """
        announced = self._high_watermark
        return request.offset < max(announced, self._start_offset) or (
            request.high_watermark < announced
        )

    def round_at_ms(self, high_watermark: int) -> float:
        """Return when to announce this high watermark; infinity if the last round did."""
        if high_watermark <= self._high_watermark:
            return NEVER
        return self._answered_until_ms - BURST_MS

    def begin_round(self, high_watermark: int, now_ms: float) -> list[int]:
        """Announce the high watermark; return the fetches to answer, by ``reply_to``."""
        self._high_watermark = high_watermark
        waiting = list(self.waiting)
        self.note_answers(len(waiting), now_ms)
        return waiting

    def note_answers(self, count: int, now_ms: float) -> None:
        """Count answers that are sent now; too many of them delay the next round."""
        until_ms = max(self._answered_until_ms, now_ms) + ANSWER_MS * count
        self._answered_until_ms = min(until_ms, now_ms + BURST_MS + MAX_DELAY_MS)
