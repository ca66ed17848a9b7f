"""Brokers report the log directories of their replicas."""

from __future__ import annotations

import numpy as np
import pytest

from kraft import records
from kraft.controller.brokers.broker_lifecycle import register_broker
from kraft.controller.brokers.directories import (
    LOST,
    MIGRATING,
    UNASSIGNED,
    DirectoryAssignment,
    assign_replicas_to_dirs,
    is_online,
    take_directories_offline,
)
from kraft.controller.decision import Decision
from kraft.errors import StaleBrokerEpochError, UnsupportedVersionError
from kraft.records import PartitionChange, Uuid
from tests.harness.decisions import Lab, directory, names, registration


class Directories(Lab):
    """A lab in which broker 0 has two directories and every other broker has one."""

    def __init__(self, *, elr: bool = False) -> None:
        super().__init__(3, elr=elr)
        two = registration(0, log_dirs=[directory(0, 0), directory(0, 1)])
        at = self.cluster.next_offset
        self.do(register_broker(self.cluster, two, next_offset=at))

    def assign(self, broker: int, *assignments: DirectoryAssignment) -> Decision[list[np.ndarray]]:
        epoch = self.cluster.state.brokers[broker].epoch
        return assign_replicas_to_dirs(self.cluster, broker, epoch, assignments)

    def directories_of(self, topic: str, partition: int = 0) -> list[Uuid]:
        numbers = self.partition(topic, partition)["directories"]
        assert isinstance(numbers, list)
        return [Uuid(self.cluster.table.directory_id(number)) for number in numbers]


def test_an_assignment_changes_only_its_replica() -> None:
    lab = Directories()
    topic = lab.create("t", [0, 1], [1, 0])
    before = lab.partition("t")
    codes = lab.do(lab.assign(0, DirectoryAssignment(directory(0, 1), topic, [0, 1])))
    assert [list(code) for code in codes] == [[0, 0]]
    assert lab.directories_of("t", 0) == [directory(0, 1), directory(1)]
    assert lab.directories_of("t", 1) == [directory(1), directory(0, 1)]
    after = lab.partition("t")
    assert after["partition_epoch"] == before["partition_epoch"] + 1  # type: ignore[operator]
    assert (after["leader_epoch"], after["isr"]) == (before["leader_epoch"], before["isr"])


def test_an_assignment_to_the_same_directory_writes_nothing() -> None:
    lab = Directories()
    topic = lab.create("t", [0, 1])
    asked = DirectoryAssignment(directory(0, 1), topic, [0])
    lab.do(lab.assign(0, asked))
    again = lab.assign(0, asked)
    assert [list(code) for code in again.response] == [[0]]
    assert names(again) == []


def test_each_partition_has_its_own_error_code() -> None:
    lab = Directories()
    topic = lab.create("t", [0, 1], [1, 2])
    decision = lab.assign(
        0,
        DirectoryAssignment(directory(0, 0), topic, np.array([1, 0, 2, -1], np.int32)),
        DirectoryAssignment(directory(0, 1), Uuid(b"unknown topic id"), [0, 1]),
        DirectoryAssignment(directory(0, 1), topic, []),
    )
    assert [code.tolist() for code in decision.response] == [[6, 0, 3, 3], [100, 100], []]
    assert names(decision) == ["PartitionChange"]


def test_an_assignment_to_a_failed_directory_is_recorded_before_the_broker_leaves() -> None:
    lab = Directories()
    topic = lab.create("t", [0, 1], [1, 0], [1, 2])
    failed = directory(0, 7)
    decision = lab.assign(
        0,
        DirectoryAssignment(failed, topic, [0, 1, 2]),
        DirectoryAssignment(directory(0, 0), topic, [1]),
    )
    changes = [record for record in decision.records if isinstance(record, PartitionChange)]
    assert [(change.partition_id, change.directories, change.isr) for change in changes] == [
        (0, [failed, directory(1)], None),
        (1, [directory(1), failed], None),
        (1, [directory(1), directory(0, 0)], None),
        (0, None, [1]),
        (1, None, [1]),
    ]
    assert [code.tolist() for code in decision.response] == [[0, 0, 6], [0]]
    lab.do(decision)
    assert (lab.partition("t", 0)["leader"], lab.partition("t", 0)["isr"]) == (1, [1])


def test_reserved_directory_ids_are_online_or_lost_as_in_kafka() -> None:
    lab = Directories()
    broker = lab.cluster.state.brokers[0]
    known = [MIGRATING, UNASSIGNED, LOST, directory(0, 1), directory(1)]
    assert [is_online(broker, each) for each in known] == [True, True, False, True, False]
    topic = lab.create("t", [0, 1])
    lab.do(lab.assign(0, DirectoryAssignment(LOST, topic, [0])))
    assert lab.directories_of("t") == [LOST, directory(1)]
    assert lab.partition("t")["isr"] == [1]
    lab.do(lab.assign(0, DirectoryAssignment(UNASSIGNED, topic, [0])))
    assert lab.directories_of("t") == [UNASSIGNED, directory(1)]


def test_an_assignment_triggers_a_due_election() -> None:
    lab = Directories()
    topic = lab.create("t", [0, 1])
    lab.write(PartitionChange(partition_id=0, topic_id=topic, leader=-1))
    lab.do(lab.assign(1, DirectoryAssignment(directory(1), topic, [0])))
    assert lab.partition("t")["leader"] == 0


def test_a_broker_that_leaves_too_small_an_isr_enters_the_elr() -> None:
    lab = Directories(elr=True)
    topic = lab.create("t", [0, 1], min_insync_replicas="2")
    lab.do(lab.assign(0, DirectoryAssignment(directory(0, 7), topic, [0])))
    assert (lab.partition("t")["isr"], lab.partition("t")["elr"]) == ([1], [0])


def test_an_unwritten_directory_leaves_no_trace() -> None:
    lab = Directories()
    topic = lab.create("t", [1, 2])
    seen = lab.cluster.table.directory_id
    count = next(number for number in range(100) if not _is_known(seen, number))
    lab.assign(0, DirectoryAssignment(directory(0, 9), topic, [0]))
    assert not _is_known(seen, count)


def _is_known(seen: object, number: int) -> bool:
    try:
        seen(number)  # type: ignore[operator]
    except IndexError:
        return False
    return True


def test_stale_brokers_and_old_levels_are_rejected() -> None:
    lab = Directories()
    with pytest.raises(StaleBrokerEpochError):
        assign_replicas_to_dirs(lab.cluster, 0, -5, [])
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=16))
    with pytest.raises(UnsupportedVersionError, match="log directories"):
        lab.assign(0)
    with pytest.raises(UnsupportedVersionError, match="log directories"):
        take_directories_offline(lab.cluster, 0, [])


def test_every_failed_directory_leaves_the_isrs() -> None:
    lab = Directories()
    topic = lab.create("t", [0, 1], [0, 2])
    both = [directory(0, 0), directory(0, 1)]
    lab.do(lab.assign(0, *(DirectoryAssignment(both[id], topic, [id]) for id in (0, 1))))
    lab.do(take_directories_offline(lab.cluster, 0, both))
    for id, other in ((0, 1), (1, 2)):
        partition = lab.partition("t", id)
        assert (partition["leader"], partition["isr"]) == (other, [other])
