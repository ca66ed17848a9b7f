"""The controller's event queue: lanes in a fixed order, timers and deadlines.

The order is: heartbeats first, so that no amount of other work lets the session of a healthy broker
expire (KAFKA-15019, KAFKA-17793); then prepended events (the next chunk of large work); then due
timers; then all others, first in, first out. `take_expired` returns each event whose deadline
passes in the queue; it is never run. `QuorumController` takes one event at a time and runs it to
completion. Sources: Kafka's ``KafkaEventQueue`` (append, prepend, deadlines, deferred events by
tag), ``QuorumController.ControllerWriteEvent``.

Invariants: an event is returned once; within a lane the earlier event goes first; a tag has at most
one timer. Pure: the caller passes the time in milliseconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

E = TypeVar("E")

_NEVER = float("inf")


@dataclass(slots=True)
class QueuedEvent(Generic[E]):
    """An event, the time at which it was queued (or was due), and its deadline.

    ``broker_id`` is the broker of a heartbeat, else None.
    """

    event: E
    since_ms: float
    deadline_ms: float = _NEVER
    is_taken: bool = False
    broker_id: int | None = None


@dataclass(slots=True)
class DurationHistogram:
    """Durations of all events of a kind: count, total, maximum and percentiles."""

    count: int = 0
    total_ms: float = 0.0
    worst_ms: float = 0.0
    #: Number of durations from 2**(n-1) to below 2**n microseconds.
    by_power_of_two_us: list[int] = field(default_factory=lambda: [0] * 40)

    def note(self, taken_ms: float) -> None:
        self.count += 1
        self.total_ms += taken_ms
        if taken_ms > self.worst_ms:
            self.worst_ms = taken_ms
        power = int(taken_ms * 1000).bit_length()
        self.by_power_of_two_us[power if power < 39 else 39] += 1

    def percentile_ms(self, percent: float) -> float:
        """Return the percentile, rounded up to at most its double; 0 without durations."""
        needed = self.count * percent / 100
        for power, number in enumerate(self.by_power_of_two_us):
            needed -= number
            if needed <= 0 and self.count:
                return min((1 << power) / 1000, self.worst_ms)
        return 0.0


class EventQueue(Generic[E]):
    """A queue of events; the module's docstring describes the order."""

    def __init__(self) -> None:
        self._heartbeats: deque[QueuedEvent[E]] = deque()
        self._held: deque[QueuedEvent[E]] = deque()
        self._front: deque[QueuedEvent[E]] = deque()
        self._others: deque[QueuedEvent[E]] = deque()
        #: How many heartbeats of each broker wait, held ones included; brokers without one are left
        #: out.
        self._heartbeat_counts: dict[int, int] = {}
        #: Timers: (due time, order of arrival, tag). An entry is stale if its tag has another time
        #: in `_due`.
        self._timers: list[tuple[float, int, str]] = []
        self._due: dict[str, tuple[float, int, Callable[[], E]]] = {}
        self._deadlines: list[tuple[float, int, QueuedEvent[E]]] = []
        self._order = count()

    def append(self, event: E, now_ms: float, *, deadline_ms: float = _NEVER) -> None:
        """Queue the event after all others of its kind."""
        self._others.append(self._waiting(event, now_ms, deadline_ms))

    def append_heartbeat(
        self, event: E, broker_id: int, now_ms: float, *, deadline_ms: float = _NEVER
    ) -> None:
        """Queue a broker's heartbeat before everything but earlier heartbeats."""
        waiting = self._waiting(event, now_ms, deadline_ms)
        waiting.broker_id = broker_id
        self._count_heartbeat(waiting, 1)
        self._heartbeats.append(waiting)

    def prepend(self, event: E, now_ms: float, *, deadline_ms: float = _NEVER) -> None:
        """Queue the event before everything but heartbeats."""
        self._front.appendleft(self._waiting(event, now_ms, deadline_ms))

    def hold(self, waiting: QueuedEvent[E]) -> None:
        """Put back an event that was taken but may not run yet; `release_held` queues it again."""
        assert waiting.is_taken
        waiting.is_taken = False
        self._count_heartbeat(waiting, 1)
        self._held.append(waiting)
        self._note_deadline(waiting)

    def release_held(self) -> None:
        """Queue the held events before all others, in their order."""
        self._heartbeats.extendleft(reversed(self._held))
        self._held.clear()

    def schedule(self, tag: str, at_ms: float, make: Callable[[], E]) -> None:
        """Set the timer of ``tag``: at ``at_ms``, `take` returns the event that ``make`` creates.
        It replaces an earlier timer.
        """
        entry = (at_ms, next(self._order), make)
        self._due[tag] = entry
        heapq.heappush(self._timers, (*entry[:2], tag))

    def cancel(self, tag: str) -> None:
        """Cancel the timer of this tag, if there is one."""
        self._due.pop(tag, None)

    def take_expired(self, now_ms: float) -> Iterator[QueuedEvent[E]]:
        """Remove and return the events whose deadline has passed, each once."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            waiting = heapq.heappop(self._deadlines)[2]
            if not waiting.is_taken:
                waiting.is_taken = True
                self._count_heartbeat(waiting, -1)
                yield waiting

    def take_heartbeat(self) -> QueuedEvent[E] | None:
        """Take the next heartbeat; for times when no other event may run."""
        return self._first(self._heartbeats)

    def take(self, now_ms: float) -> QueuedEvent[E] | None:
        """Take the next event; None if there is none. Expired events are skipped."""
        waiting = self._first(self._heartbeats) or self._first(self._front)
        if waiting is not None:
            return waiting
        while self._timers and self._timers[0][0] <= now_ms:
            at_ms, order, tag = heapq.heappop(self._timers)
            due = self._due.get(tag)
            if due is not None and due[:2] == (at_ms, order):
                del self._due[tag]
                return QueuedEvent(due[2](), at_ms, is_taken=True)
        return self._first(self._others)

    def take_all(self) -> Iterator[QueuedEvent[E]]:
        """Remove and return all queued events, heartbeats first; clears the timers too."""
        self._due.clear()
        self._timers.clear()
        for lane in (self._held, self._heartbeats, self._front, self._others):
            while (waiting := self._first(lane)) is not None:
                yield waiting
        self._deadlines.clear()

    def has_heartbeat(self, broker_id: int) -> bool:
        """Return whether a heartbeat of this broker is queued or held."""
        return broker_id in self._heartbeat_counts

    def wake_at_ms(self) -> float:
        """Return the time of the next event; minus infinity if one is ready now."""
        for lane in (self._heartbeats, self._front, self._others):
            if _has_events(lane):
                return -_NEVER
        return min(self._next_due_ms(), self.next_deadline_ms())

    def next_deadline_ms(self) -> float:
        """Return the earliest deadline of the queued events."""
        while self._deadlines and self._deadlines[0][2].is_taken:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else _NEVER

    def __len__(self) -> int:
        lanes = (self._held, self._heartbeats, self._front, self._others)
        return sum(not waiting.is_taken for lane in lanes for waiting in lane)

    def _next_due_ms(self) -> float:
        while self._timers:
            at_ms, order, tag = self._timers[0]
            due = self._due.get(tag)
            if due is not None and due[:2] == (at_ms, order):
                return at_ms
            heapq.heappop(self._timers)
        return _NEVER

    def _waiting(self, event: E, now_ms: float, deadline_ms: float) -> QueuedEvent[E]:
        waiting = QueuedEvent(event, now_ms, deadline_ms)
        self._note_deadline(waiting)
        return waiting

    def _first(self, lane: deque[QueuedEvent[E]]) -> QueuedEvent[E] | None:
        while lane:
            waiting = lane.popleft()
            if not waiting.is_taken:
                waiting.is_taken = True
                self._count_heartbeat(waiting, -1)
                return waiting
        return None

    def _count_heartbeat(self, waiting: QueuedEvent[E], change: int) -> None:
        """Count an event that begins or ceases to wait, if it is a broker's heartbeat."""
        id = waiting.broker_id
        if id is None:
            return
        count = self._heartbeat_counts.get(id, 0) + change
        if count:
            self._heartbeat_counts[id] = count
        else:
            del self._heartbeat_counts[id]

    def _note_deadline(self, waiting: QueuedEvent[E]) -> None:
        if waiting.deadline_ms < _NEVER:
            entry = (waiting.deadline_ms, next(self._order), waiting)
            heapq.heappush(self._deadlines, entry)


def _has_events(lane: deque[QueuedEvent[E]]) -> bool:
    while lane and lane[0].is_taken:
        lane.popleft()
    return bool(lane)
