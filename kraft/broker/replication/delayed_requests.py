"""Requests of clients and followers that wait for partitions: produce, fetch, DeleteRecords.

Each is a `WaitingOperation`. A produce with acks=all waits until every partition is acknowledged or
has an error; a fetch until ``min_bytes`` are readable, or a partition's state demands an answer; a
DeleteRecords until all live replicas have deleted. Only the partition that changed is looked at
again. Rules: Kafka's ``DelayedProduce``, ``DelayedFetch``, ``DelayedDeleteRecords``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    DeletedRecords,
    FetchedPartition,
    FetchPartition,
    PartitionId,
    ProducedPartition,
)
from kraft.broker.replication.waiting import WaitingOperation
from kraft.errors import REQUEST_TIMED_OUT


class PartitionOutcomes(Protocol):
    """What waiting requests ask the replica manager."""

    @abstractmethod
    def acknowledgement(self, id: PartitionId, required_offset: int) -> int | None:
        """Return the outcome of acks=all for a partition, None while it is open."""

    @abstractmethod
    def deletion(self, id: PartitionId, requested: int) -> DeletedRecords | None:
        """Return the outcome of DeleteRecords for a partition, None while it is open."""


class FetchOutcomes(Protocol):
    """What a waiting fetch asks the replica manager's fetches."""

    @abstractmethod
    def read_again(self, request: BrokerFetchRequest, fetch: FetchPartition) -> FetchedPartition:
        """Read one partition of a fetch that waits, as much as it asks for."""


class WaitingProduce(WaitingOperation):
    """A Produce request with acks=all."""

    __slots__ = ("_outcomes", "_pending", "_respond", "_results")

    def __init__(
        self,
        outcomes: PartitionOutcomes,
        results: dict[PartitionId, ProducedPartition],
        required: Mapping[PartitionId, int],
        deadline_ms: float,
        respond: Callable[[dict[PartitionId, ProducedPartition]], None],
    ) -> None:
        """``required``: the end offset of each appended batch; ``results``: all partitions."""
        super().__init__(required, deadline_ms)
        self._outcomes = outcomes
        self._results = results
        self._pending = dict(required)
        self._respond = respond

    def is_satisfied(self, changed: PartitionId) -> bool:
        required = self._pending.get(changed)
        if required is not None:
            error = self._outcomes.acknowledgement(changed, required)
            if error is not None:
                del self._pending[changed]
                if error:
                    self._results[changed] = ProducedPartition(error)
        return not self._pending

    def end(self, now_ms: float) -> None:
        for id in self._pending:
            self._results[id] = ProducedPartition(REQUEST_TIMED_OUT)
        self._respond(self._results)


class WaitingDelete(WaitingOperation):
    """A DeleteRecords request."""

    __slots__ = ("_outcomes", "_pending", "_respond", "_results")

    def __init__(
        self,
        outcomes: PartitionOutcomes,
        results: dict[PartitionId, DeletedRecords],
        requested: Mapping[PartitionId, int],
        deadline_ms: float,
        respond: Callable[[dict[PartitionId, DeletedRecords]], None],
    ) -> None:
        super().__init__(requested, deadline_ms)
        self._outcomes = outcomes
        self._results = results
        self._pending = dict(requested)
        self._respond = respond

    def is_satisfied(self, changed: PartitionId) -> bool:
        requested = self._pending.get(changed)
        if requested is not None:
            outcome = self._outcomes.deletion(changed, requested)
            if outcome is not None:
                del self._pending[changed]
                self._results[changed] = outcome
        return not self._pending

    def end(self, now_ms: float) -> None:
        for id in self._pending:
            self._results[id] = DeletedRecords(REQUEST_TIMED_OUT)
        self._respond(self._results)


class WaitingRead(WaitingOperation):
    """A Fetch request with less than ``min_bytes`` to return."""

    __slots__ = ("_fetches", "_missing", "_outcomes", "_request", "_respond", "_sizes")

    def __init__(
        self,
        outcomes: FetchOutcomes,
        request: BrokerFetchRequest,
        fetches: Sequence[FetchPartition],
        sizes: Mapping[PartitionId, int],
        deadline_ms: float,
        respond: Callable[[float], None],
    ) -> None:
        """``sizes``: the bytes that were readable at first, of partitions with any."""
        self._fetches = {fetch.id: fetch for fetch in fetches}
        super().__init__(self._fetches, deadline_ms)
        self._outcomes = outcomes
        self._request = request
        self._respond = respond
        self._sizes = dict(sizes)
        self._missing = request.min_bytes - sum(sizes.values())

    def add(self, fetch: FetchPartition) -> bool:
        """Add a partition that had nothing to read; return whether it was not there."""
        if fetch.id in self._fetches:
            return False
        self._fetches[fetch.id] = fetch
        return True

    def is_satisfied(self, changed: PartitionId) -> bool:
        """Return whether there are enough bytes, or an error or diverging epoch to report."""
        now = self._outcomes.read_again(self._request, self._fetches[changed])
        if now.error or now.diverging_epoch is not None:
            return True
        self._missing -= now.size - self._sizes.get(changed, 0)
        self._sizes[changed] = now.size
        return self._missing <= 0

    def end(self, now_ms: float) -> None:
        self._respond(now_ms)
