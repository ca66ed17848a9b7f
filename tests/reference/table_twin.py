"""Slow reference implementation of the partition table: a dict that replays typed records.

Rules of KIP-455, KIP-858, KIP-966 and of Kafka's ``PartitionRegistration``: a change merges into a
partition and increments its partition epoch, and its leader epoch if it names a leader; a partition
whose directories are all unknown keeps unknown ones for any new replicas.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from kraft import records
from kraft._core.table.image_rows import isrs_of, places_of
from kraft._core.table.images import TableImage
from kraft._core.table.table import PartitionTable
from kraft.records import Record, Uuid

MIGRATING = bytes(16)

State = dict[str, Any]
Plain = dict[str, Any]


class RefusedError(Exception):
    """The record contradicts the state."""


class TableTwin:
    """``topics``: name -> id; ``partitions``: (name, partition id) -> state, in plain form."""

    def __init__(self) -> None:
        self.topics: dict[str, bytes] = {}
        self.partitions: dict[tuple[str, int], State] = {}

    def plain(self) -> Plain:
        return copy.deepcopy({"topics": self.topics, "partitions": self.partitions})

    def apply(self, record: Record) -> None:
        match record:
            case records.Topic(name=name, topic_id=topic_id):
                if name in self.topics or topic_id in self.topics.values():
                    raise RefusedError(record)
                self.topics[name] = bytes(topic_id)
            case records.RemoveTopic(topic_id=topic_id):
                name = self._name(topic_id)
                del self.topics[name]
                for key in [key for key in self.partitions if key[0] == name]:
                    del self.partitions[key]
            case records.Partition():
                self._partition(record)
            case records.PartitionChange():
                self._change(record)
            case records.ClearElr(topic_name=name):
                if name and name not in self.topics:
                    raise RefusedError(record)
                for (topic, _), state in self.partitions.items():
                    if name in ("", topic) and (state["elr"] or state["last_known_elr"]):
                        state["elr"], state["last_known_elr"] = [], []
                        state["partition_epoch"] += 1

    def _partition(self, record: records.Partition) -> None:
        name = self._name(record.topic_id)
        if record.partition_id < 0 or not fits(record.directories, record.replicas):
            raise RefusedError(record)
        self.partitions[name, record.partition_id] = {
            "leader": record.leader,
            "leader_epoch": record.leader_epoch,
            "partition_epoch": record.partition_epoch,
            "leader_recovery_state": record.leader_recovery_state,
            "replicas": record.replicas,
            "directories": spread(record.directories, record.replicas),
            "isr": record.isr,
            "elr": record.eligible_leader_replicas or [],
            "last_known_elr": record.last_known_elr or [],
            "removing_replicas": record.removing_replicas,
            "adding_replicas": record.adding_replicas,
        }

    def _change(self, record: records.PartitionChange) -> None:
        key = self._name(record.topic_id), record.partition_id
        if key not in self.partitions:
            raise RefusedError(record)
        if not fits(record.directories, record.replicas):
            raise RefusedError(record)
        state = dict(self.partitions[key])
        for field, value in (
            ("isr", record.isr),
            ("replicas", record.replicas),
            ("removing_replicas", record.removing_replicas),
            ("adding_replicas", record.adding_replicas),
            ("elr", record.eligible_leader_replicas),
            ("last_known_elr", record.last_known_elr),
        ):
            if value is not None:
                state[field] = value
        if record.leader != -2:
            state["leader"] = record.leader
            state["leader_epoch"] += 1
        if record.leader_recovery_state != -1:
            state["leader_recovery_state"] = record.leader_recovery_state
        directories = state["directories"] if record.directories is None else record.directories
        state["directories"] = spread(directories, state["replicas"])
        state["partition_epoch"] += 1
        self.partitions[key] = state

    def _name(self, topic_id: Uuid) -> str:
        for name, existing in self.topics.items():
            if existing == topic_id:
                return name
        raise RefusedError(topic_id)

    def rows_of_broker(self, broker: int) -> set[tuple[str, int]]:
        """Return the partitions in which a broker is a replica or in the ISR or ELR."""
        return {
            key
            for key, state in self.partitions.items()
            if broker in state["replicas"] or broker in state["isr"] or broker in state["elr"]
        }


def fits(directories: list[Uuid] | None, replicas: list[int] | None) -> bool:
    """Return whether a record that has both lists has as many directories as replicas, or none."""
    return not directories or replicas is None or len(directories) == len(replicas)


def spread(directories: Iterable[bytes], replicas: list[int]) -> list[bytes]:
    """Return one directory for each replica, unknown ones if none is known."""
    ids = [bytes(directory) for directory in directories]
    if all(directory == MIGRATING for directory in ids):
        return [MIGRATING] * len(replicas)
    if len(ids) != len(replicas):
        raise RefusedError("there are not as many directories as replicas")
    return ids


def accepted(log: Iterable[Record]) -> list[Record]:
    """Return the records of ``log`` that a table accepts after those before them."""
    twin, taken = TableTwin(), []
    for record in log:
        try:
            twin.apply(record)
        except RefusedError:
            continue
        taken.append(record)
    return taken


def history(log: list[Record]) -> list[Plain]:
    """Return the state before each record of ``log``, and the state after the last."""
    twin = TableTwin()
    states = [twin.plain()]
    for record in log:
        twin.apply(record)
        states.append(twin.plain())
    return states


def plain_state(table: PartitionTable | TableImage, state: State) -> State:
    """Return the result of ``state_of`` with directory ids in the place of numbers."""
    return state | {"directories": [table.directory_id(n) for n in state["directories"]]}


def plain(table: PartitionTable) -> Plain:
    """Return all of a table in the twin's form."""
    partitions = {}
    for topic in table.topic_numbers():
        name = table.topic_name(topic)
        ids = table.column("partition")
        for row in map(int, table.topic_rows(topic)):
            assert table.row_of(topic, int(ids[row])) == row
            key = name, int(ids[row])
            assert key not in partitions
            partitions[key] = plain_state(table, table.state_of(row))
    assert len(partitions) == table.partition_count == len(table.live_rows())
    return {
        "topics": {table.topic_name(t): table.topic_id_of(t) for t in table.topic_numbers()},
        "partitions": partitions,
    }


def partition_record(
    topic_id: bytes, partition_id: int, state: State, version: int
) -> records.Partition:
    """Return the snapshot's record of a partition, without fields that the version lacks."""
    return records.Partition(
        partition_id=partition_id,
        topic_id=Uuid(topic_id),
        replicas=state["replicas"],
        isr=state["isr"],
        removing_replicas=state["removing_replicas"],
        adding_replicas=state["adding_replicas"],
        leader=state["leader"],
        leader_recovery_state=state["leader_recovery_state"],
        leader_epoch=state["leader_epoch"],
        partition_epoch=state["partition_epoch"],
        directories=[Uuid(each) for each in state["directories"]] if version >= 1 else [],
        eligible_leader_replicas=(state["elr"] or None) if version >= 2 else None,
        last_known_elr=(state["last_known_elr"] or None) if version >= 2 else None,
        version=version,
    )


def plain_image(image: TableImage) -> Plain:
    """Return all of an image in the twin's form, with each partition read in every possible way."""
    partitions = {}
    columns = {
        name: image.column(name)
        for name in ("leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
    }
    topics, ids = image.column("topic"), image.column("partition")
    for topic in image.topic_numbers():
        name = image.topic_name(topic)
        assert image.topic_number(name) == topic
        assert image.topic_number_by_id(image.topic_id_of(topic)) == topic
        for row in map(int, image.topic_rows(topic)):
            state = image.state_of(row)
            assert state == image.partition(name, int(ids[row]))
            assert {
                field: column[row] for field, column in columns.items()
            }.items() <= state.items()
            assert topics[row] == topic
            partitions[name, int(ids[row])] = plain_state(image, state)
            one = np.array([row], np.int32)
            assert [column.tolist() for column in places_of(image, one)] == [[topic], [ids[row]]]
            epoch, isr = isrs_of(image, one)
            assert (epoch.tolist(), isr.tolist()) == ([state["partition_epoch"]], [state["isr"]])
    assert (topics >= 0).sum() == len(partitions)
    return {
        "topics": {image.topic_name(t): image.topic_id_of(t) for t in image.topic_numbers()},
        "partitions": partitions,
    }
