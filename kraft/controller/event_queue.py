"""What waits for the controller, and in which order its turn comes.

Owns its lanes and the calendar, not what the events do: `QuorumController` takes one event at a
time and runs it to its end. First come heartbeats, so that no work, however much of it there is,
lets a healthy broker's session run out (KAFKA-15019, KAFKA-17793); then whatever was put in front
(the rest of work that is cut in pieces); then what the calendar says is due; then the others as
they came. An event whose deadline passes while it waits is given back by `take_expired` and never
run. Sources: Kafka's ``KafkaEventQueue`` (append, prepend, deadlines, deferred events by tag),
``QuorumController.ControllerWriteEvent``.

Invariants: an event is handed out once; of two events in a lane the earlier goes first; a tag has
at most one place in the calendar. Pure: time is passed in, in milliseconds.
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
class Waiting(Generic[E]):
    """An event with the time at which it came (or was due) and the one at which it is too late."""

    event: E
    since_ms: float
    deadline_ms: float = _NEVER
    is_taken: bool = False


@dataclass(slots=True)
class Times:
    """How long something took, over all events: for averages, the worst and percentiles."""

    count: int = 0
    total_ms: float = 0.0
    worst_ms: float = 0.0
    #: How many took less than 2**n microseconds and not less than half of it.
    by_power_of_two_us: list[int] = field(default_factory=lambda: [0] * 40)

    def note(self, taken_ms: float) -> None:
        self.count += 1
        self.total_ms += taken_ms
        self.worst_ms = max(self.worst_ms, taken_ms)
        self.by_power_of_two_us[min(int(taken_ms * 1000).bit_length(), 39)] += 1

    def percentile_ms(self, percent: float) -> float:
        """An upper bound of the percentile, within a factor of two; 0 where nothing was noted."""
        needed = self.count * percent / 100
        for power, number in enumerate(self.by_power_of_two_us):
            needed -= number
            if needed <= 0 and self.count:
                return min((1 << power) / 1000, self.worst_ms)
        return 0.0


class EventQueue(Generic[E]):
    """See the module's docstring."""

    def __init__(self) -> None:
        self._heartbeats: deque[Waiting[E]] = deque()
        self._held: deque[Waiting[E]] = deque()
        self._front: deque[Waiting[E]] = deque()
        self._others: deque[Waiting[E]] = deque()
        #: When something is due: (time, order of arrival, tag); those whose tag has another time
        #: by now are passed over.
        self._calendar: list[tuple[float, int, str]] = []
        self._due: dict[str, tuple[float, int, Callable[[], E]]] = {}
        self._deadlines: list[tuple[float, int, Waiting[E]]] = []
        self._order = count()

    def append(self, event: E, now_ms: float, *, deadline_ms: float = _NEVER) -> None:
        """The event comes after all others of its kind."""
        self._others.append(self._waiting(event, now_ms, deadline_ms))

    def append_heartbeat(self, event: E, now_ms: float, *, deadline_ms: float = _NEVER) -> None:
        """The event comes before everything but earlier heartbeats."""
        self._heartbeats.append(self._waiting(event, now_ms, deadline_ms))

    def prepend(self, event: E, now_ms: float, *, deadline_ms: float = _NEVER) -> None:
        """The event comes before everything but heartbeats."""
        self._front.appendleft(self._waiting(event, now_ms, deadline_ms))

    def hold(self, waiting: Waiting[E]) -> None:
        """An event that was taken and may not be run yet: it waits for `release_held`."""
        assert waiting.is_taken
        waiting.is_taken = False
        self._held.append(waiting)
        self._note_deadline(waiting)

    def release_held(self) -> None:
        """What was held comes first of all, in its order."""
        self._heartbeats.extendleft(reversed(self._held))
        self._held.clear()

    def schedule(self, tag: str, at_ms: float, make: Callable[[], E]) -> None:
        """At ``at_ms`` the event that ``make`` gives is due; instead of what the tag had before."""
        entry = (at_ms, next(self._order), make)
        self._due[tag] = entry
        heapq.heappush(self._calendar, (*entry[:2], tag))

    def cancel(self, tag: str) -> None:
        """Nothing is due under this tag any more."""
        self._due.pop(tag, None)

    def take_expired(self, now_ms: float) -> Iterator[Waiting[E]]:
        """The events whose deadline has passed, each once; they are out of the queue."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            waiting = heapq.heappop(self._deadlines)[2]
            if not waiting.is_taken:
                waiting.is_taken = True
                yield waiting

    def take_heartbeat(self) -> Waiting[E] | None:
        """The next heartbeat alone, for times when nothing else may run."""
        return _first(self._heartbeats)

    def take(self, now_ms: float) -> Waiting[E] | None:
        """The next event; None where none is due. Those that have expired are passed over."""
        waiting = _first(self._heartbeats) or _first(self._front)
        if waiting is not None:
            return waiting
        while self._calendar and self._calendar[0][0] <= now_ms:
            at_ms, order, tag = heapq.heappop(self._calendar)
            due = self._due.get(tag)
            if due is not None and due[:2] == (at_ms, order):
                del self._due[tag]
                return Waiting(due[2](), at_ms, is_taken=True)
        return _first(self._others)

    def take_all(self) -> Iterator[Waiting[E]]:
        """Everything that waits, heartbeats first; nothing is left, in the calendar either."""
        self._due.clear()
        self._calendar.clear()
        for lane in (self._held, self._heartbeats, self._front, self._others):
            while (waiting := _first(lane)) is not None:
                yield waiting
        self._deadlines.clear()

    def has_heartbeats(self) -> bool:
        return _is_anything_in(self._heartbeats)

    def wake_at_ms(self) -> float:
        """When there is something to do: minus infinity where it is now."""
        for lane in (self._heartbeats, self._front, self._others):
            if _is_anything_in(lane):
                return -_NEVER
        return min(self._next_due_ms(), self.next_deadline_ms())

    def next_deadline_ms(self) -> float:
        """When the next of those that wait expires."""
        while self._deadlines and self._deadlines[0][2].is_taken:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else _NEVER

    def __len__(self) -> int:
        lanes = (self._held, self._heartbeats, self._front, self._others)
        return sum(not waiting.is_taken for lane in lanes for waiting in lane)

    def _next_due_ms(self) -> float:
        while self._calendar:
            at_ms, order, tag = self._calendar[0]
            due = self._due.get(tag)
            if due is not None and due[:2] == (at_ms, order):
                return at_ms
            heapq.heappop(self._calendar)
        return _NEVER

    def _waiting(self, event: E, now_ms: float, deadline_ms: float) -> Waiting[E]:
        waiting = Waiting(event, now_ms, deadline_ms)
        self._note_deadline(waiting)
        return waiting

    def _note_deadline(self, waiting: Waiting[E]) -> None:
        if waiting.deadline_ms < _NEVER:
            entry = (waiting.deadline_ms, next(self._order), waiting)
            heapq.heappush(self._deadlines, entry)


def _first(lane: deque[Waiting[E]]) -> Waiting[E] | None:
    while lane:
        waiting = lane.popleft()
        if not waiting.is_taken:
            waiting.is_taken = True
            return waiting
    return None


def _is_anything_in(lane: deque[Waiting[E]]) -> bool:
    while lane and lane[0].is_taken:
        lane.popleft()
    return bool(lane)
