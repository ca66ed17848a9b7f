"""Encoding of new topics and partitions: from a placer's array to Partition records.

Rules: ``ReplicationControlManager.createTopic`` and ``createPartitions`` of Kafka 4.3.1.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.election_rules import ElectionRules
from kraft._core.table.table import PartitionTable

def partition_without_active_replica(
    rules: ElectionRules, replicas: NDArray[np.int32]
) -> int | None:
    """Return the first row of ``replicas``, int32 (partitions, factor), without active brokers."""

def encode_new_partitions(
    rules: ElectionRules,
    builder: BatchBuilder,
    topic_id: Buffer,
    replicas: NDArray[np.int32],
    first_partition: int = 0,
) -> None:
    """Append a Partition record for each row of ``replicas``, int32 (partitions, factor), C order.

    Partition ids count from ``first_partition``. The ISR is the active replicas in their order, and
    the first of them is the leader. A replica's directory is the only one of its broker;
    ``UNASSIGNED_DIRECTORY`` if the broker has several or is not registered; ``MIGRATING_DIRECTORY``
    if it reported none. Raises InvalidReplicationFactorError, before anything is written, if a
    partition has no active replica or the factor is above 64.
    """

def encode_new_topic(builder: BatchBuilder, name: str, topic_id: Buffer) -> None:
    """Append a Topic record."""

def topic_size(table: PartitionTable, topic: int) -> tuple[int, int]:
    """Return how many partitions a topic has, and how many replicas its first partition has.

    Raises UnknownTopicOrPartitionError.
    """

def name_alike(table: PartitionTable, name: str) -> str | None:
    """Return a topic whose name equals ``name`` if ``.`` and ``_`` are treated alike, or None.

    Costs 2**n look-ups for n of these characters, but at most a pass over the names.
    """
