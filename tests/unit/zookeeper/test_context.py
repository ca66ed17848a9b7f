"""The context keeps tuples beside the compiled columns: both must have the same."""

from __future__ import annotations

import random

import pytest

from kraft.zookeeper.context import ControllerContext, Leadership
from kraft.zookeeper.states import PartitionKey, ZkPartitionState, ZkReplicaState


def test_generated_changes_are_the_same_in_columns_and_tuples() -> None:
    choices = random.Random(7)
    context = ControllerContext()
    expected: dict[PartitionKey, tuple[tuple[int, ...], Leadership | None]] = {}

    def leadership(replicas: tuple[int, ...]) -> Leadership | None:
        if choices.random() < 0.4:
            return None
        number = choices.randrange(100)
        return Leadership(choices.choice((-1, replicas[0])), number, replicas[:2], 3, number + 1)

    def replicas() -> tuple[int, ...]:
        # More than eight do not fit in a row of the columns.
        return tuple(choices.sample(range(20), choices.randrange(1, 12)))

    for _ in range(300):
        topic = choices.choice("abcd")
        known = [key for key in expected if key[0] == topic]
        what = choices.random()
        if what < 0.1:
            context.remove_topic(topic)
            for key in known:
                del expected[key]
        elif what < 0.4:
            numbers = set(choices.sample(range(40), 4)) - {number for _, number in known}
            added = {(topic, number): replicas() for number in numbers}
            leaders = {key: found for key, ids in added.items() if (found := leadership(ids))}
            context.add_partitions(topic, {key[1]: ids for key, ids in added.items()}, leaders)
            expected |= {key: (ids, leaders.get(key)) for key, ids in added.items()}
        elif known and what < 0.7:
            key = choices.choice(known)
            found = leadership(expected[key][0])
            if found is not None:
                context.set_leaderships([(key, found)])
                expected[key] = expected[key][0], found
        elif known:
            key = choices.choice(known)
            ids, found = replicas(), expected[key][1]
            if found is None or set(found.isr) <= set(ids):
                context.set_assignment(key, ids)
                expected[key] = ids, found
        assert sorted(context.partitions()) == sorted(expected)
        for key, (ids, found) in expected.items():
            assert context.has_partition(key)
            assert (context.assignment(key), context.leadership(key)) == (ids, found)
            (row,) = (
                row
                for row in context._table.topic_rows(context._table.topic_number(key[0]))
                if context._table.column("partition")[row] == key[1]
            )
            state = context._table.state_of(row)
            assert tuple(state["replicas"]) == ids
            if found is None:
                assert (state["leader"], state["leader_epoch"]) == (-1, -1)
            else:
                assert (state["leader"], state["leader_epoch"]) == found[:2]
                assert (tuple(state["isr"]), state["partition_epoch"]) == (found[2], found[4])


def test_a_topic_that_is_created_again_has_no_states() -> None:
    context = ControllerContext()
    key, replica = ("a", 0), (("a", 0), 1)
    with pytest.raises(KeyError, match="there is no partition a-0"):
        context.set_replica_state(replica, ZkReplicaState.ONLINE)
    context.add_partitions("a", {0: (1, 2)})
    context.set_partition_state(key, ZkPartitionState.ONLINE)
    context.set_replica_state(replica, ZkReplicaState.ONLINE)
    context.remove_topic("a")
    assert (context.has_partition(key), context.leadership(key)) == (False, None)
    with pytest.raises(KeyError, match="there is no partition a-0"):
        context.assignment(key)
    context.add_partitions("a", {0: (1, 2)})
    assert context.partition_state(key) is ZkPartitionState.NON_EXISTENT
    assert context.replica_state(replica) is ZkReplicaState.NON_EXISTENT
