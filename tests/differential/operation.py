"""What an operation is: how it is drawn, how this side decides it, what Kafka's answer means."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kraft.controller import Decision
from tests.differential.world import World

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Decided:
    """A decision; ``answer`` is JSON, ``random`` the bytes that Kafka is to draw in its course.

    ``applied`` is called once the records took effect.
    """

    decision: Decision[Any] | None
    answer: Any = None
    random: bytes = b""
    applied: Callable[[], None] | None = None


@dataclass
class Outcome:
    """What came of an operation on one side. A refused request has neither records nor answer."""

    error: int = 0
    message: str = ""
    records: list[bytes] = field(default_factory=list)
    is_atomic: bool = False
    answer: Any = None


class Operation(ABC):
    """One kind. ``weight`` is how often it is drawn, compared with the others."""

    name: ClassVar[str]
    weight: ClassVar[int] = 10

    @abstractmethod
    def arguments(self, dice: random.Random, world: World) -> Arguments | None:
        """Arguments for a case, as JSON; None where the world has nothing to draw them from."""

    @abstractmethod
    def decide(self, world: World, arguments: Arguments) -> Decided:
        """What this package makes of it. Raises KraftError for what is refused as a whole."""

    def understood(self, response: Any) -> Any:
        """Kafka's answer in the form of ``Decided.answer``."""
        return response
