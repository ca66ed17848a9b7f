"""Local changes: what a metadata delta changes on one broker.

The core filters the rows that changed; only this broker's are looked at one by one. Kafka's
``TopicsDelta.localChanges`` visits every changed partition.

Invariant: all that is read is of the image. The table itself may be ahead of it, by an open
transaction, or by uncommitted records where the controller of the same process leads the quorum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.images import TableImage
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import PartitionAssignment
from kraft.image.publishing import Image, ImageDelta

Rows: TypeAlias = NDArray[np.int32]


class LocalPartition(NamedTuple):
    """A partition of which this broker is a replica, as the image has it."""

    row: int
    id: PartitionId
    topic: str
    assignment: PartitionAssignment


class LocalChanges(NamedTuple):
    """The rows of partitions that are not on this broker any more, and those to apply."""

    removed_rows: list[int]
    leaders: list[LocalPartition]
    followers: list[LocalPartition]


def local_changes(delta: ImageDelta, image: Image, broker_id: int, hosted: Rows) -> LocalChanges:
    """Return the changes of a delta on ``broker_id``; ``hosted`` are the rows that it has, sorted.

    Rows of a full delta are those of the image alone: the caller matches partitions by their ids.
    """
    table = image.table
    changed = [delta.rows_changed]
    changed += [np.arange(first, end, dtype=np.int32) for first, end in delta.rows_added]
    mine = table.rows_with_replica(broker_id, np.concatenate(changed))
    gone: Rows = _EMPTY
    if not delta.is_full:
        left = np.setdiff1d(_intersect(hosted, delta.rows_changed), mine, assume_unique=True)
        gone = np.union1d(left, _of_topics(table, hosted, delta.topics_removed))
    leaders: list[LocalPartition] = []
    followers: list[LocalPartition] = []
    for row, topic in zip(map(int, mine), map(int, table.topics_of(mine)), strict=True):
        partition = _local(table, broker_id, row, topic)
        leads = partition.assignment.leader == broker_id
        (leaders if leads else followers).append(partition)
    return LocalChanges([int(row) for row in gone], leaders, followers)


_EMPTY: Rows = np.empty(0, np.int32)


def _intersect(rows: Rows, others: Rows) -> Rows:
    """Return those of ``rows`` that are in ``others``; both are sorted."""
    if not len(rows) or not len(others):
        return _EMPTY
    at = np.minimum(np.searchsorted(others, rows), len(others) - 1)
    found: Rows = rows[others[at] == rows]
    return found


def _of_topics(table: TableImage, rows: Rows, topics: Iterable[int]) -> Rows:
    """Return those of ``rows`` whose topics are among the removed ``topics``."""
    numbers = np.fromiter(topics, np.int32)
    if not len(numbers) or not len(rows):
        return _EMPTY
    return rows[np.isin(table.topics_of(rows), numbers)]


def _local(table: TableImage, broker_id: int, row: int, topic: int) -> LocalPartition:
    state = table.state_of(row)
    replicas = state["replicas"]
    return LocalPartition(
        row,
        PartitionId(table.topic_id_of(topic), table.partition_of(row)),
        table.topic_name(topic),
        PartitionAssignment(
            state["leader"],
            state["leader_epoch"],
            state["partition_epoch"],
            tuple(replicas),
            tuple(state["isr"]),
            tuple(state["adding_replicas"]),
            tuple(state["removing_replicas"]),
            table.directory_id(state["directories"][replicas.index(broker_id)]),
        ),
    )
