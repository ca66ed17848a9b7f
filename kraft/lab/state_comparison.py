"""Compare a dropped state with the loaded one, column by column, including the order of the ISR.

``StateColumns`` holds every partition's fields in an order that does not depend on the table's
history (by topic id, then partition), with brokers instead of packed slots and directory ids
instead of numbers. It can be saved to files, so that its table can be dropped before another one is
loaded. Called by the last stage of a scenario.

Invariant: two states that differ in any field of any partition, topic, broker, config or other
record have a ``first_difference``, whatever rows, topic numbers or directory numbers their tables
use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.image.cluster import ClusterState
from kraft.image.diff import diff
from kraft.metadata.facade import Metadata
from kraft.records import Uuid

_SCALARS = ("partition", "leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
_MEMBERS = ("isr", "elr", "last_known_elr")
_REASSIGNMENT = ("adding_replicas", "removing_replicas")
COLUMNS = (*_SCALARS, "replicas", "directories", *_MEMBERS, *_REASSIGNMENT)


class StateDifference(NamedTuple):
    """The first difference of two states; ``where`` names the partition or other object."""

    column: str
    where: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.column} of {self.where}: dropped {self.before}, loaded {self.after}"


class StateColumns:
    """A state as columns, ordered by topic id, then partition id.

    ``columns`` has the names of ``COLUMNS``, n rows each: i32 (i8 the recovery state), lists as (n,
    widest) padded with -1, ``directories`` as indexes into ``directory_ids``. ``topics`` holds (id,
    name, number of partitions).
    """

    def __init__(
        self,
        columns: dict[str, NDArray[Any]],
        topics: Sequence[tuple[Uuid, str, int]],
        directory_ids: Sequence[Uuid],
        rest: ClusterState,
        next_offset: int,
    ) -> None:
        self.columns = columns
        self.topics = topics
        self.directory_ids = directory_ids
        self.rest = rest
        self.next_offset = next_offset

    @classmethod
    def take(cls, metadata: Metadata, aside: Path | None = None) -> StateColumns:
        """Return the columns of ``metadata``, copied; with ``aside`` saved as .npy files there and
        mapped.
        """
        ordered = sorted(metadata.topics.values(), key=lambda topic: topic.id)
        rows = np.concatenate([np.empty(0, np.int32), *(topic.rows for topic in ordered)])
        irregular = _irregular_places(metadata, rows)
        columns: dict[str, NDArray[Any]] = {}
        for name in COLUMNS:
            columns[name] = _ordered_column(metadata, name, rows, irregular)
            if aside is not None:
                np.save(aside / f"{name}.npy", columns[name])
                columns[name] = np.load(aside / f"{name}.npy", mmap_mode="r")
        directories = columns["directories"]
        count = int(directories.max(initial=-1)) + 1
        return cls(
            columns,
            [(topic.id, topic.name, topic.partition_count) for topic in ordered],
            [metadata.partitions.directory_id(number) for number in range(count)],
            metadata.state,
            metadata.next_offset,
        )

    def first_difference(self, other: StateColumns) -> StateDifference | None:
        """Return the first difference from ``other`` or None; compares offset, topics, partitions,
        the rest.
        """
        if self.next_offset != other.next_offset:
            return StateDifference("next_offset", "the state", self.next_offset, other.next_offset)
        for mine, theirs in zip(self.topics, other.topics, strict=False):
            if mine != theirs:
                return StateDifference("topic", "the topics by id", _shown(mine), _shown(theirs))
        if len(self.topics) != len(other.topics):
            return StateDifference("topics", "the state", len(self.topics), len(other.topics))
        for name in COLUMNS:
            before, after = self.columns[name], other.columns[name]
            if name == "directories":
                after = self._translated(other)
            place = _first_unequal(before, after)
            if place >= 0:
                return StateDifference(
                    name, self._partition_at(place), before[place].tolist(), after[place].tolist()
                )
        for change in diff(self.rest, other.rest):
            where = f"{change.kind} {change.key}"
            return StateDifference(change.field or change.kind, where, change.before, change.after)
        return None

    def _translated(self, other: StateColumns) -> NDArray[Any]:
        """Return the directories of ``other`` in this state's numbers; -2 for an unknown id."""
        numbers = {each: number for number, each in enumerate(self.directory_ids)}
        table = np.array([numbers.get(each, -2) for each in other.directory_ids] + [-1], np.int32)
        # The padding, -1, indexes the last entry.
        return np.asarray(table[other.columns["directories"]])

    def _partition_at(self, place: int) -> str:
        ends = np.cumsum([count for _, _, count in self.topics])
        at = int(np.searchsorted(ends, place, side="right"))
        topic_id, name, _ = self.topics[at]
        return f"{name}-{self.columns['partition'][place]} (topic id {topic_id!s})"


def _shown(topic: tuple[Uuid, str, int]) -> str:
    return f"{topic[1]} (id {topic[0]!s}, {topic[2]} partitions)"


def _irregular_places(metadata: Metadata, rows: NDArray[np.int32]) -> dict[int, dict[str, Any]]:
    """Return index in the order -> lists, for the irregular rows."""
    irregular = np.flatnonzero(np.isin(rows, metadata.partitions.irregular_rows))
    return {int(place): metadata.cluster.table.state_of(int(rows[place])) for place in irregular}


def _ordered_column(
    metadata: Metadata,
    name: str,
    rows: NDArray[np.int32],
    irregular: dict[int, dict[str, Any]],
) -> NDArray[Any]:
    partitions = metadata.partitions
    if name in _SCALARS:
        return np.asarray(getattr(partitions, name)[rows])
    if name == "replicas":
        return partitions.replica_matrix()[rows]
    if name in _MEMBERS:
        return partitions.members(name)[rows]
    width = max([1, *(len(state[name]) for state in irregular.values())])
    if name == "directories":
        width = max(width, partitions.stride)
    lists = np.full((len(rows), width), -1, np.int32)
    if name == "directories":
        there = partitions.replicas[rows] >= 0
        # numpy 2.5 rejects -1 beside unsigned values.
        directories = partitions.directories[rows].astype(np.int32)
        lists[:, : partitions.stride] = np.where(there, directories, -1)
    for place, state in irregular.items():
        lists[place] = -1
        lists[place, : len(state[name])] = state[name]
    return lists


def _first_unequal(before: NDArray[Any], after: NDArray[Any]) -> int:
    """Return the first row that differs, -1 for none; a wider list is equal where the rest is
    padding.
    """
    if before.ndim == 1:
        unequal = before != after
    else:
        shared = min(before.shape[1], after.shape[1])
        unequal = (before[:, :shared] != after[:, :shared]).any(axis=1)
        for wider in (before, after):
            unequal |= (wider[:, shared:] != -1).any(axis=1)
    return int(unequal.argmax()) if unequal.any() else -1
