"""ISR changes: the AlterPartition requests of a broker, one in flight, one proposal a partition.

`IsrChangeQueue` collects proposals while a request is in flight and sends all of them with the
next one. A proposal stays queued until the controller has answered it: a request without a response
and a top-level error are repeated. Rules: Kafka's ``DefaultAlterPartitionManager`` (KIP-497).
"""

from __future__ import annotations

from kraft.broker.replication.messages import (
    CommittedIsr,
    IsrChangeResponse,
    IsrProposal,
    PartitionId,
)
from kraft.errors import OPERATION_NOT_ATTEMPTED

RETRY_MS = 50.0


class IsrChangeQueue:
    """The proposals that the controller has not answered."""

    __slots__ = ("_in_flight", "_unanswered", "retry_at_ms")

    def __init__(self) -> None:
        self._unanswered: dict[PartitionId, IsrProposal] = {}
        self._in_flight: list[IsrProposal] | None = None
        #: No request is sent before this time.
        self.retry_at_ms = 0.0

    def __len__(self) -> int:
        return len(self._unanswered)

    @property
    def is_in_flight(self) -> bool:
        return self._in_flight is not None

    @property
    def wake_at_ms(self) -> float:
        """When to call `next_request` again; infinity if only a response or proposal helps."""
        if self._in_flight is not None or not self._unanswered:
            return float("inf")
        return self.retry_at_ms

    def submit(self, proposal: IsrProposal) -> int:
        """Queue a proposal; return an error if the partition has an unanswered one."""
        if proposal.id in self._unanswered:
            return OPERATION_NOT_ATTEMPTED
        self._unanswered[proposal.id] = proposal
        return 0

    def next_request(self, now_ms: float) -> list[IsrProposal] | None:
        """Return the proposals of the next request, and count it as sent; None: nothing to send."""
        if self._in_flight is not None or not self._unanswered or now_ms < self.retry_at_ms:
            return None
        self._in_flight = list(self._unanswered.values())
        return self._in_flight

    def answered(
        self, response: IsrChangeResponse | None, now_ms: float
    ) -> list[tuple[IsrProposal, CommittedIsr | int]]:
        """Return the outcome of each answered proposal; None as the response: none arrived.

        Partitions that the response does not name are sent again.
        """
        sent, self._in_flight = self._in_flight or [], None
        if response is None or response.error:
            self.retry_at_ms = now_ms + RETRY_MS
            return []
        outcomes = []
        for proposal in sent:
            outcome = response.partitions.get(proposal.id)
            if outcome is not None:
                del self._unanswered[proposal.id]
                outcomes.append((proposal, outcome))
        if len(outcomes) < len(sent):
            self.retry_at_ms = now_ms + RETRY_MS
        return outcomes

    def delay(self, now_ms: float) -> None:
        """Send nothing for `RETRY_MS`: the last answers asked for repetitions."""
        self.retry_at_ms = now_ms + RETRY_MS
