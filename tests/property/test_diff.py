"""Differences of partitions as columns and as objects, against a comparison of every field."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kraft
from kraft import Metadata
from kraft.errors import ReplayError
from kraft.metadata.partition_diff import PARTITION_FIELDS, PartitionDifferences
from kraft.records import FeatureLevel, Partition, PartitionChange, Record, RemoveTopic, Topic, Uuid
from tests.reference.diff_twin import slow_partition_differences

TOPICS = {name: Uuid(bytes([10 + place]) * 16) for place, name in enumerate(("b", "a", "c"))}
DIRECTORIES = [Uuid(bytes([100 + place]) * 16) for place in range(4)]
BROKERS = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)


@st.composite
def partitions(draw: st.DrawFn, topic: Uuid, number: int) -> Partition:
    replicas = draw(BROKERS)
    within = st.lists(st.sampled_from(replicas), max_size=3, unique=True)
    # Most rows fit into the columns, so that columns are compared and not single rows.
    moving = within if draw(st.integers(0, 5)) == 5 else st.just([])
    return Partition(
        number, topic, replicas,
        draw(within),
        adding_replicas=draw(moving),
        removing_replicas=draw(moving),
        leader=draw(st.sampled_from([-1, *replicas])),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(st.integers(0, 2)),
        partition_epoch=draw(st.integers(0, 2)),
        directories=[draw(st.sampled_from(DIRECTORIES)) for _ in replicas],
        eligible_leader_replicas=draw(st.none() | within),
        last_known_elr=draw(st.none() | within),
    )  # fmt: skip


@st.composite
def clusters(draw: st.DrawFn) -> Metadata:
    """Return a few topics, in any order, some removed again; partitions of any shape."""
    made: list[Record] = [FeatureLevel("metadata.version", 30)]
    for name in draw(st.lists(st.sampled_from(sorted(TOPICS)), unique=True)):
        made.append(Topic(name, TOPICS[name]))
        count = draw(st.integers(0, 4))
        made.extend(draw(partitions(TOPICS[name], number)) for number in range(count))
        if draw(st.integers(0, 4)) == 0:
            made.append(RemoveTopic(TOPICS[name]))
    metadata = Metadata()
    metadata.apply(made)
    return metadata


def check(before: Metadata, after: Metadata) -> None:
    differences = kraft.diff(before, after)
    objects = list(differences)
    listed = [each for each in objects if each.kind == "partition"]
    found = {(each.key, each.field, each.before, each.after) for each in listed}
    assert found == slow_partition_differences(before, after)
    assert len(found) == len(listed)
    keys = [each.key for each in listed]
    assert keys == sorted(keys)
    columns = differences.partitions
    assert int(columns.counts().sum()) == len(listed)
    for field in PARTITION_FIELDS:
        of_field = [each.key for each in listed if each.field == field]
        rows = columns.before_rows[columns.where(field)]
        seen = [before.partitions.row(int(row)) for row in rows]
        assert [(each.topic, each.partition) for each in seen] == of_field
    # A sequence, like the list of its objects.
    assert len(differences) == len(objects)
    assert differences == objects
    assert [differences[place] for place in range(-len(objects), len(objects))] == objects * 2
    for cut in (slice(1, 3), slice(None, None, 2), slice(-3, None), slice(None, None, -1)):
        assert differences[cut] == objects[cut]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=clusters(), after=clusters())
def test_the_differences_of_any_two_clusters_equal_the_slow_comparison(
    before: Metadata, after: Metadata
) -> None:
    check(before, after)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=clusters(), data=st.data())
def test_the_differences_of_a_cluster_and_its_later_state_equal_the_slow_comparison(
    before: Metadata, data: st.DataObject
) -> None:
    after = before.at(before.next_offset)
    for info in (
        data.draw(st.lists(st.sampled_from(list(before.partitions)), max_size=4))
        if len(before.partitions)
        else []
    ):
        topic = before.topics[info.topic].id
        change = PartitionChange(
            info.partition,
            topic,
            leader=data.draw(st.sampled_from([-2, -1, *info.replicas])),
            isr=data.draw(st.none() | st.lists(st.sampled_from(info.replicas), unique=True)),
            adding_replicas=data.draw(st.none() | st.just([])),
            removing_replicas=data.draw(st.none() | st.just([])),
        )
        try:
            after.apply(change)
        except ReplayError:
            continue
    assert PartitionDifferences(before.cluster.table, before.cluster.table).fields.tolist() == []
    check(before, after)
