"""Whether a history of operations on one object could have happened one after the other.

Owns the search of Wing and Gong with remembered dead ends (Lowe): operations may be put in any
order in which none comes before another that had ended when it began. An operation whose outcome
nobody knows (a timeout, a lost connection, NOT_CONTROLLER) may have happened at any later time, or
never. Pure; fed by `clients` with one history for each key, as the objects do not depend on each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

_NEVER = float("inf")
#: What a step gives where the outcome cannot be.
IMPOSSIBLE: Any = object()


@dataclass(slots=True)
class Call:
    """One operation: asked at ``start``, answered with ``outcome`` at ``end``.

    ``outcome`` None: not known, and ``end`` is then infinite.
    """

    kind: str
    given: Hashable
    start: float
    end: float = _NEVER
    outcome: Hashable | None = None

    @property
    def is_known(self) -> bool:
        return self.outcome is not None


#: From a state and a call to the state after it, IMPOSSIBLE where its outcome does not fit.
Step = Callable[[Any, Call], Any]


def is_linearizable(calls: Sequence[Call], step: Step, state: Hashable) -> bool:
    """Whether some order of the calls explains every known outcome, from ``state`` on."""
    ordered = sorted(calls, key=lambda call: call.start)
    known = sum(1 << number for number, call in enumerate(ordered) if call.is_known)
    stack: list[tuple[int, Any]] = [(0, state)]
    seen = {(0, state)}
    while stack:
        done, state = stack.pop()
        if done & known == known:
            return True
        # What begins after another that is still to come has ended cannot be next.
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
    """A topic's name: ``state`` is None, or (id, number of partitions).

    Outcomes: done, exists, absent, few (a topic does not shrink), or what was read in a tuple.
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
    """A configuration: ``state`` is its value, None where it is not set."""
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
