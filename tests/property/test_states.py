"""For any log, the transitions between two images are the whole difference of their states."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft import records
from kraft.image.publishing import Image
from kraft.image.states import partition_transitions, replica_transitions
from kraft.records import Record
from tests.harness.table_records import BROKERS, DIRECTORIES
from tests.property.growing_clusters import LOGS, Growing

Said = dict[tuple[int, int], int]
NODES = st.one_of(
    st.builds(
        records.RegisterBroker,
        broker_id=BROKERS,
        fenced=st.booleans(),
        log_dirs=st.lists(DIRECTORIES.filter(lambda each: int.from_bytes(each) > 2), max_size=2),
    ),
    st.builds(records.FenceBroker, id=BROKERS, epoch=st.just(-1)),
    st.builds(records.UnfenceBroker, id=BROKERS, epoch=st.just(-1)),
    st.builds(records.UnregisterBroker, broker_id=BROKERS, broker_epoch=st.just(-1)),
)


def slow_states(image: Image | None) -> tuple[Said, Said]:
    """Return partition states by (row, 0) and replica states by (row, broker), one by one."""
    partitions: Said = {}
    replicas: Said = {}
    if image is None:
        return partitions, replicas
    for topic in image.table.topic_numbers():
        for row in image.table.topic_rows(topic).tolist():
            state = image.table.state_of(row)
            led = state["leader"] >= 0
            partitions[row, 0] = 2 if led else 1 if state["leader_epoch"] == 0 else 3
            for broker_id, number in reversed(
                list(zip(state["replicas"], state["directories"], strict=True))
            ):
                broker = image.state.brokers.get(broker_id)
                directory = image.table.directory_id(number)
                is_there = broker is not None and not broker.fenced and number != 2
                if is_there and number > 2 and broker is not None and broker.log_dirs:
                    is_there = directory in broker.log_dirs
                if not is_there:
                    said = 3
                elif broker_id in state["adding_replicas"] and broker_id not in state["isr"]:
                    said = 1
                else:
                    said = 2
                replicas[row, broker_id] = said
    return partitions, replicas


def moves(before: Said, after: Said) -> dict[tuple[int, int], tuple[int, int]]:
    return {
        key: (before.get(key, 0), after.get(key, 0))
        for key in before.keys() | after.keys()
        if before.get(key, 0) != after.get(key, 0)
    }


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    log=LOGS,
    nodes=st.lists(NODES, min_size=5, max_size=20),
    places=st.lists(st.integers(0, 60), min_size=20, max_size=20),
    stops=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8), st.booleans()), max_size=6),
)
def test_the_transitions_are_the_differences_of_two_lists_of_states(
    log: list[Record],
    nodes: list[Record],
    places: list[int],
    stops: list[tuple[int, int, bool]],
) -> None:
    mixed = list(log)
    for node, place in zip(nodes, places, strict=False):
        mixed.insert(place, node)
    growing = Growing()
    coming = iter(mixed)
    for count, ahead, compacts in [*stops, (100, 0, False)]:
        for record, _ in zip(coming, range(count), strict=False):
            growing.apply(record)
        if compacts:
            growing.compact()
        before = growing.publishing.image
        offset = max(0 if before is None else before.offset, growing.cluster.next_offset - ahead)
        delta = growing.publishing.publish(offset)
        if delta is None:
            continue
        was, is_now = slow_states(delta.before), slow_states(delta.image)
        partitions = partition_transitions(delta)
        assert list(partitions.rows) == sorted(set(partitions.rows.tolist()))
        assert {
            (row, 0): (old, new)
            for row, old, new in zip(*(each.tolist() for each in partitions), strict=True)
        } == moves(was[0], is_now[0])
        replicas = replica_transitions(delta, growing.cluster)
        assert {
            (row, broker): (old, new)
            for row, broker, old, new in zip(*(each.tolist() for each in replicas), strict=True)
        } == moves(was[1], is_now[1])
