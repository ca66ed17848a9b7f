"""apply_delta: replicas that are created, deleted, led, followed (ReplicaManager)."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from kraft import records
from kraft.broker.replication.local_changes import local_changes
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.replication_output import ReplicaDirectory
from kraft.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kraft.image.publishing import Image, ImageDelta, ImagePublishing
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records
from tests.harness.joined_brokers import DIRECTORY, P0, TOPIC, JoinedBrokers

OTHER_DIRECTORY = Uuid(b"d" * 15 + b"2")


def test_roles_follow_the_metadata() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    assert cluster[1].partition().is_leader
    assert cluster[2].manager.fetching.leader_of(P0) == 1
    cluster.change(leader=2)
    assert cluster[2].partition().is_leader
    assert cluster[2].manager.fetching.leader_of(P0) is None
    assert cluster[1].manager.fetching.leader_of(P0) == 2
    cluster.change(leader=-1)
    assert not cluster[2].partition().is_leader
    assert cluster[1].manager.fetching.leader_of(P0) is None


def test_a_follower_restarts_its_fetches_only_in_a_new_epoch() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster.change(isr=[1])
    assert cluster[2].output.fetches == []
    cluster.change(leader=1)
    assert cluster[2].partition().leader_epoch == 1


def test_a_replica_that_is_reassigned_away_is_deleted() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster.change(replicas=[1], isr=[1], directories=[DIRECTORY])
    assert P0 not in cluster[2].manager.partitions
    assert cluster[2].store.logs == {}
    assert P0 in cluster[1].manager.partitions


def test_a_topic_that_is_created_again_is_another_one() -> None:
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    cluster[1].produce()
    again = Uuid(b"u" * 16)
    cluster.append(
        records.RemoveTopic(topic_id=TOPIC),
        records.Topic(name="a", topic_id=again),
        records.Partition(
            partition_id=0,
            topic_id=again,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        ),
    )
    (id,) = cluster[1].manager.partitions
    assert id == PartitionId(bytes(again), 0)
    assert cluster[1].log(id).end_offset == 0
    assert list(cluster[1].store.logs) == [id]


def test_a_full_delta_drops_what_it_does_not_name() -> None:
    """A snapshot replaces the state: rows have other numbers then."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster.create(leader=1, partition=1)
    broker = cluster[1]
    kept = broker.partition(P0)
    state = MetadataState(journaling=True)
    state.apply(
        encode_records(
            [
                records.Topic(name="other", topic_id=Uuid(b"o" * 16)),
                records.Topic(name="a", topic_id=TOPIC),
                records.Partition(
                    partition_id=0,
                    topic_id=TOPIC,
                    replicas=[1, 2],
                    isr=[1, 2],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY, DIRECTORY],
                ),
            ]
        )
    )
    broker.state = state
    broker.images.replace_cluster(state)
    broker.images.publish(state.next_offset)
    assert list(broker.manager.partitions) == [P0]
    assert broker.partition(P0) is kept


# -- directories (KIP-858)


def test_a_log_in_another_directory_is_reported() -> None:
    """ReplicaManager.maybeUpdateTopicAssignment."""
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    assert cluster[1].output.directories == []
    cluster.change(directories=[OTHER_DIRECTORY])
    assert cluster[1].output.directories == [ReplicaDirectory(P0, bytes(DIRECTORY))]


def test_a_failed_directory_takes_its_replicas_offline() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    assert leader.produce() is None
    leader.manager.directory_failed(bytes(OTHER_DIRECTORY), 0.0)
    assert leader.partition().is_leader
    leader.store.fail(bytes(DIRECTORY))
    leader.manager.directory_failed(bytes(DIRECTORY), 0.0)
    leader.take()
    assert leader.answers["produce"][P0].error == KAFKA_STORAGE_ERROR
    fetched = leader.fetch(0)
    assert fetched is not None
    assert fetched.error == KAFKA_STORAGE_ERROR
    assert leader.manager.high_watermarks() == {}
    # The log may be in the failed directory: none is created elsewhere.
    cluster.change(leader=1)
    assert leader.partition().log is None


# -- controlled shutdown


def test_a_stopping_broker_does_not_fetch_what_left_it() -> None:
    """applyLocalFollowersDelta: no leader, or out of the ISR, during a controlled shutdown."""
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1)
    cluster.create(leader=1, partition=1)
    broker = cluster[1]
    broker.manager.begin_controlled_shutdown()
    cluster.change(leader=2, isr=[2, 3])
    assert broker.manager.fetching.leader_of(P0) is None
    cluster.change(partition=1, leader=2)
    assert broker.manager.fetching.leader_of(P0._replace(partition=1)) == 2


def test_a_stopping_leader_serves_until_it_is_replaced() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].manager.begin_controlled_shutdown()
    produced = cluster[1].produce(acks=1)
    assert produced is not None
    assert produced.error == NONE


# -- uncommitted records in the state of a combined node that leads the quorum


def test_a_replica_that_an_uncommitted_record_removes_is_hosted_all_the_same() -> None:
    """The leader of the quorum decided to add and to remove it; only the first is committed."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster.change(replicas=[1], isr=[1], directories=[DIRECTORY])
    combined = cluster[2]
    assert P0 not in combined.manager.partitions
    added = change(replicas=[1, 2], directories=[DIRECTORY] * 2)
    combined.apply(added)
    committed = combined.state.next_offset
    combined.apply(change(replicas=[1], directories=[DIRECTORY]))
    combined.images.publish(committed)
    assert combined.manager.fetching.leader_of(P0) == 1
    # Another node leads now, and the second change is lost; the next one is of other partitions.
    combined.state.revert(committed)
    combined.apply(records.Topic(name="b", topic_id=Uuid(b"u" * 16)))
    combined.images.publish(combined.state.next_offset)
    assert P0 in combined.manager.partitions


def test_an_uncommitted_replica_is_not_hosted() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster.change(replicas=[1], isr=[1], directories=[DIRECTORY])
    combined = cluster[2]
    combined.apply(change(isr=[1]))
    committed = combined.state.next_offset
    combined.apply(change(replicas=[1, 2], directories=[DIRECTORY] * 2))
    combined.images.publish(committed)
    assert P0 not in combined.manager.partitions


def test_a_partition_of_an_uncommitted_topic_is_unknown() -> None:
    cluster = JoinedBrokers(1)
    combined = cluster[1]
    cluster.create(leader=1)
    again = Uuid(b"u" * 16)
    committed = combined.state.next_offset
    combined.apply(records.Topic(name="b", topic_id=again), records.RemoveTopic(topic_id=TOPIC))
    combined.images.publish(committed)
    errors = []
    for id in (PartitionId(bytes(again), 0), P0._replace(partition=5)):
        fetched = combined.fetch(0, id=id)
        assert fetched is not None
        errors.append(fetched.error)
    assert errors == [UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION]


def test_a_compaction_changes_no_role_and_later_changes_find_the_new_rows() -> None:
    cluster = JoinedBrokers(1, 2)
    gone = Uuid(b"g" * 16)
    cluster.append(
        records.Topic(name="gone", topic_id=gone),
        *(records.Partition(partition_id=each, topic_id=gone, replicas=[1]) for each in range(5)),
    )
    for each in range(3):
        cluster.create(leader=1, partition=each)
    cluster.append(records.RemoveTopic(topic_id=gone))
    for broker in cluster.brokers.values():
        assert (broker.state.table.row_count, len(broker.manager.partitions)) == (8, 3)
        hosted = {id: broker.partition(id) for id in broker.manager.partitions}
        held = broker.images.image
        broker.compact()
        assert broker.state.table.row_count == 3
        assert held is not None
        assert held.table.row_count == 8
        assert hosted == broker.manager.partitions
        assert broker.output.fetches == broker.output.directories == []
    cluster.change(partition=1, leader=2)
    p1, p2 = (PartitionId(bytes(TOPIC), each) for each in (1, 2))
    assert cluster[2].partition(p1).is_leader
    assert cluster[1].manager.fetching.leader_of(p1) == 2
    assert cluster[2].manager.fetching.leader_of(P0) == 1
    cluster.change(partition=0, replicas=[1], isr=[1], directories=[DIRECTORY])
    assert cluster[2].manager.partitions.keys() == {p1, p2}
    assert cluster[1].manager.partitions.keys() == {P0, p1, p2}
    cluster.append(records.RemoveTopic(topic_id=TOPIC))
    assert cluster[1].manager.partitions == cluster[2].manager.partitions == {}


def change(**fields: Any) -> Record:
    return records.PartitionChange(partition_id=0, topic_id=TOPIC, **fields)


# -- set arithmetic beside a loop over all partitions


class Recorder:
    """A publisher that compares `local_changes` with a look at every partition."""

    name = "recorder"

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.hosted: dict[int, PartitionId] = {}
        self.checked = 0

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        hosted = np.sort(np.fromiter(self.hosted, np.int32))
        changes = local_changes(delta, image, self.broker_id, hosted)
        for row in changes.removed_rows:
            self.hosted.pop(row, None)
        for local in (*changes.leaders, *changes.followers):
            self.hosted[local.row] = local.id
            assert (local.assignment.leader == self.broker_id) == (local in changes.leaders)
        expected = {}
        for topic in image.table.topic_numbers():
            for number, row in enumerate(image.table.topic_rows(topic)):
                if self.broker_id in image.table.state_of(int(row))["replicas"]:
                    expected[int(row)] = PartitionId(image.table.topic_id_of(topic), number)
        assert self.hosted == expected
        self.checked += len(expected)


@pytest.mark.parametrize("seed", range(3))
def test_local_changes_equal_a_loop_over_all_partitions(seed: int) -> None:
    """Also where the state is ahead of the image, and where what is ahead is reverted."""
    random = Random(seed)
    state = MetadataState(journaling=True)
    images = ImagePublishing(state, lambda name, error: (_ for _ in ()).throw(error))
    recorder = Recorder(1)
    images.register(recorder)
    #: The number of partitions of each topic, as of each offset that may be reverted to.
    topics: dict[Uuid, int] = {}
    committed: list[tuple[int, dict[Uuid, int]]] = []
    for step in range(150):
        for _ in range(random.randint(1, 4)):
            batch = encode_records(changed(topics, step, random), base_offset=state.next_offset)
            state.apply(batch)
            committed.append((state.next_offset, dict(topics)))
        place = random.randrange(len(committed))
        offset, then = committed[place]
        images.publish(offset)
        del committed[: place + 1]
        if random.random() < 0.3:
            state.revert(offset)
            committed, topics = [], dict(then)
        committed.insert(0, (offset, then))
    assert recorder.checked > 1_000


def changed(topics: dict[Uuid, int], step: int, random: Random) -> list[Record]:
    """Return the records of a random change, and note it in ``topics``."""
    draw = random.random()
    if draw < 0.4 or not topics:
        topic_id = Uuid(b"\7" + random.randbytes(15))
        topics[topic_id] = count = random.randint(1, 4)
        new: list[Record] = [
            records.Topic(name=f"topic-{step}-{topic_id.hex()}", topic_id=topic_id)
        ]
        return new + [partition(topic_id, number, random) for number in range(count)]
    topic_id = random.choice(list(topics))
    if draw < 0.5:
        del topics[topic_id]
        return [records.RemoveTopic(topic_id=topic_id)]
    replicas = random.sample(range(1, 6), 3)
    return [
        records.PartitionChange(
            partition_id=random.randrange(topics[topic_id]),
            topic_id=topic_id,
            replicas=replicas,
            directories=[DIRECTORY] * 3,
            isr=replicas,
            leader=random.choice(replicas),
        )
    ]


def partition(topic_id: Uuid, number: int, random: Random) -> Record:
    replicas = random.sample(range(1, 6), 3)
    return records.Partition(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY] * 3,
    )
