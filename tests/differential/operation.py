"""Operations: draw the arguments, decide on this side, and interpret Kafka's response."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kraft.controller.decision import Decision, decide_whole
from kraft.controller.runtime import operations
from kraft.errors import KraftError
from tests.differential.world import View, World

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Decided:
    """A decision; ``answer`` is JSON, ``random`` the bytes that Kafka has to draw.

    ``applied`` is called once the records are applied.
    """

    decision: Decision[Any] | None
    answer: Any = None
    random: bytes = b""
    applied: Callable[[], None] | None = None


@dataclass
class Outcome:
    """The outcome of an operation on one side.

    A rejected request has neither records nor answer.
    """

    error: int = 0
    message: str = ""
    records: list[bytes] = field(default_factory=list)
    is_atomic: bool = False
    answer: Any = None


class Operation(ABC):
    """A kind of operation. ``weight`` is how often it is drawn, relative to the others."""

    name: ClassVar[str]
    weight: ClassVar[int] = 10

    @abstractmethod
    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        """Draw arguments as JSON; None if the world has nothing to draw them from."""

    @abstractmethod
    def decide(self, world: World, arguments: Arguments) -> Decided:
        """Decide on this side. Raises KraftError if the whole request is rejected."""

    def understood(self, response: Any) -> Any:
        """Convert Kafka's response into the form of ``Decided.answer``."""
        return response


class Request(Operation):
    """An operation that a client or broker sends; a `QuorumController` takes it as well."""

    @abstractmethod
    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        """Return the request of ``kraft.controller.runtime.requests`` with these arguments."""

    def answer(self, response: Any) -> Any:
        """Return the JSON of the response that the request was answered with."""
        return None

    def refusal(self, error: KraftError) -> Any:
        """Return the answer in which Kafka puts this error; None if the whole request fails."""
        return None

    def random(self, world: View, response: Any, drawn: bytes) -> bytes:
        """Return the bytes that Kafka draws.

        ``response`` is None if the request was rejected, ``drawn`` is what this side drew.
        """
        return drawn

    def decide(self, world: World, arguments: Arguments) -> Decided:
        context, drawn = world.context(arguments)
        asked = self.asked(world, arguments)
        try:
            # Only the last of several decisions has records.
            while isinstance(outcome := asked.decide(context), Decision) and outcome.is_partial:
                assert not len(outcome.records)
            assert not isinstance(outcome, operations.KRaftVersionUpgrade)
            if not isinstance(outcome, Decision):
                level = context.cluster.state.metadata_version
                outcome = decide_whole(asked.name, outcome, level)
        except KraftError as error:
            answer = self.refusal(error)
            if answer is None:
                raise
            return Decided(None, answer, self.random(world, None, b"".join(drawn)))

        def applied() -> None:
            if asked.applied is not None:
                context.next_offset = world.cluster.next_offset
                asked.applied(context, outcome.response)

        return Decided(
            outcome,
            self.answer(outcome.response),
            self.random(world, outcome.response, b"".join(drawn)),
            applied=applied,
        )
