"""Linearizability: whether concurrent operations on one object are equal to some serial order.

The search is Wing and Gong's, with remembered dead ends (Lowe): an order is possible if no
operation comes before another one that ended before it began. An operation of unknown outcome (a
timeout, a lost connection, NOT_CONTROLLER) may have happened at any later time, or never. `clients`
passes one history for each key, as the objects are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

_NEVER = float("inf")
#: The result of a step whose outcome is impossible.
IMPOSSIBLE: Any = object()


@dataclass(slots=True)
class Call:
    """One operation, requested at ``start`` and answered with ``outcome`` at ``end``.

    ``outcome`` None: unknown; ``end`` is infinite then.
    """

    kind: str
    given: Hashable
    start: float
    end: float = _NEVER
    outcome: Hashable | None = None

    @property
    def is_known(self) -> bool:
        return self.outcome is not None


#: Return the state after a call, or IMPOSSIBLE if its outcome does not fit the state before.
Step = Callable[[Any, Call], Any]


def is_linearizable(calls: Sequence[Call], step: Step, state: Hashable) -> bool:
    """Return whether some order of the calls explains every known outcome, from ``state`` on."""
    ordered = sorted(calls, key=lambda call: call.start)
    known = sum(1 << number for number, call in enumerate(ordered) if call.is_known)
    stack: list[tuple[int, Any]] = [(0, state)]
    seen = {(0, state)}
    while stack:
        done, state = stack.pop()
        if done & known == known:
            return True
        # The next call began before every other remaining call had ended.
        horizon = min(call.end for number, call in enumerate(ordered) if not done >> number & 1)
        for number, call in enumerate(ordered):
            if done >> number & 1:
                continue
            if call.start > horizon:
                break
            after = step(state, call)
            if after is IMPOSSIBLE or (not call.is_known and after == state):
                continue
            following = (done | 1 << number, after)
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return False


def topic_step(state: Any, call: Call) -> Any:
    """Apply a call to a topic name; ``state`` is None, or (id, number of partitions).

    Outcomes: done, exists, absent, few (a topic does not shrink), or ("read", state).
    """
    outcome = call.outcome
    if call.kind == "create":
        if state is None:
            return call.given if outcome in (None, "done") else IMPOSSIBLE
        return state if outcome in (None, "exists") else IMPOSSIBLE
    if call.kind == "delete":
        if state is None:
            return None if outcome in (None, "absent") else IMPOSSIBLE
        return None if outcome in (None, "done") else IMPOSSIBLE
    if call.kind == "grow":
        if state is None:
            return None if outcome in (None, "absent") else IMPOSSIBLE
        if call.given <= state[1]:
            return state if outcome in (None, "few") else IMPOSSIBLE
        return (state[0], call.given) if outcome in (None, "done") else IMPOSSIBLE
    assert call.kind == "read"
    return state if outcome in (None, ("read", state)) else IMPOSSIBLE


def value_step(state: Any, call: Call) -> Any:
    """Apply a call to a configuration; ``state`` is its value, or None if it is not set."""
    if call.kind == "set":
        return call.given
    assert call.kind == "read"
    return state if call.outcome in (None, ("read", state)) else IMPOSSIBLE


def without_unread_sets(calls: Sequence[Call]) -> list[Call]:
    """Leave out the sets of unknown outcome whose value no read returned.

    No read can stand between such a set and the next one, so that an order without it explains as
    much. With it the search doubles for each of them: a seed with a few dozen never ended.
    """
    read = {call.outcome[1] for call in calls if isinstance(call.outcome, tuple)}
    return [call for call in calls if call.kind == "read" or call.is_known or call.given in read]
