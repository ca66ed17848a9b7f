"""Output of a replica manager: what its driver has to answer and to send after an event."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kraft.broker.replication.messages import IsrProposal, PartitionId
from kraft.broker.replication.replica_fetching import FetchToSend, OffsetQuery


class ReplicationAnswer(NamedTuple):
    """The answer to the request with this token."""

    token: Hashable
    response: Any


class ReplicaDirectory(NamedTuple):
    """The directory that has a replica's log, to be reported by AssignReplicasToDirs."""

    id: PartitionId
    directory: bytes


@dataclass(slots=True)
class ReplicationOutput:
    """What to carry out after an event."""

    answers: list[ReplicationAnswer] = field(default_factory=list)
    fetches: list[FetchToSend] = field(default_factory=list)
    queries: list[OffsetQuery] = field(default_factory=list)
    #: The next AlterPartition request; its response goes to `ReplicaManager.isr_answered`.
    isr_changes: list[IsrProposal] | None = None
    directories: list[ReplicaDirectory] = field(default_factory=list)
    wake_at_ms: float = float("inf")
