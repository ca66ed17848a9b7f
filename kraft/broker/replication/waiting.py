"""Waiting operations: requests that wait for changes of partitions, each with a deadline.

A `WaitingOperation` watches partitions; the caller reports each change by `changed`. It ends when
it is satisfied or at its deadline, once. Kafka's ``DelayedOperationPurgatory`` without its timer
wheel: deadlines are a heap, from which ended operations are dropped when they are reached, or when
they are the majority.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from kraft.broker.replication.messages import PartitionId

#: Ended operations in the heap are removed when there are more of them than this and than others.
MAX_ENDED = 1000


class WaitingOperation(ABC):
    """A request that waits; ``watched`` are its partitions."""

    __slots__ = ("deadline_ms", "is_ended", "watched")

    def __init__(self, watched: Iterable[PartitionId], deadline_ms: float) -> None:
        self.watched = list(watched)
        self.deadline_ms = deadline_ms
        self.is_ended = False

    @abstractmethod
    def is_satisfied(self, changed: PartitionId) -> bool:
        """Note a change of one watched partition; return whether the operation can end."""

    @abstractmethod
    def end(self, now_ms: float) -> None:
        """Answer the request: it is satisfied, or its time is over."""


class WaitingOperations:
    """The waiting operations of one kind."""

    __slots__ = ("_deadlines", "_order", "_watchers", "count")

    def __init__(self) -> None:
        self._watchers: dict[PartitionId, dict[int, WaitingOperation]] = {}
        self._deadlines: list[tuple[float, int, WaitingOperation]] = []
        self._order = 0
        #: The operations that wait.
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def wake_at_ms(self) -> float:
        """The earliest deadline, infinity without one."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].is_ended:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else float("inf")

    def is_watched(self, partition: PartitionId) -> bool:
        return partition in self._watchers

    def add(self, operation: WaitingOperation) -> None:
        self._order += 1
        for partition in operation.watched:
            self._watchers.setdefault(partition, {})[id(operation)] = operation
        heappush(self._deadlines, (operation.deadline_ms, self._order, operation))
        self.count += 1

    def watch(self, operation: WaitingOperation, partition: PartitionId) -> None:
        """Let an operation that waits watch another partition."""
        operation.watched.append(partition)
        self._watchers.setdefault(partition, {})[id(operation)] = operation

    def changed(self, partition: PartitionId, now_ms: float) -> None:
        """End the operations that a change of ``partition`` satisfies."""
        watchers = self._watchers.get(partition)
        if watchers:
            for operation in list(watchers.values()):
                if not operation.is_ended and operation.is_satisfied(partition):
                    self._end(operation, now_ms)

    def expire(self, now_ms: float) -> None:
        """End the operations whose deadline has passed."""
        while self.wake_at_ms <= now_ms:
            self._end(heappop(self._deadlines)[2], now_ms)

    def _end(self, operation: WaitingOperation, now_ms: float) -> None:
        operation.is_ended = True
        self.count -= 1
        for partition in operation.watched:
            watchers = self._watchers.get(partition)
            if watchers is not None:
                watchers.pop(id(operation), None)
                if not watchers:
                    del self._watchers[partition]
        deadlines = self._deadlines
        if len(deadlines) > MAX_ENDED + 2 * self.count:
            self._deadlines = [entry for entry in deadlines if not entry[2].is_ended]
            heapify(self._deadlines)
        operation.end(now_ms)
