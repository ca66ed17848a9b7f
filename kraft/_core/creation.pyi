"""New topics and partitions: from a placer's array to Partition records.

Rules: ``ReplicationControlManager.createTopic`` and ``createPartitions`` of Kafka 4.3.1.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraft._core.batch import BatchBuilder
from kraft._core.election_rules import ElectionRules
from kraft._core.table import PartitionTable

def partition_without_active_replica(
    rules: ElectionRules, replicas: NDArray[np.int32]
) -> int | None:
    """The first row of ``replicas``, int32 (partitions, factor), that names no active broker."""

def encode_new_partitions(
    rules: ElectionRules,
    builder: BatchBuilder,
    topic_id: Buffer,
    replicas: NDArray[np.int32],
    first_partition: int = 0,
) -> None:
    """One Partition record for each row of ``replicas``, int32 (partitions, factor), C order.

    Partition ids count from ``first_partition``. In sync are the active replicas in their order,
    and the first of them leads; a replica lies in its broker's only directory, in
    ``UNASSIGNED_DIRECTORY`` where the broker has several or is not registered, and in
    ``MIGRATING_DIRECTORY`` where it has told none. Raises InvalidReplicationFactorError, before
    anything is written, where a partition has no active replica or the factor is above 64.
    """

def encode_new_topic(builder: BatchBuilder, name: str, topic_id: Buffer) -> None:
    """A Topic record."""

def topic_size(table: PartitionTable, topic: int) -> tuple[int, int]:
    """How many partitions the topic of this number has, and how many replicas the first of them.

    Raises UnknownTopicOrPartitionError.
    """

def name_alike(table: PartitionTable, name: str) -> str | None:
    """A topic whose name differs from ``name`` in ``.`` against ``_`` at most, or None.

    Costs 2**n look-ups for n of these characters, but at most a pass over the names.
    """
