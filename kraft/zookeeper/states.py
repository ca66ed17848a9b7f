"""The states of partitions and replicas in the 2018 controller, and the legal transitions.

Rules: ``PartitionStateMachine.scala`` and ``ReplicaStateMachine.scala`` of Kafka 1.1.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from kraft.errors import ZooKeeperError

#: A topic and a partition's number.
PartitionKey = tuple[str, int]
#: A partition and the id of a broker.
ReplicaKey = tuple[PartitionKey, int]


class StateChangeError(ZooKeeperError):
    """A partition or replica stays in its state; the message names both states and the reason."""


class ZkPartitionState(IntEnum):
    """The state of a partition."""

    NON_EXISTENT = 0
    #: It has replicas, and no leader yet.
    NEW = 1
    ONLINE = 2
    #: Its leader is dead.
    OFFLINE = 3


class ZkReplicaState(IntEnum):
    """The state of a broker's replica of a partition."""

    NON_EXISTENT = 0
    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    #: Its broker was dead, or failed to delete it.
    DELETION_INELIGIBLE = 6


#: State -> the states from which it may be reached.
PARTITION_PREDECESSORS: Mapping[ZkPartitionState, frozenset[ZkPartitionState]] = {
    ZkPartitionState.NEW: frozenset({ZkPartitionState.NON_EXISTENT}),
    ZkPartitionState.ONLINE: frozenset(
        {ZkPartitionState.NEW, ZkPartitionState.ONLINE, ZkPartitionState.OFFLINE}
    ),
    ZkPartitionState.OFFLINE: frozenset(
        {ZkPartitionState.NEW, ZkPartitionState.ONLINE, ZkPartitionState.OFFLINE}
    ),
    ZkPartitionState.NON_EXISTENT: frozenset({ZkPartitionState.OFFLINE}),
}

_ALIVE = frozenset(
    {
        ZkReplicaState.NEW,
        ZkReplicaState.ONLINE,
        ZkReplicaState.OFFLINE,
        ZkReplicaState.DELETION_INELIGIBLE,
    }
)

#: The same for replicas.
REPLICA_PREDECESSORS: Mapping[ZkReplicaState, frozenset[ZkReplicaState]] = {
    ZkReplicaState.NEW: frozenset({ZkReplicaState.NON_EXISTENT}),
    ZkReplicaState.ONLINE: _ALIVE,
    ZkReplicaState.OFFLINE: _ALIVE,
    ZkReplicaState.DELETION_STARTED: frozenset({ZkReplicaState.OFFLINE}),
    ZkReplicaState.DELETION_SUCCESSFUL: frozenset({ZkReplicaState.DELETION_STARTED}),
    ZkReplicaState.DELETION_INELIGIBLE: frozenset({ZkReplicaState.DELETION_STARTED}),
    ZkReplicaState.NON_EXISTENT: frozenset({ZkReplicaState.DELETION_SUCCESSFUL}),
}


def check_partition(
    key: PartitionKey, state: ZkPartitionState, target: ZkPartitionState
) -> StateChangeError | None:
    """Return the error if a partition may not go from ``state`` to ``target``."""
    allowed = PARTITION_PREDECESSORS[target]
    if state in allowed:
        return None
    return _illegal(f"partition {key[0]}-{key[1]}", state, target, allowed)


def check_replica(
    replica: ReplicaKey, state: ZkReplicaState, target: ZkReplicaState
) -> StateChangeError | None:
    """Return the error if a replica may not go from ``state`` to ``target``."""
    allowed = REPLICA_PREDECESSORS[target]
    if state in allowed:
        return None
    (topic, partition), broker = replica
    return _illegal(f"replica {broker} of partition {topic}-{partition}", state, target, allowed)


def _illegal(
    what: str, state: IntEnum, target: IntEnum, allowed: Iterable[IntEnum]
) -> StateChangeError:
    names = " or ".join(one.name for one in sorted(allowed))
    return StateChangeError(
        f"{what} cannot go from {state.name} to {target.name}, only from {names}"
    )
