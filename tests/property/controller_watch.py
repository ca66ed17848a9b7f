"""How a controller is watched: which request had its turn, and what it does of its own accord."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraft.controller.event_queue import EventQueue
from kraft.controller.operations import Operation, Outcome, Tip
from kraft.records import Record
from tests.reference.controller_brokers_twin import Outcome as TwinOutcome
from tests.reference.controller_brokers_twin import Placed


@dataclass
class Command:
    """One request to both; ``normal`` puts a real response into the twin's words."""

    operation: Operation
    decide: Callable[[], TwinOutcome]
    normal: Callable[[Any], Any]
    deadline_ms: float = float("inf")


@dataclass
class OpenTransaction:
    command: Command
    response: Any
    left: list[Record | Placed]
    since_ms: float
    has_begun: bool = False


class WatchedQueue(EventQueue[Operation]):
    """Notes when what the controller does of its own accord is due, and that it is done."""

    def __init__(self, decided: list[Any]) -> None:
        super().__init__()
        self.due: dict[str, float] = {}
        self._decided = decided

    def schedule(self, tag: str, at_ms: float, make: Callable[[], Operation]) -> None:
        self.due[tag] = at_ms

        def watched() -> Operation:
            operation = make()
            decide = operation.decide

            def noted(tip: Tip) -> Outcome:
                self._decided.append(tag)
                return decide(tip)

            operation.decide = noted
            return operation

        super().schedule(tag, at_ms, watched)
