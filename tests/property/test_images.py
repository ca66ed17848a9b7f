"""For any log, an image never changes, and a delta contains all changes between two images."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft._core.table.images import TableDelta, TableImage
from kraft._core.table.table import PartitionTable
from kraft.errors import InvalidRequestError
from kraft.records import Record
from tests.harness.table_records import LOGS, apply, batches_of
from tests.reference.table_twin import Plain, accepted, history, plain, plain_image, plain_state

SIZES = st.lists(st.integers(1, 8), max_size=12)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "image", "drop", "revert", "forget", "look"]), st.integers(0, 60)
    ),
    max_size=40,
)
some_logs = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@some_logs
@given(log=LOGS, turns=TURNS, stride=st.sampled_from([1, 2, 3, 8]))
def test_an_image_never_changes(
    log: list[Record], turns: list[tuple[str, int]], stride: int
) -> None:
    log = accepted(log)
    states = history(log)
    table = PartitionTable(stride=stride)
    table.start_journal(0)
    reached = 0
    images: list[TableImage] = []
    for turn, number in turns:
        if turn == "apply":
            end = min(reached + number % 9, len(log))
            for _, batch in batches_of(log[:end], []):
                apply(table, batch, start_offset=reached)
            reached = max(reached, end)
        elif turn == "image":
            reach = reached + 1 - table.journal_start_offset
            images.append(table.image(table.journal_start_offset + number % reach))
        elif turn == "drop" and images:
            del images[number % len(images)]
        elif turn == "forget":
            table.forget(min(number, reached))
        elif turn == "look" and images:
            image = images[number % len(images)]
            assert plain_image(image) == states[image.offset]
        elif turn == "revert" and number >= table.journal_start_offset:
            if any(image.offset > number for image in images):
                with pytest.raises(InvalidRequestError, match="in use"):
                    table.revert(number)
            else:
                table.revert(number)
                reached = min(reached, number)
    assert plain(table) == states[reached]
    for image in images:
        assert image.offset >= table.journal_start_offset
        assert plain_image(image) == states[image.offset]
        solid = PartitionTable.from_image(image)
        assert plain(solid) == states[image.offset]
        assert solid.row_count == solid.partition_count


@some_logs
@given(log=LOGS, sizes=SIZES, data=st.data())
def test_a_delta_has_all_changes(log: list[Record], sizes: list[int], data: st.DataObject) -> None:
    log = accepted(log)
    states = history(log)
    table = PartitionTable()
    table.start_journal(0)
    middle = data.draw(st.integers(0, len(log)))
    since = data.draw(st.integers(0, middle))
    for _, batch in batches_of(log[:middle], sizes):
        apply(table, batch)
    delta = table.delta(since, middle)
    for _, batch in batches_of(log, sizes):
        apply(table, batch, start_offset=middle)
    check_delta(delta, states[since], states[middle])


def check_delta(delta: TableDelta, before: Plain, after: Plain) -> None:
    ids = delta.after.column("partition")
    topics = delta.after.column("topic")

    def key(row: int) -> tuple[str, int]:
        return delta.after.topic_name(int(topics[row])), int(ids[row])

    changed = delta.rows_changed.tolist()
    assert changed == sorted(set(changed))
    added = [row for first, last in delta.rows_added for row in range(first, last)]
    named = {key(row): row for row in changed + added}
    assert len(named) == len(changed) + len(added)
    # An entity that was removed and created again under its name is new, even if it looks the same.
    gone = {delta.before.topic_name(topic) for topic in delta.topics_removed}
    come = {delta.after.topic_name(topic) for topic in delta.topics_added}
    assert gone - come == before["topics"].keys() - after["topics"].keys()
    assert come - gone == after["topics"].keys() - before["topics"].keys()
    for partition, state in after["partitions"].items():
        if before["partitions"].get(partition) != state:
            assert partition in named
    for row in changed:
        assert (
            plain_state(delta.before, delta.before.state_of(row))
            == (before["partitions"][key(row)])
        )
        assert plain_state(delta.after, delta.after.state_of(row)) == after["partitions"][key(row)]
    for row in added:
        assert key(row) in after["partitions"]
        assert key(row) not in before["partitions"] or key(row)[0] in gone & come
