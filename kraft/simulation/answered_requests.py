"""A replica manager whose requests must be answered once, within their time.

`AnsweredManager` notes each request that it accepts: Produce, Fetch, DeleteRecords. The simulated
broker reports each answer, and calls `AnsweredManager.check` after each event. The invariant is
requests_are_answered_once_in_time, whatever happens to the partitions meanwhile. The requests of a
process that ends go with its manager: the connections of a real one close.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from typing_extensions import Buffer

from kraft.broker.replication.messages import BrokerFetchRequest, PartitionId
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.simulation.batch_tree import Violation

#: A driver calls `ReplicaManager.tick` this long after the time that the manager named.
MAX_LATENESS_MS = 1.0


class AnsweredManager(ReplicaManager):
    """A replica manager that remembers the requests without an answer."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        #: By token: the kind of the request, and the time by which it must be answered.
        self._open: dict[Hashable, tuple[str, float]] = {}
        #: The end of the latest pause, and the time from which on answers must not be late.
        self._pause = 0.0
        self._runs_since_ms = 0.0

    @property
    def unanswered_count(self) -> int:
        """The number of requests without an answer."""
        return len(self._open)

    def produce(
        self,
        token: Hashable,
        batches: Mapping[PartitionId, Buffer],
        acks: int,
        timeout_ms: float,
        now_ms: float,
    ) -> bool:
        self._open[token] = "Produce", now_ms + timeout_ms
        return super().produce(token, batches, acks, timeout_ms, now_ms)

    def fetch(self, token: Hashable, request: BrokerFetchRequest, now_ms: float) -> bool:
        self._open[token] = "Fetch", now_ms + request.max_wait_ms
        return super().fetch(token, request, now_ms)

    def delete_records(
        self,
        token: Hashable,
        offsets: Mapping[PartitionId, int],
        timeout_ms: float,
        now_ms: float,
    ) -> None:
        self._open[token] = "DeleteRecords", now_ms + timeout_ms
        super().delete_records(token, offsets, timeout_ms, now_ms)

    def answered(self, token: Hashable) -> None:
        """Note an answer."""
        if self._open.pop(token, None) is None:
            raise _violation(self, f"{token} has more than one answer")

    def check(self, now_ms: float, paused_until_ms: float) -> None:
        """Check that no request waits for longer than it may; call it after each event.

        A pause of the process ends at ``paused_until_ms``: until then, and at the first event after
        it, everything may be late.
        """
        if paused_until_ms != self._pause or paused_until_ms > now_ms:
            self._pause, self._runs_since_ms = paused_until_ms, max(now_ms, paused_until_ms)
        for kind, deadline_ms in self._open.values():
            if now_ms > max(deadline_ms, self._runs_since_ms) + MAX_LATENESS_MS:
                raise _violation(
                    self, f"{kind} has no answer {now_ms - deadline_ms:.1f} ms after its timeout"
                )


def _violation(manager: ReplicaManager, what: str) -> Violation:
    return Violation(
        "requests_are_answered_once_in_time", f"broker {manager.context.broker_id}: {what}"
    )
