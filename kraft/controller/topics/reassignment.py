"""AlterPartitionReassignments: begin, cancel and list reassignments.

A reassignment is completed by the AlterPartition that brings its last replica into the ISR
(``ElectionContext``). Sources: Kafka's ``ReplicationControlManager`` (alterPartitionReassignments,
listPartitionReassignments), KIP-455, KIP-860.

If a request exceeds 10,000 records, Kafka carries out the first ones and responds with an unknown
error to the rest. Here the whole request is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.election import ElectionContext
from kraft.controller.arguments import find_row, find_topic
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
)
from kraft.controller.state import DEFAULTS, ClusterMetadata, DecisionSettings, election_context
from kraft.controller.topics.elections import TopicPartition
from kraft.controller.topics.topic_creation import check_assignment
from kraft.errors import (
    InvalidReplicationFactorError,
    KraftError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)

_TARGETS_PER_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress; ``replicas`` includes those that are added and removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


def alter_partition_reassignments(
    cluster: ClusterMetadata,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    settings: DecisionSettings = DEFAULTS,
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[dict[TopicPartition, KraftError | None]]:
    """Set new replicas of partitions, None to cancel; the response maps each partition to its error
    or None.

    Without ``allow_replication_factor_change`` a target must have as many replicas as the
    partition, without those that are being removed. The records of more than ``at_once`` targets
    are written in chunks. Raises PolicyViolationError for more than 10,000 records at once.
    """
    is_large = len(targets) > at_once
    if is_large:
        yield NO_RECORDS
    builder = BatchBuilder()
    context = election_context(cluster, settings)
    response: dict[TopicPartition, KraftError | None] = {}
    for name, replicas in targets.items():
        if response and len(response) % _TARGETS_PER_CHUNK == 0:
            if is_large:
                yield Records.finished(builder)
                builder = BatchBuilder()
            else:
                yield NO_RECORDS
            context = election_context(cluster, settings)
        response[name] = _alter(
            cluster, context, builder, name, replicas, allow_replication_factor_change
        )
    if builder.record_count > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"a request reassigns at most {MAX_RECORDS_PER_BATCH} partitions, "
            f"not {builder.record_count}"
        )
    return Decision(Records.finished(builder), response, is_atomic=True)


def _alter(
    cluster: ClusterMetadata,
    context: ElectionContext,
    builder: BatchBuilder,
    name: TopicPartition,
    replicas: Sequence[int] | None,
    allow_replication_factor_change: bool,
) -> KraftError | None:
    """Append the records that begin or cancel one reassignment; return its error or None."""
    try:
        row = _row(cluster, *name)
        if replicas is None:
            context.cancel_reassignment(builder, row)
        else:
            check_assignment(cluster, replicas)
            if not allow_replication_factor_change:
                _check_factor(cluster.table.state_of(row), replicas)
            context.reassign(builder, row, replicas)
    except KraftError as error:
        return error.as_result()
    return None


def list_partition_reassignments(
    cluster: ClusterMetadata, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress, of the named partitions or of all."""
    table = cluster.table
    found: dict[TopicPartition, Reassignment] = {}
    if partitions is None:
        if table.irregular_count == 0:
            return found
        irregular = table.column("isr") == np.uint32(0xFFFFFFFF)
        for row in map(int, np.flatnonzero(irregular & (table.column("topic") >= 0))):
            name = table.topic_name(int(table.column("topic")[row]))
            _note(found, (name, int(table.column("partition")[row])), table.state_of(row))
        return found
    for topic, partition in partitions:
        row = find_row(table, find_topic(table, topic), partition)
        if row >= 0:
            _note(found, (topic, partition), table.state_of(row))
    return found


def _note(
    found: dict[TopicPartition, Reassignment], name: TopicPartition, state: Mapping[str, Any]
) -> None:
    if state["adding_replicas"] or state["removing_replicas"]:
        found[name] = Reassignment(
            tuple(state["replicas"]),
            tuple(state["adding_replicas"]),
            tuple(state["removing_replicas"]),
        )


def _row(cluster: ClusterMetadata, topic: str, partition: int) -> int:
    row = find_row(cluster.table, find_topic(cluster.table, topic), partition)
    if row < 0:
        raise UnknownTopicOrPartitionError(f"there is no partition {topic}-{partition}")
    return row


def _check_factor(state: Mapping[str, Any], replicas: Sequence[int]) -> None:
    staying = {*state["replicas"], *state["adding_replicas"]} - {*state["removing_replicas"]}
    factor = len(staying)
    if len(replicas) != factor:
        raise InvalidReplicationFactorError(
            f"The replication factor is changed from {factor} to {len(replicas)}"
        )
