"""Guarded operations: look at the state against which a controller decides an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.controller.decision import Decision
from kraft.controller.runtime.operations import DecisionContext, Operation, OperationResult

Guard = Callable[[DecisionContext, Any], None]


def guarded(operation: Operation, guard: Guard) -> Operation:
    """Call ``guard`` with the state that an operation is decided against, and its response.

    It is not called if the operation is rejected as a whole. Returns the operation.
    """
    decide = operation.decide

    def decide_and_look(context: DecisionContext) -> OperationResult:
        outcome = decide(context)
        guard(context, outcome.response if isinstance(outcome, Decision) else None)
        return outcome

    operation.decide = decide_and_look
    return operation
