"""Partition and replica states derived from the metadata, and their transitions."""

from __future__ import annotations

from typing import Any

from kraft import records
from kraft.image.publishing import ImageDelta
from kraft.image.states import (
    PartitionState,
    ReplicaState,
    partition_states,
    partition_transitions,
    replica_states,
    replica_transitions,
)
from kraft.records import Record, Uuid
from tests.harness.publishing import TOPIC, PublishedCluster

DIRECTORY = Uuid(b"\x11" * 16)
FAILED = Uuid(b"\x22" * 16)
P, R = PartitionState, ReplicaState


def broker(broker_id: int, **fields: Any) -> Record:
    return records.RegisterBroker(
        broker_id=broker_id, broker_epoch=1, **{"fenced": False, "log_dirs": [DIRECTORY], **fields}
    )


def partition(number: int, **fields: Any) -> Record:
    wanted = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0, **fields}
    return records.Partition(partition_id=number, topic_id=TOPIC, **wanted)


def change(number: int, **fields: Any) -> Record:
    return records.PartitionChange(partition_id=number, topic_id=TOPIC, **fields)


def lab_with(*log: Record) -> PublishedCluster:
    lab = PublishedCluster()
    lab.append(
        records.FeatureLevel("metadata.version", 30),
        broker(1),
        broker(2),
        records.Topic(name="a", topic_id=TOPIC),
        *log,
    )
    lab.publish()
    return lab


def moves_of_partitions(delta: ImageDelta) -> list[tuple[int, PartitionState, PartitionState]]:
    moved = partition_transitions(delta)
    return [
        (row, P(before), P(after))
        for row, before, after in zip(
            moved.rows.tolist(), moved.before.tolist(), moved.after.tolist(), strict=True
        )
    ]


def moves_of_replicas(
    lab: PublishedCluster, delta: ImageDelta
) -> list[tuple[int, int, ReplicaState, ReplicaState]]:
    moved = replica_transitions(delta, lab.cluster)
    return [
        (row, broker_id, R(before), R(after))
        for row, broker_id, before, after in zip(
            moved.rows.tolist(),
            moved.brokers.tolist(),
            moved.before.tolist(),
            moved.after.tolist(),
            strict=True,
        )
    ]


def test_a_partition_is_new_before_its_first_leader_and_offline_after_it() -> None:
    lab = lab_with(
        partition(0),
        partition(1, leader=-1, isr=[]),
        partition(2, leader=-1, leader_epoch=3),
    )
    image = lab.publishing.image
    assert image is not None
    assert partition_states(image).tolist() == [P.ONLINE, P.NEW, P.OFFLINE]


def test_a_removed_topic_leaves_rows_without_a_partition() -> None:
    lab = lab_with(partition(0))
    lab.append(records.RemoveTopic(topic_id=TOPIC))
    delta = lab.publish()
    assert partition_states(delta.image).tolist() == [P.NON_EXISTENT]
    assert moves_of_partitions(delta) == [(0, P.ONLINE, P.NON_EXISTENT)]
    assert moves_of_replicas(lab, delta) == [
        (0, 1, R.ONLINE, R.NON_EXISTENT),
        (0, 2, R.ONLINE, R.NON_EXISTENT),
    ]


def test_a_partition_goes_offline_with_its_last_leader() -> None:
    lab = lab_with(partition(0), partition(1))
    lab.append(change(1, leader=-1), change(0, leader=2))
    assert moves_of_partitions(lab.publish()) == [(1, P.ONLINE, P.OFFLINE)]


def test_a_replica_goes_offline_with_its_fenced_broker_without_a_record_of_its_partition() -> None:
    lab = lab_with(partition(0, isr=[1]), partition(1, replicas=[1], isr=[1]))
    lab.append(records.FenceBroker(id=2, epoch=1))
    delta = lab.publish()
    assert delta.rows_changed.tolist() == []
    assert moves_of_replicas(lab, delta) == [(0, 2, R.ONLINE, R.OFFLINE)]
    assert moves_of_partitions(delta) == []
    lab.append(records.UnregisterBroker(broker_id=2, broker_epoch=1))
    assert moves_of_replicas(lab, lab.publish()) == []


def test_a_replica_is_offline_in_a_directory_that_its_broker_has_lost() -> None:
    lab = lab_with(
        broker(1, log_dirs=[DIRECTORY, FAILED]),
        partition(0, directories=[FAILED, DIRECTORY]),
    )
    lab.append(
        records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, log_dirs=[DIRECTORY]),
    )
    assert moves_of_replicas(lab, lab.publish()) == [(0, 1, R.ONLINE, R.OFFLINE)]


def test_a_replica_that_is_added_is_new_until_it_is_in_sync() -> None:
    lab = lab_with(broker(3), partition(0))
    lab.append(change(0, replicas=[1, 2, 3], adding_replicas=[3]))
    assert moves_of_replicas(lab, lab.publish()) == [(0, 3, R.NON_EXISTENT, R.NEW)]
    lab.append(change(0, isr=[1, 2, 3]))
    assert moves_of_replicas(lab, lab.publish()) == [(0, 3, R.NEW, R.ONLINE)]
    lab.append(change(0, replicas=[1, 3], isr=[1, 3], adding_replicas=[]))
    assert moves_of_replicas(lab, lab.publish()) == [(0, 2, R.ONLINE, R.NON_EXISTENT)]


def test_a_full_delta_lists_everything() -> None:
    lab = PublishedCluster()
    lab.append(
        broker(1),
        records.Topic(name="a", topic_id=TOPIC),
        partition(0),
    )
    delta = lab.publish()
    assert moves_of_partitions(delta) == [(0, P.NON_EXISTENT, P.ONLINE)]
    assert moves_of_replicas(lab, delta) == [
        (0, 1, R.NON_EXISTENT, R.ONLINE),
        (0, 2, R.NON_EXISTENT, R.OFFLINE),
    ]


def test_states_are_those_of_the_image_and_not_of_the_present() -> None:
    lab = lab_with(partition(0))
    lab.append(change(0, leader=-1))
    committed = lab.cluster.next_offset
    lab.append(change(0, leader=2, replicas=[2, 3], isr=[2]), records.RemoveTopic(topic_id=TOPIC))
    lab.append(records.FenceBroker(id=2, epoch=1))
    delta = lab.publish(committed)
    assert partition_states(delta.image).tolist() == [P.OFFLINE]
    brokers, states = replica_states(delta.image)
    assert brokers.tolist() == [[1, 2]]
    assert states.tolist() == [[R.ONLINE, R.ONLINE]]
    assert moves_of_partitions(delta) == [(0, P.ONLINE, P.OFFLINE)]
    # Changes after the image are part of the next publication.
    assert moves_of_replicas(lab, delta) == []
    assert len(moves_of_replicas(lab, lab.publish())) == 2
