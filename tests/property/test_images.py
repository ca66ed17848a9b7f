"""For any log, an image never changes, and a delta contains all changes between two images."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kraft import records
from kraft._core.table.compaction import Compaction
from kraft._core.table.images import TableDelta, TableImage
from kraft._core.table.table import PartitionTable
from kraft.errors import InvalidRequestError, ReplayError
from kraft.records import Record
from tests.harness.table_records import LOGS, apply, batches_of
from tests.reference.table_twin import (
    Plain,
    TableTwin,
    accepted,
    history,
    plain,
    plain_image,
    plain_state,
)

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
            images.append(table.image(offset_to_reach(table, reached, number)))
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


def offset_to_reach(table: PartitionTable, reached: int, number: int) -> int:
    """Return one of the offsets of which the table can make an image."""
    return table.journal_start_offset + number % (reached + 1 - table.journal_start_offset)


class Compacted:
    """A table that is compacted in steps, and images, deltas and columns that are held meanwhile.

    ``states`` are the twin's states of the log by offset.
    """

    def __init__(self, log: list[Record], stride: int) -> None:
        self.log = log
        self.states = history(log)
        self.table = PartitionTable(stride=stride)
        self.table.start_journal(0)
        self.reached = 0
        self.compaction: Compaction | None = None
        self.is_changed = False
        #: Those of before the last compaction are retired: they do not hold back the table.
        self.images: list[TableImage] = []
        self.retired_images: list[TableImage] = []
        self.deltas: list[TableDelta] = []
        self.retired_deltas: list[TableDelta] = []
        #: Columns of compacted tables, and what they held.
        self.columns: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def apply(self, number: int) -> None:
        end = min(self.reached + number % 9, len(self.log))
        for _, batch in batches_of(self.log[:end], []):
            apply(self.table, batch, start_offset=self.reached)
        self.is_changed |= end > self.reached
        self.reached = end

    def image(self, number: int) -> None:
        self.images.append(self.table.image(offset_to_reach(self.table, self.reached, number)))

    def delta(self, number: int) -> None:
        since = offset_to_reach(self.table, self.reached, number)
        self.deltas.append(self.table.delta(since, since + number % (self.reached + 1 - since)))

    def drop(self, number: int) -> None:
        """Drop some of what is held."""
        for held in (self.images, self.retired_images, self.deltas, self.retired_deltas):
            if held and number % 2:
                del held[number % len(held)]
            number //= 2

    def look(self, number: int) -> None:
        every = [*self.images, *self.retired_images]
        if every:
            image = every[number % len(every)]
            assert plain_image(image) == self.states[image.offset]

    def index(self, number: int) -> None:
        self.table.ensure_index(number)

    def revert(self, number: int) -> None:
        offsets = [image.offset for image in self.images]
        newest = max(offsets + [delta.offset for delta in self.deltas], default=0)
        if max(self.table.journal_start_offset, newest) <= number <= self.reached:
            self.table.revert(number)
            self.reached = number
            self.is_changed = True

    def forget(self, number: int) -> None:
        self.table.forget(min(number, self.reached))

    def begin(self, number: int) -> None:
        self.table.forget(self.reached)
        self.compaction = self.table.begin_compaction()
        self.is_changed = False

    def step(self, number: int) -> None:
        if self.compaction is not None:
            try:
                self.compaction.step(number)
            except ReplayError:
                self.rejected()

    def finish(self, number: int) -> None:
        if self.compaction is None:
            self.begin(number)
        assert self.compaction is not None
        columns = [self.table.column(name) for name in ("leader", "topic", "replicas", "isr")]
        held = [(column, column.copy()) for column in columns]
        try:
            self.compaction.finish()
        except ReplayError:
            self.rejected()
            return
        self.compaction = None
        self.columns += held
        self.retired_images += self.images
        self.retired_deltas += self.deltas
        self.images.clear()
        self.deltas.clear()
        assert self.table.row_count == self.table.partition_count
        assert self.table.journal_length == 0

    def rejected(self) -> None:
        assert self.is_changed
        self.compaction = None
        assert plain(self.table) == self.states[self.reached]

    def check(self) -> None:
        """Compare everything with the twin."""
        now = TableTwin()
        now.partitions = self.states[self.reached]["partitions"]
        assert plain(self.table) == self.states[self.reached]
        ids, topics = self.table.column("partition"), self.table.column("topic")
        for broker in range(10):
            rows = map(int, self.table.broker_rows(broker))
            found = [(self.table.topic_name(int(topics[row])), int(ids[row])) for row in rows]
            assert len(set(found)) == len(found)
            assert set(found) == now.rows_of_broker(broker)
        for delta in (*self.deltas, *self.retired_deltas):
            check_delta(delta, self.states[delta.since_offset], self.states[delta.offset])
        for image in (*self.images, *self.retired_images):
            assert plain_image(image) == self.states[image.offset]
            assert plain(PartitionTable.from_image(image)) == self.states[image.offset]
        for column, held in self.columns:
            assert (column == held).all()


@some_logs
@given(
    log=LOGS,
    turns=st.lists(
        st.tuples(
            st.sampled_from(
                ["apply", "apply", "image", "image", "delta", "drop", "look", "index", "revert",
                 "forget", "begin", "step", "step", "finish", "finish"]
            ),
            st.integers(0, 60),
        ),
        max_size=50,
    ),
    stride=st.sampled_from([1, 2, 3, 8]),
)  # fmt: skip
def test_images_and_deltas_stay_what_they_were_over_compactions(
    log: list[Record], turns: list[tuple[str, int]], stride: int
) -> None:
    compacted = Compacted(accepted(log), stride)
    for turn, number in turns:
        getattr(compacted, turn)(number)
    compacted.check()


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
    check_steps(delta, log, states)


def check_steps(delta: TableDelta, log: list[Record], states: list[Plain]) -> None:
    """Compare ``row_steps`` with what the records of the log found, one after the other."""
    names, ids = delta.after.column("topic"), delta.after.column("partition")
    found: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for row, *step in zip(*(column.tolist() for column in delta.row_steps()), strict=True):
        key = delta.after.topic_name(int(names[row])), int(ids[row])
        found.setdefault(key, []).append(tuple(step))
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for offset in range(delta.since_offset, delta.offset):
        before, after = states[offset]["partitions"], states[offset + 1]["partitions"]
        for key in before.keys() - after.keys():
            # A removed partition has no history in the later image.
            expected.pop(key, None)
        topics, record = states[offset]["topics"], log[offset]
        for key in before.keys() & after.keys():
            named = None
            if isinstance(record, records.Partition | records.PartitionChange):
                named = bytes(record.topic_id), record.partition_id
            # A ClearElr record changes partitions that it does not name.
            if named == (topics[key[0]], key[1]) or before[key] != after[key]:
                state = before[key]
                step = (state["leader"], state["leader_epoch"], state["partition_epoch"])
                expected.setdefault(key, []).append(step)
    assert found == expected


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
