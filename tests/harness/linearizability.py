"""Decide whether a history of concurrent operations is linearizable.

A history is linearizable if each operation can be placed at one moment between its invocation and
its response, so that the results are those of a sequential object (Herlihy and Wing). The check
follows the events in order of time and keeps every configuration that explains the responses so
far: a state, and the operations that have taken effect without having responded (Wing and Gong's
search, in the just-in-time order of Lowe's).

An operation without a response may take effect at any later moment, or never. `check` needs one
object's history; histories of independent objects are checked one by one, as linearizability is
local.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

#: More configurations than this end the search with an error: the history is too concurrent.
MOST_CONFIGURATIONS = 200_000


class Operation(NamedTuple):
    """One operation on an object: ``result`` is None where no response told the outcome."""

    invoked: float
    responded: float
    kind: str
    argument: Any
    result: Any

    @property
    def is_open(self) -> bool:
        return self.result is None


class Model(Protocol):
    """A sequential object."""

    initial: Hashable

    def step(self, state: Any, operation: Operation) -> tuple[Hashable, ...]:
        """Return the state after the operation with its result; empty where it is impossible.

        An open operation has any result; its steps that leave the state as it is may be omitted.
        """
        ...


@dataclass(frozen=True, slots=True)
class Violation:
    """The first response that no order of the operations explains."""

    operation: Operation
    states: tuple[Hashable, ...]

    def __str__(self) -> str:
        states = ", ".join(map(str, self.states))
        return f"{self.operation} is impossible; the object was in one of: {states}"


class _Configuration(NamedTuple):
    """One explanation of the responses so far.

    ``answered`` are operations that have taken effect and will respond, ``open`` those that have
    taken effect and never respond.
    """

    state: Any
    answered: frozenset[int]
    open: frozenset[int]


def check(operations: Iterable[Operation], model: Model) -> Violation | None:
    """Return the first violation, or None for a linearizable history. Raises OverflowError."""
    history = list(operations)
    configurations = [_Configuration(model.initial, frozenset(), frozenset())]
    called: list[int] = []
    for _, is_response, number in _events(history):
        if not is_response:
            called.append(number)
            continue
        reached = _explain(configurations, history, called, number, model)
        if not reached:
            states = sorted({str(each.state) for each in configurations})
            return Violation(history[number], tuple(states[:10]))
        called.remove(number)
        configurations = [each._replace(answered=each.answered - {number}) for each in reached]
    return None


def _events(history: Sequence[Operation]) -> list[tuple[float, bool, int]]:
    """Return (time, whether it is a response, operation) in order; invocations come first."""
    calls = [(each.invoked, False, number) for number, each in enumerate(history)]
    responses = [
        (each.responded, True, number) for number, each in enumerate(history) if not each.is_open
    ]
    return sorted(calls + responses)


def _explain(
    configurations: Sequence[_Configuration],
    history: Sequence[Operation],
    called: Sequence[int],
    responding: int,
    model: Model,
) -> list[_Configuration]:
    """Return the configurations in which the responding operation has taken effect.

    Those with fewer open operations are visited first. A configuration that differs from a visited
    one only by more open operations is left out: whatever follows it follows the other too.
    """
    reached = []
    #: (state, answered) -> the sets of open operations with which it was visited.
    visited: dict[tuple[Any, frozenset[int]], list[frozenset[int]]] = {}
    count = 0
    levels: dict[int, list[_Configuration]] = {}
    for each in configurations:
        levels.setdefault(len(each.open), []).append(each)
    while levels:
        level = min(levels)
        waiting = levels.pop(level)
        while waiting:
            here = waiting.pop()
            sets = visited.setdefault((here.state, here.answered), [])
            if any(smaller <= here.open for smaller in sets):
                continue
            sets.append(here.open)
            count += 1
            if count > MOST_CONFIGURATIONS:
                raise OverflowError(f"over {MOST_CONFIGURATIONS} configurations")
            if responding in here.answered:
                reached.append(here)
                continue
            for number in called:
                if number in here.answered or number in here.open:
                    continue
                for state in model.step(here.state, history[number]):
                    if not history[number].is_open:
                        waiting.append(
                            here._replace(state=state, answered=here.answered | {number})
                        )
                    else:
                        found = here._replace(state=state, open=here.open | {number})
                        levels.setdefault(level + 1, []).append(found)
    return reached


class Topic(NamedTuple):
    """The state of a topic; an id that no response told is the argument of its creation."""

    id: str
    partitions: int


class TopicModel:
    """A topic name: None without the topic, else a `Topic`.

    | kind | argument | results |
    |---|---|---|
    | create | (a placeholder id, partitions) | ("ok", id), ("exists",) |
    | delete | None | ("ok", id), ("unknown",) |
    | extend | the new number of partitions | ("ok",), ("invalid",), ("unknown",) |
    | read | None | ("ok", a Topic or None) |
    """

    initial = None

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        #: Ids that the response to a creation told: no open creation made them.
        self._told = {
            each.result[1]
            for each in operations
            if each.kind == "create" and each.result and each.result[0] == "ok"
        }

    def step(self, state: Topic | None, operation: Operation) -> tuple[Topic | None, ...]:
        result = operation.result
        if operation.kind == "create":
            placeholder, partitions = operation.argument
            if state is not None:
                return (state,) if result == ("exists",) else ()
            if result is None:
                return (Topic(placeholder, partitions),)
            return (Topic(result[1], partitions),) if result[0] == "ok" else ()
        if operation.kind == "delete":
            if state is None:
                return (None,) if result == ("unknown",) else ()
            if result is None:
                return (None,)
            return (None,) if result[0] == "ok" and self._is_id(state, result[1]) else ()
        if operation.kind == "extend":
            return self._extend(state, operation.argument, result)
        assert operation.kind == "read", operation
        seen = result[1]
        if state is None or seen is None:
            return (state,) if state is seen else ()
        same = self._is_id(state, seen.id) and state.partitions == seen.partitions
        return (state,) if same else ()

    def _extend(
        self, state: Topic | None, total: int, result: tuple[str, ...] | None
    ) -> tuple[Topic | None, ...]:
        if state is None:
            return (None,) if result == ("unknown",) else ()
        if state.partitions >= total:
            return (state,) if result == ("invalid",) else ()
        return (Topic(state.id, total),) if result in (None, ("ok",)) else ()

    def _is_id(self, state: Topic, told: str) -> bool:
        """Return whether the topic may have this id; a placeholder stands for any untold one."""
        return state.id == told or (state.id.startswith("?") and told not in self._told)


class RegisterModel:
    """A register: ``write`` of an argument with the result ("ok",), ``read`` with ("ok", value)."""

    initial = None

    def step(self, state: Any, operation: Operation) -> tuple[Any, ...]:
        if operation.kind == "write":
            return (operation.argument,)
        assert operation.kind == "read", operation
        return (state,) if operation.result[1] == state else ()
