"""Deadlines by key: when the earliest one is due, without callbacks.

A key is scheduled once; scheduling it again replaces its deadline. The heap has one entry a key: a
later deadline (each heartbeat makes one) stays in the dict until the entry's turn comes, so that a
heartbeat costs no heap operation and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)


class _Scheduled(NamedTuple):
    """The deadline of a key, and its entry in the heap, whose deadline is not later."""

    deadline_ms: int
    number: int
    detail: object
    entry_deadline_ms: int
    entry_number: int


class Timers(Generic[Key]):
    """A set of keys with deadlines; equal deadlines are due in the order of scheduling."""

    __slots__ = ("_count", "_heap", "_scheduled")

    def __init__(self) -> None:
        self._scheduled: dict[Key, _Scheduled] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._scheduled)

    def __contains__(self, key: Key) -> bool:
        return key in self._scheduled

    def schedule(self, key: Key, deadline_ms: int, detail: object = None) -> None:
        """Make ``key`` due at this time with ``detail``, instead of any time before."""
        self._count = number = self._count + 1
        before = self._scheduled.get(key)
        if before is not None and deadline_ms >= before.entry_deadline_ms:
            # The entry of the earlier deadline moves when it comes to the top.
            self._scheduled[key] = _Scheduled(
                deadline_ms, number, detail, before.entry_deadline_ms, before.entry_number
            )
        else:
            self._enter(key, deadline_ms, number, detail)

    def _enter(self, key: Key, deadline_ms: int, number: int, detail: object) -> None:
        self._scheduled[key] = _Scheduled(deadline_ms, number, detail, deadline_ms, number)
        heappush(self._heap, (deadline_ms, number, key))

    def cancel(self, key: Key) -> None:
        """Forget ``key``; without effect if it is not scheduled."""
        self._scheduled.pop(key, None)
        # The heap keeps the entry: it is dropped at the top, or here with many others.
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._scheduled):
            kept, self._heap = self._scheduled, []
            self._scheduled = {}
            for key, timer in kept.items():
                self._enter(key, timer.deadline_ms, timer.number, timer.detail)

    def clear(self) -> None:
        """Forget all keys."""
        self._scheduled.clear()
        self._heap.clear()

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, or None if nothing is scheduled."""
        while self._heap:
            deadline_ms, number, key = self._heap[0]
            timer = self._scheduled.get(key)
            if timer is not None and timer.number == number:
                return deadline_ms
            heappop(self._heap)
            if timer is not None and timer.entry_number == number:
                self._enter(key, timer.deadline_ms, timer.number, timer.detail)
        return None

    def pop_due(self, now_ms: int) -> tuple[Key, object] | None:
        """Remove and return the key with the earliest deadline, and its detail, if it is due."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        return key, self._scheduled.pop(key).detail
