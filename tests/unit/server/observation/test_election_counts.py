"""Elections are counted as Kafka's TopicDelta counts them, from the first image on."""

from __future__ import annotations

import random

from kraft import records
from kraft._core.table.table import PartitionTable
from kraft.records import Record, Uuid
from kraft.server.observation.election_counts import ElectionCounter, ElectionCounts
from tests.harness.publishing import PublishedCluster
from tests.harness.table_records import batch_of

TOPIC = Uuid(b"\1" * 16)
RECOVERING = 1


def topic(*replicas: list[int]) -> list[Record]:
    """Return a topic whose partitions have all but the first replica in their ELR."""
    return [
        records.Topic(name="t", topic_id=TOPIC),
        *(
            records.Partition(
                partition_id=id,
                topic_id=TOPIC,
                replicas=of,
                isr=of[:1],
                eligible_leader_replicas=of[1:],
                leader=of[0],
                version=2,
            )
            for id, of in enumerate(replicas)
        ),
    ]


def change(id: int, leader: int = -2, recovery: int = -1, **fields: list[int]) -> Record:
    return records.PartitionChange(
        partition_id=id,
        topic_id=TOPIC,
        leader=leader,
        leader_recovery_state=recovery,
        version=2,
        **fields,
    )


def test_a_table_counts_elections_of_regular_and_irregular_rows() -> None:
    for replicas in ([1, 2, 3], list(range(1, 13))):
        table = PartitionTable()
        table.apply(batch_of(topic(replicas, replicas)))
        assert table.election_counts == (0, 0)
        table.apply(batch_of([change(0, 2, isr=[2], eligible_leader_replicas=[3])], base_offset=9))
        assert table.election_counts == (0, 1)
        # 2 is no longer in the ELR, and a change without a leader elects nobody.
        table.apply(batch_of([change(0, 2), change(1, isr=[1, 2])], base_offset=10))
        assert table.election_counts == (0, 1)
        unclean = [change(1, 77, RECOVERING, isr=[77]), change(1, recovery=0)]
        table.apply(batch_of(unclean, base_offset=12))
        assert table.election_counts == (1, 1)
        table.apply(batch_of([change(0, -1), change(0, 3)], base_offset=14))
        assert table.election_counts == (1, 2)


def test_random_changes_count_as_a_record_by_record_reference() -> None:
    dice = random.Random(7)
    table = PartitionTable()
    table.apply(batch_of(topic([1, 2, 3], [2, 3, 4], list(range(1, 12)))))
    unclean = eligible = 0
    for offset in range(4, 404):
        id = dice.randrange(3)
        state = table.state_of(id)
        leader = dice.choice([-2, -1, *range(1, 6)])
        recovery = dice.choice([-1, -1, 0, RECOVERING])
        fields = {}
        if dice.random() < 0.5:
            fields["eligible_leader_replicas"] = dice.sample(state["replicas"], dice.randrange(3))
        eligible += leader in state["elr"]
        unclean += recovery == RECOVERING
        table.apply(batch_of([change(id, leader, recovery, **fields)], base_offset=offset))
        assert table.election_counts == (unclean, eligible)
    assert unclean > 50
    assert eligible > 20


def test_records_before_the_first_image_do_not_count() -> None:
    lab = PublishedCluster()
    lab.append(records.FeatureLevel("metadata.version", 30), *topic([1, 2], [2, 1]))
    lab.append(change(0, 2, RECOVERING))
    counter = ElectionCounter(lambda: lab.cluster.table)
    lab.publishing.register(counter)
    lab.publish()
    assert counter.counts == ElectionCounts()
    lab.append(change(1, 1), change(0, 1, RECOVERING))
    lab.publish()
    assert counter.counts == ElectionCounts(unclean=1, eligible=1)
    # After a failure of the publisher its next delta is full: old records do not count twice.
    lab.publishing.unregister(counter)
    lab.publishing.register(counter)
    lab.append(records.NoOp())
    lab.publish()
    assert counter.counts == ElectionCounts(unclean=1, eligible=1)
