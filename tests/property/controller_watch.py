"""Record a controller's work: which requests it decided, and its periodic tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraft.controller.runtime.event_queue import EventQueue
from kraft.controller.runtime.operations import DecisionContext, Operation, OperationResult
from kraft.records import Record
from tests.reference.controller_brokers_twin import Placed, TwinDecision


@dataclass
class Command:
    """One request to controller and twin; ``normal`` converts a response to the twin's form."""

    operation: Operation
    decide: Callable[[], TwinDecision]
    normal: Callable[[Any], Any]
    deadline_ms: float = float("inf")


@dataclass
class OpenTransaction:
    command: Command
    response: Any
    left: list[Record | Placed]
    since_ms: float
    has_begun: bool = False
    #: Whether more than one chunk may have records.
    is_large: bool = False


class WatchedQueue(EventQueue[Operation]):
    """An event queue that records when periodic tasks are due and done."""

    def __init__(self, decided: list[Any]) -> None:
        super().__init__()
        self.due: dict[str, float] = {}
        self._decided = decided

    def schedule(self, tag: str, at_ms: float, make: Callable[[], Operation]) -> None:
        self.due[tag] = at_ms

        def watched() -> Operation:
            operation = make()
            decide = operation.decide

            def noted(context: DecisionContext) -> OperationResult:
                self._decided.append(tag)
                return decide(context)

            operation.decide = noted
            return operation

        super().schedule(tag, at_ms, watched)
