"""Fetch purgatory: fetches that found nothing new and wait for it (KIP-595's long poll)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from kraft.raft.rpc import FetchRequest


class WaitingFetch(NamedTuple):
    """A fetch that waits for new records, or a higher high watermark, until its deadline."""

    request: FetchRequest
    deadline_ms: float


class FetchPurgatory:
    """The waiting fetches of a leader; a step costs nothing for those that go on waiting."""

    __slots__ = ("_deadlines", "waiting")

    def __init__(self) -> None:
        #: The waiting fetches by ``reply_to``.
        self.waiting: dict[int, WaitingFetch] = {}
        #: A heap of (deadline, reply_to). Entries of answered fetches may remain in it.
        self._deadlines: list[tuple[float, int]] = []

    def add(self, reply_to: int, request: FetchRequest, deadline_ms: float) -> None:
        self.waiting[reply_to] = WaitingFetch(request, deadline_ms)
        heapq.heappush(self._deadlines, (deadline_ms, reply_to))

    def pop(self, reply_to: int) -> FetchRequest | None:
        """Remove a fetch and return it; None if it does not wait any more."""
        waiting = self.waiting.pop(reply_to, None)
        return None if waiting is None else waiting.request

    def with_records_before(self, end_offset: int) -> list[int]:
        """Return the fetches whose offset is before ``end_offset``."""
        return [
            reply_to
            for reply_to, waiting in self.waiting.items()
            if waiting.request.offset < end_offset
        ]

    @property
    def next_deadline_ms(self) -> float:
        """The deadline of the next fetch; infinity if none waits."""
        deadlines, waiting = self._deadlines, self.waiting
        if not waiting:
            deadlines.clear()
        while deadlines and deadlines[0][1] not in waiting:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else float("inf")

    def pop_late(self, now_ms: float) -> Iterator[tuple[int, FetchRequest]]:
        """Remove the fetches whose deadline has passed, and yield them in its order."""
        while self.next_deadline_ms <= now_ms:
            _, reply_to = heapq.heappop(self._deadlines)
            yield reply_to, self.waiting.pop(reply_to).request
