"""A million partitions as plain tuples, topic by topic, from the columns of `Metadata.partitions`.

`Partitions.row` makes an object per partition. This module reads the columns of one topic at a
time, so that a comparison with a million lines of a tool's text takes seconds.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.metadata.facade import Metadata
from kraft.metadata.partitions import TopicInfo


class PlainPartition(NamedTuple):
    """One partition; lists of broker ids in Kafka's order, directories as text."""

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]
    elr: list[int]
    last_known_elr: list[int]
    directories: list[str]
    adding: list[int]
    removing: list[int]
    leader_recovery_state: int

    def as_registration(self) -> str:
        """Return the text of kafka-metadata-shell."""
        state = ("RECOVERED", "RECOVERING")[self.leader_recovery_state]
        return (
            f"PartitionRegistration(replicas={self.replicas}, "
            f"directories=[{', '.join(self.directories)}], isr={self.isr}, "
            f"removingReplicas={self.removing}, addingReplicas={self.adding}, elr={self.elr}, "
            f"lastKnownElr={self.last_known_elr}, leader={self.leader}, "
            f"leaderRecoveryState={state}, leaderEpoch={self.leader_epoch}, "
            f"partitionEpoch={self.partition_epoch})"
        )


def from_dump(line: str) -> PlainPartition:
    """Parse a Partition record of kafka-dump-log; tagged fields without a meaning are left out."""
    data = json.loads(line[line.index("payload: ") + 9 :])["data"]
    return PlainPartition(
        partition=data["partitionId"],
        leader=data["leader"],
        leader_epoch=data["leaderEpoch"],
        partition_epoch=data["partitionEpoch"],
        replicas=data["replicas"],
        isr=data["isr"],
        elr=data.get("eligibleLeaderReplicas") or [],
        last_known_elr=data.get("lastKnownElr") or [],
        directories=data["directories"],
        adding=data["addingReplicas"],
        removing=data["removingReplicas"],
        leader_recovery_state=data.get("leaderRecoveryState", 0),
    )


class PlainPartitions:
    """The partitions of `metadata`; `of(topic)` returns those of one topic by partition id."""

    def __init__(self, metadata: Metadata) -> None:
        self._partitions = partitions = metadata.partitions
        self._lists = {name: partitions.members(name) for name in ("isr", "elr", "last_known_elr")}
        self._replicas = partitions.replica_matrix()
        self._irregular = {int(row) for row in partitions.irregular_rows}
        numbers = int(partitions.directories.max()) + 1
        self._directory = [str(partitions.directory_id(number)) for number in range(numbers)]

    def of(self, topic: TopicInfo) -> list[PlainPartition]:
        rows = topic.rows
        if not self._irregular.isdisjoint(rows.tolist()):
            return [self._irregular_one(int(row)) for row in rows]
        partitions = self._partitions
        replicas = _lists(self._replicas[rows])
        numbers = partitions.directories[rows].tolist()
        directories = [
            [self._directory[number] for number in some[: len(held)]]
            for some, held in zip(numbers, replicas, strict=True)
        ]
        nothing: list[list[int]] = [[] for _ in rows]
        columns = (
            partitions.partition[rows].tolist(),
            partitions.leader[rows].tolist(),
            partitions.leader_epoch[rows].tolist(),
            partitions.partition_epoch[rows].tolist(),
            replicas,
            *(_lists(held[rows]) for held in self._lists.values()),
            directories,
            nothing,
            nothing,
            partitions.leader_recovery_state[rows].tolist(),
        )
        return list(map(PlainPartition._make, zip(*columns, strict=True)))

    def _irregular_one(self, row: int) -> PlainPartition:
        info = self._partitions.row(row)
        return PlainPartition(
            partition=info.partition,
            leader=info.leader,
            leader_epoch=info.leader_epoch,
            partition_epoch=info.partition_epoch,
            replicas=list(info.replicas),
            isr=list(info.isr),
            elr=list(info.elr),
            last_known_elr=list(info.last_known_elr),
            directories=[str(one) for one in info.directories],
            adding=list(info.adding_replicas),
            removing=list(info.removing_replicas),
            leader_recovery_state=info.leader_recovery_state,
        )


def _lists(padded: NDArray[np.int32]) -> list[list[int]]:
    """Return rows without their padding of -1."""
    return [[one for one in row if one >= 0] for row in padded.tolist()]
