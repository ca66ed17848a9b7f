"""Operations: the requests that the controller decides, their inputs and their responses.

These values pass between `QuorumController` and its callers. An `Operation` carries the function
that decides. The controller calls it on the uncommitted state when the operation is at the head of
the queue. The function returns one of:

- a ``Decision``: records to apply at once, and a response for when they are committed. With
  ``is_partial`` the controller calls the function again after it applied the records; other events
  may run in between.
- `KRaftVersionUpgrade`: the raft layer has to upgrade kraft.version first.
- a ``ChunkedDecision``: a generator that the controller steps. One that returns at once is a
  ``Decision``, any other a metadata transaction (KIP-868).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kraft._core.decide.placement import ReplicaPlacer
from kraft.controller.brokers.sessions import BrokerSessions
from kraft.controller.decision import ChunkedDecision, Decision
from kraft.controller.state import DecisionSettings
from kraft.errors import KraftError
from kraft.image.replay import MetadataState
from kraft.records import Uuid
from kraft.records.versions import MetadataVersion

_NEVER = float("inf")
_FIRST_WITH_TRANSACTIONS = int(MetadataVersion.IBP_3_6_IV1)

#: The token of the controller's own operations: no caller waits for the response.
INTERNAL = -1


@dataclass(slots=True)
class DecisionContext:
    """The inputs of a decision: the uncommitted state at the end of the log, and the current time.

    ``next_offset`` is the offset of the first record that the decision writes.
    """

    cluster: MetadataState
    sessions: BrokerSessions
    settings: DecisionSettings
    placer: ReplicaPlacer
    random_uuid: Callable[[], Uuid]
    now_ms: float = 0.0
    next_offset: int = 0

    def at_once(self, limit: int) -> int:
        """Return the largest size of a request that is decided at once.

        That is ``limit``, or no bound if the metadata.version has no transactions.
        """
        level = self.cluster.state.metadata_version
        return limit if level >= _FIRST_WITH_TRANSACTIONS else sys.maxsize


class KRaftVersionUpgrade(NamedTuple):
    """An operation that needs kraft.version at ``level``, which only the raft layer can raise.

    If the raft layer returns an error, it is the response. Otherwise ``then`` decides the rest, on
    the state that has the new level. With ``validate_only`` the raft layer only checks.
    """

    level: int
    validate_only: bool
    then: Callable[[DecisionContext], Decision[Any]]


OperationResult = Decision[Any] | ChunkedDecision[Any] | KRaftVersionUpgrade


@dataclass(slots=True)
class Operation:
    """One request to the controller; its `Answer` carries ``token``.

    The controller calls ``applied`` with the response after it applied the records: the callback
    updates state that is not in the log (sessions). With the token `INTERNAL` the operation is the
    controller's own, and its response is dropped.

    For heartbeats, ``unchanged`` returns the response where it is certain, at little cost, that
    ``decide`` would write no records; else None. ``reads_broker`` names the broker whose
    registration alone decides the response of an operation without records: the response does not
    wait until other records are committed.
    """

    name: str
    decide: Callable[[DecisionContext], OperationResult]
    applied: Callable[[DecisionContext, Any], None] | None = None
    unchanged: Callable[[DecisionContext], Any] | None = None
    token: int = INTERNAL
    deadline_ms: float = _NEVER
    reads_broker: int | None = None


class Answer(NamedTuple):
    """The response of an operation whose records are committed, or the error."""

    token: int
    response: Any = None
    error: KraftError | None = None


class KRaftVersionUpgradeRequest(NamedTuple):
    """A request to the raft node to upgrade kraft.version; the driver passes it on.

    The driver passes the node's response to `QuorumController.kraft_version_answered`, with
    ``number``.
    """

    number: int
    level: int
    validate_only: bool


@dataclass(slots=True)
class ControllerOutput:
    """The work that one call of the controller leaves to the driver, in this order.

    ``to_append``: finished batches for the raft layer to append as the leader of ``epoch``, the
    first record at ``base_offset``. If the raft layer rejects them, the driver calls
    `QuorumController.append_failed`. ``resign_epoch``: the raft node has to resign this epoch,
    because the controller cannot continue. ``wake_at_ms``: the latest time of the next
    `QuorumController.run`; minus infinity for at once.
    """

    to_append: memoryview | None = None
    base_offset: int = -1
    epoch: int = -1
    answers: list[Answer] = field(default_factory=list)
    kraft_version_upgrades: list[KRaftVersionUpgradeRequest] = field(default_factory=list)
    resign_epoch: int | None = None
    wake_at_ms: float = _NEVER
