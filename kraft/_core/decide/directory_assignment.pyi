"""Assignment of many replicas to directories: AssignReplicasToDirs (KIP-858).

Rules: ``ReplicationControlManager.handleAssignReplicasToDirs`` and ``PartitionChangeBuilder`` of
Kafka 4.3.1.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.election import ElectionContext

def assign_directory(
    context: ElectionContext,
    builder: BatchBuilder,
    broker: int,
    directory: bytes,
    topic: int,
    partitions: ArrayLike,
) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
    """Assign a broker's replicas of some partitions to one of its directories.

    ``topic`` is the number of a live topic, ``partitions`` are ids. Returns for each partition
    Kafka's error code, 0, 3 (UNKNOWN_TOPIC_OR_PARTITION) or 6 (NOT_LEADER_OR_FOLLOWER: the broker
    has no replica of it), and its row, -1 on an error. Appends a PartitionChange for each partition
    that changes; as every change, it includes a due election and the end of a reassignment.

    Raises `InvalidRequestError` if the directory has not 16 bytes or no live topic has the number.
    """

def leave_isr(context: ElectionContext, builder: BatchBuilder, broker: int, rows: ArrayLike) -> int:
    """Remove a broker from the ISRs of ``rows``, elect leaders, and return the number of records.

    Raises `InvalidRequestError` for a row without a partition.
    """
