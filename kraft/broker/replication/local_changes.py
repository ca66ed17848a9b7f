"""Local changes: what a metadata delta changes on one broker.

Set arithmetic on arrays of rows finds the partitions of this broker among those that changed; only
these are looked at one by one. Kafka's ``TopicsDelta.localChanges`` visits every changed partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.table import PartitionTable
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


def local_changes(
    table: PartitionTable, delta: ImageDelta, image: Image, broker_id: int, hosted: Rows
) -> LocalChanges:
    """Return the changes of a delta on ``broker_id``; ``hosted`` are the rows that it has, sorted.

    ``table`` is the table of the image; it may be ahead of the image by an open transaction. Rows
    of a full delta are those of the image alone: the caller matches partitions by their ids.
    """
    mine = table.broker_rows(broker_id)
    candidates: Rows
    removed: Rows = _EMPTY
    if delta.is_full:
        candidates = mine[mine < image.table.row_count]
        topics = image.table.column("topic")
        candidates = candidates[topics[candidates] >= 0]
    else:
        touched = np.concatenate([_among(mine, delta), _among(hosted, delta)])
        candidates = np.unique(touched)
        removed = _of_topics(table, hosted, delta.topics_removed)
        candidates = candidates[~np.isin(candidates, removed, assume_unique=True)]
    gone = [int(row) for row in removed]
    leaders: list[LocalPartition] = []
    followers: list[LocalPartition] = []
    for row in map(int, candidates):
        state = image.table.state_of(row)
        replicas = state["replicas"]
        if broker_id not in replicas:
            gone.append(row)
            continue
        partition = _local(table, image, row, state, replicas.index(broker_id))
        (leaders if state["leader"] == broker_id else followers).append(partition)
    return LocalChanges(gone, leaders, followers)


_EMPTY: Rows = np.empty(0, np.int32)


def _among(rows: Rows, delta: ImageDelta) -> Rows:
    """Return those of sorted ``rows`` that a delta changes or adds."""
    kept = [_intersect(rows, delta.rows_changed)]
    for first, end in delta.rows_added:
        start, stop = np.searchsorted(rows, (first, end))
        kept.append(rows[start:stop])
    return np.concatenate(kept)


def _intersect(rows: Rows, others: Rows) -> Rows:
    """Return those of ``rows`` that are in ``others``; both are sorted."""
    if not len(rows) or not len(others):
        return _EMPTY
    at = np.minimum(np.searchsorted(others, rows), len(others) - 1)
    found: Rows = rows[others[at] == rows]
    return found


def _of_topics(table: PartitionTable, rows: Rows, topics: Iterable[int]) -> Rows:
    """Return those of ``rows`` whose topics are among the removed ``topics``."""
    numbers = np.fromiter(topics, np.int32)
    if not len(numbers) or not len(rows):
        return _EMPTY
    # A removed topic's rows have its number inverted.
    owners = table.column("topic")[rows]
    return rows[np.isin(np.where(owners < 0, -1 - owners, owners), numbers)]


def _local(
    table: PartitionTable, image: Image, row: int, state: dict[str, Any], index: int
) -> LocalPartition:
    number = int(table.column("topic")[row])
    topic = number if number >= 0 else -1 - number
    return LocalPartition(
        row,
        PartitionId(table.topic_id_of(topic), int(table.column("partition")[row])),
        table.topic_name(topic),
        PartitionAssignment(
            state["leader"],
            state["leader_epoch"],
            state["partition_epoch"],
            tuple(state["replicas"]),
            tuple(state["isr"]),
            tuple(state["adding_replicas"]),
            tuple(state["removing_replicas"]),
            image.table.directory_id(state["directories"][index]),
        ),
    )
