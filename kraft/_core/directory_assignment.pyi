"""Replicas and the directories of their brokers, many at a time: AssignReplicasToDirs (KIP-858).

Rules: ``ReplicationControlManager.handleAssignReplicasToDirs`` and ``PartitionChangeBuilder`` of
Kafka 4.3.1.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kraft._core.batch import BatchBuilder
from kraft._core.election import ElectionContext

def assign_directory(
    context: ElectionContext,
    builder: BatchBuilder,
    broker: int,
    directory: bytes,
    topic: int,
    partitions: ArrayLike,
) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
    """Records that a broker's replicas of some partitions lie in one of its directories.

    ``topic`` is the number of a topic that is alive, ``partitions`` are ids. Gives for each
    partition Kafka's error code, 0, 3 (UNKNOWN_TOPIC_OR_PARTITION) or 6 (NOT_LEADER_OR_FOLLOWER:
    the broker has no replica of it), and its row, -1 where there is an error. Emits a
    PartitionChange for each partition that changes; as with any change an election that is due and
    the end of a reassignment go into it.

    Raises `InvalidRequestError` where the directory has not 16 bytes or the topic is not alive.
    """

def leave_isr(context: ElectionContext, builder: BatchBuilder, broker: int, rows: ArrayLike) -> int:
    """Takes a broker out of the ISRs of ``rows`` and elects without it; how many records.

    Raises `InvalidRequestError` for a row that holds no partition.
    """
