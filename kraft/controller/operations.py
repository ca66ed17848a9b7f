"""What is asked of the controller, what it looks at to decide, and how it is answered.

Owns the values that pass between `QuorumController` and those around it. An `Operation` carries the
function that decides; it is run on the tip of the log, when its turn has come. What it gives is

- a ``Decision``: records that take effect at once, and an answer for when they are committed; with
  ``is_partial`` the function is asked again once they have taken effect, other events in between;
- or `KRaftVersionUpgrade`: the raft layer is asked first;
- or `InPieces`: what is too large for one batch, as one metadata transaction (KIP-868).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kraft._core.placement import ReplicaPlacer
from kraft.controller.decision import Decision, Records
from kraft.controller.sessions import BrokerSessions
from kraft.controller.state import Settings
from kraft.errors import KraftError
from kraft.image.replay import Cluster
from kraft.records import Uuid

Response = TypeVar("Response")

_NEVER = float("inf")

#: The token of what nobody waits for.
OWN = -1


@dataclass(slots=True)
class Tip:
    """What decisions look at: the state at the end of the log, committed or not, and the moment.

    ``next_offset`` is the offset of the first record that a decision writes.
    """

    cluster: Cluster
    sessions: BrokerSessions
    settings: Settings
    placer: ReplicaPlacer
    random_uuid: Callable[[], Uuid]
    now_ms: float = 0.0
    next_offset: int = 0


@dataclass(slots=True)
class InPieces(Generic[Response]):
    """An operation of more records than a batch may have, decided piece by piece.

    ``pieces`` gives records to be written, each of which has taken effect when the next is asked
    for, and returns the response. Everything that can be refused is refused before the first piece
    that has records; an error after it takes all of them back. A piece without records only lets
    others have their turn. ``name`` is that of the transaction.
    """

    name: str
    pieces: Generator[Records, None, Response]


@dataclass(slots=True)
class KRaftVersionUpgrade:
    """An operation that needs kraft.version at ``level``, which only the raft layer can raise.

    Its answer is the raft layer's error; without one ``then`` decides what follows, on the tip
    that holds the new level. ``validate_only``: the raft layer only checks.
    """

    level: int
    validate_only: bool
    then: Callable[[Tip], Decision[Any]]


Outcome = Decision[Any] | InPieces[Any] | KRaftVersionUpgrade


@dataclass(slots=True)
class Operation:
    """One thing that is asked; the answer carries ``token``.

    ``applied`` hears the response once the records have taken effect on the tip, which is where
    what is not in the log (sessions) is kept in step. An operation whose token is `OWN` is the
    controller's own, and nobody hears its answer.
    """

    name: str
    decide: Callable[[Tip], Outcome]
    applied: Callable[[Tip, Any], None] | None = None
    token: int = OWN
    deadline_ms: float = _NEVER


@dataclass(slots=True)
class Answer:
    """The response of an operation whose records are committed, or why there is none."""

    token: int
    response: Any = None
    error: KraftError | None = None


@dataclass(slots=True)
class UpgradeToAsk:
    """An upgrade of kraft.version to be asked of the raft node under this driver.

    `QuorumController.kraft_version_answered` takes the node's answer, with ``number``.
    """

    number: int
    level: int
    validate_only: bool


@dataclass(slots=True)
class Ready:
    """What one call of the controller brought forth, to be carried out in this order.

    ``to_append`` are finished batches for the raft layer to append as the leader of ``epoch``, the
    first record at ``base_offset``; its refusal is told by `QuorumController.append_failed`.
    ``resign_epoch``: the raft node is to give up leading it, as the controller cannot go on.
    ``wake_at_ms``: when it wants to be run even if nothing happens; minus infinity for at once.
    """

    to_append: memoryview | None = None
    base_offset: int = -1
    epoch: int = -1
    answers: list[Answer] = field(default_factory=list)
    kraft_version_upgrades: list[UpgradeToAsk] = field(default_factory=list)
    resign_epoch: int | None = None
    wake_at_ms: float = _NEVER
