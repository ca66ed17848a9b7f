"""The driver: what it does with a step that breaks off."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.raft.ready import Event, Ready
from kraft.server.driver import Driver


class BrokenNode:
    """Its first step fails an assertion."""

    def __init__(self) -> None:
        self.stepped: list[Event] = []

    def step(self, event: Event, now_ms: float) -> Ready:
        self.stepped.append(event)
        raise AssertionError("an invariant is broken")


def test_a_step_that_breaks_off_is_told_to_whoever_ends_the_process() -> None:
    """An event loop would log it, and go on with what is left of the node."""
    node: Any = BrokenNode()
    nothing: Any = None
    told: list[Exception] = []
    driver = Driver(node, nothing, nothing, nothing, on_failure=told.append)
    with pytest.raises(AssertionError, match="an invariant is broken"):
        driver.deliver(None)
    assert [str(error) for error in told] == ["an invariant is broken"]
    assert node.stepped == [None]
