"""Journaled rows: revert, forget, images, deltas, and the index from brokers to rows."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
from pathlib import Path
from weakref import ref

import pytest

from kraft import records
from kraft._core.table.images import TableDelta, TableImage
from kraft._core.table.table import PartitionTable
from kraft.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    ReplayError,
    UnknownTopicOrPartitionError,
)
from kraft.records import Record, Uuid
from tests.harness.table_records import apply, batch_of

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
TOPIC_A = records.Topic(name="a", topic_id=A)
TOPIC_B = records.Topic(name="b", topic_id=B)
REMOVE_A = records.RemoveTopic(topic_id=A)


def partition(number: int, topic_id: Uuid = A, replicas: tuple[int, ...] = (1, 2, 3)) -> Record:
    return records.Partition(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def change(
    number: int,
    leader: int,
    isr: list[int] | None = None,
    eligible_leader_replicas: list[int] | None = None,
) -> records.PartitionChange:
    return records.PartitionChange(
        partition_id=number,
        topic_id=A,
        leader=leader,
        isr=isr,
        eligible_leader_replicas=eligible_leader_replicas,
        version=2,
    )


def journaled(*log: Record) -> PartitionTable:
    table = PartitionTable()
    table.start_journal(0)
    apply(table, batch_of(log))
    return table


def feed(table: PartitionTable, offset: int, *log: Record) -> None:
    apply(table, batch_of(log, offset))


def test_a_reverted_removal_keeps_the_topics_rows_in_the_broker_index() -> None:
    # The query builds the broker index after the topic was removed and before the revert.
    table = journaled(TOPIC_A, partition(0), REMOVE_A)
    assert table.broker_rows(1).tolist() == []
    table.revert(2)
    assert table.broker_rows(1).tolist() == [0]


def test_a_reverted_removal_restores_the_partition_count() -> None:
    table = journaled(TOPIC_A, partition(0), partition(1), TOPIC_B, partition(0, B))
    feed(table, 5, REMOVE_A)
    assert table.partition_count == 1
    table.revert(5)
    assert table.partition_count == 3
    table.forget_all()
    table.compact()
    assert table.row_count == 3


def test_reverted_irregular_rows_free_their_memory() -> None:
    # A partition with adding replicas is irregular: its lists are in a separate block of memory.
    irregular = partition(0).replace(adding_replicas=[3])
    table = journaled(TOPIC_A)
    sizes = set()
    for _ in range(100):
        feed(table, 1, irregular)
        assert table.state_of(0)["adding_replicas"] == [3]
        table.revert(1)
        sizes.add(table.memory_sizes["columns"])
    assert len(sizes) == 1


def test_a_descending_offset_is_rejected_because_it_could_not_be_reverted() -> None:
    table = journaled(TOPIC_A, partition(0), partition(1))
    for record in (TOPIC_B, partition(2), partition(0), change(0, 2), REMOVE_A):
        with pytest.raises(ReplayError, match="a record of a higher offset was applied already"):
            feed(table, 1, record)
    with pytest.raises(ReplayError, match="a record of a higher offset was applied already"):
        table.apply(batch_of([change(0, 2, isr=[1, 9])], 1))
    table.revert(1)
    assert (table.topic_count, table.partition_count) == (1, 0)
    fresh = PartitionTable()
    fresh.start_journal(10)
    with pytest.raises(ReplayError, match="a record of a higher offset was applied already"):
        feed(fresh, 9, TOPIC_A)


def test_a_clear_elr_at_a_descending_offset_is_rejected() -> None:
    table = journaled(TOPIC_A, partition(0), change(0, 1, eligible_leader_replicas=[2]))
    with pytest.raises(ReplayError, match="ClearElr at offset 0"):
        table.clear_elr("a", 0)
    with pytest.raises(ReplayError, match="unknown topic"):
        table.clear_elr("z", 9)


def test_a_revert_frees_the_names_of_new_topics() -> None:
    table = journaled(TOPIC_A, partition(0), TOPIC_B, partition(0, B))
    table.revert(2)
    assert [table.topic_name(topic) for topic in table.topic_numbers()] == ["a"]
    feed(table, 2, TOPIC_B, partition(0, B), partition(1, B))
    assert table.topic_rows(table.topic_number("b")).tolist() == [1, 2]


def test_without_a_journal_reverts_and_images_are_rejected() -> None:
    table = PartitionTable()
    with pytest.raises(OffsetOutOfRangeError, match="the journal is off"):
        table.revert(0)
    with pytest.raises(OffsetOutOfRangeError, match="the journal is off"):
        table.image(0)


def test_forgetting_inside_a_run_of_new_rows_keeps_the_rest() -> None:
    table = journaled(TOPIC_A, *(partition(n) for n in range(6)))
    table.forget(4)
    assert table.journal_start_offset == 4
    assert table.journal_length == 1
    with pytest.raises(OffsetOutOfRangeError, match="reaches back to 4"):
        table.revert(3)
    table.revert(5)
    assert table.partition_count == 4
    table.revert(4)
    assert table.partition_count == 3


def test_compaction_waits_for_the_journal_but_not_for_images() -> None:
    table = journaled(TOPIC_A, partition(0), TOPIC_B, partition(0, B), REMOVE_A)
    with pytest.raises(ReplayError, match="journal holds changes"):
        table.compact()
    image, earlier = table.image(), table.image(2)
    delta = table.delta(2, 5)
    table.forget(4)
    with pytest.raises(ReplayError, match="journal holds changes"):
        table.compact()
    table.forget(5)
    table.compact()
    assert table.is_compact
    assert (table.row_count, table.topic_numbers()) == (1, [0])
    assert table.topic_name(0) == "b"
    assert (table.journal_start_offset, table.journal_length) == (5, 0)
    feed(table, 5, partition(1, B))
    assert (image.topic_numbers(), image.topic_rows(1).tolist()) == ([1], [1])
    assert (earlier.topic_numbers(), earlier.topic_name(0)) == ([0], "a")
    assert (delta.topics_added, delta.topics_removed) == ([1], [0])
    with pytest.raises(OffsetOutOfRangeError, match="two images of one table"):
        TableDelta(image, table.image())


def test_a_compaction_frees_the_old_rows_with_the_last_image() -> None:
    table = journaled(TOPIC_A, partition(0), TOPIC_B, partition(0, B), REMOVE_A)
    images = [table.image(2), table.image(5)]
    old_rows = ref(table.column("leader").base)
    table.forget(5)
    table.compact()
    while images:
        assert old_rows() is not None
        del images[0]
    assert old_rows() is None


def test_a_finished_compaction_goes_no_further() -> None:
    table = journaled(TOPIC_A, partition(0), REMOVE_A)
    table.forget(3)
    compaction = table.begin_compaction()
    compaction.finish()
    for again in (compaction.finish, lambda: compaction.step(1)):
        with pytest.raises(ReplayError, match="is finished"):
            again()
    assert table.row_count == 0


def test_a_change_below_the_forgotten_offset_ends_a_compaction() -> None:
    table = journaled(TOPIC_A, partition(0), TOPIC_B)
    table.forget(3)
    compaction = table.begin_compaction()
    feed(table, 3, partition(0, B))
    table.forget(4)
    with pytest.raises(ReplayError, match="journal holds changes"):
        compaction.finish()
    assert table.partition_count == 2


def test_a_journal_in_use_is_neither_stopped_nor_restarted() -> None:
    table = journaled(TOPIC_A)
    image = table.image(0)
    for stop in (table.stop_journal, lambda: table.start_journal(5)):
        with pytest.raises(InvalidRequestError, match="image as of offset 0"):
            stop()
    assert image.topic_numbers() == []
    del image
    table.stop_journal()
    assert not table.is_journaling


def test_an_image_prevents_forgetting_and_reverting_only_while_it_is_alive() -> None:
    table = journaled(TOPIC_A, partition(0), change(0, 2))
    image = table.image(2)
    table.forget(3)
    assert table.journal_start_offset == 2
    assert image.partition("a", 0)["leader"] == 1
    feed(table, 3, change(0, 3))
    table.revert(2)
    assert image.partition("a", 0)["leader"] == 1
    feed(table, 2, change(0, 3))
    later = table.image()
    with pytest.raises(InvalidRequestError, match="image as of offset 3"):
        table.revert(2)
    assert (image.partition("a", 0)["leader"], later.partition("a", 0)["leader"]) == (1, 3)
    del image, later
    gc.collect()
    table.forget(3)
    assert (table.journal_start_offset, table.journal_length) == (3, 0)


def test_an_image_reads_replicas_as_they_were_before_a_reassignment() -> None:
    # The journal entry of offset 2 has no replicas, as that change kept them; the next entry has.
    table = journaled(TOPIC_A, partition(0), change(0, 2, isr=[3, 2]))
    image = table.image(2)
    feed(table, 3, change(0, -2, isr=[8]).replace(replicas=[7, 8], removing_replicas=[1]))
    assert image.state_of(0)["replicas"] == [1, 2, 3]
    assert image.state_of(0)["isr"] == [1, 2, 3]
    assert table.image().state_of(0)["isr"] == [8]


def test_an_image_reads_replicas_as_they_were_before_the_first_of_several_reassignments() -> None:
    table = journaled(TOPIC_A, partition(0))
    first = table.image()
    feed(table, 2, change(0, 2))
    second = table.image()
    for offset, replicas in enumerate(([4, 5, 6], [7, 8, 9], [10, 11, 12]), 3):
        feed(table, offset, change(0, -2, isr=replicas).replace(replicas=replicas))
    for image, leader in ((first, 1), (second, 2)):
        state = image.state_of(0)
        assert (state["replicas"], state["isr"]) == ([1, 2, 3], [1, 2, 3])
        assert state["leader"] == leader


def test_an_image_of_any_number_of_changed_rows_finds_the_others_unchanged() -> None:
    table = journaled(TOPIC_A, *(partition(number) for number in range(70)))
    image = table.image()
    # The search for a row holds the GIL: only a watchdog can end a search that never stops.
    faulthandler.dump_traceback_later(30, exit=True, file=sys.__stderr__)
    try:
        for number in range(69):
            feed(table, 71 + number, change(number, 2))
            assert [image.state_of(row)["leader"] for row in range(70)] == [1] * 70
    finally:
        faulthandler.cancel_dump_traceback_later()


def test_later_additions_are_not_in_an_image() -> None:
    table = journaled(TOPIC_A, partition(0))
    image = table.image()
    feed(table, 2, partition(1), TOPIC_B, partition(0, B))
    assert image.row_count == 1
    assert image.topic_number("b") == image.topic_number_by_id(B) == -1
    assert image.row_of(0, 1) == -1
    with pytest.raises(UnknownTopicOrPartitionError, match="b-0 as of offset 2"):
        image.partition("b", 0)
    with pytest.raises(UnknownTopicOrPartitionError, match="a-1 as of offset 2"):
        image.partition("a", 1)
    with pytest.raises(OffsetOutOfRangeError):
        image.state_of(1)
    for question in (image.topic_name, image.topic_id_of, image.topic_rows):
        with pytest.raises(UnknownTopicOrPartitionError, match="number 1"):
            question(1)
    with pytest.raises(KeyError):
        image.column("isr")


def test_a_topic_created_again_is_another_topic() -> None:
    table = journaled(TOPIC_A, partition(0))
    again = records.Topic(name="a", topic_id=B)
    feed(table, 2, REMOVE_A, again, partition(0, B, (4, 5)))
    delta = table.delta(2, 5)
    assert (delta.topics_removed, delta.topics_added, delta.rows_added) == ([0], [1], [(1, 2)])
    assert delta.rows_changed.tolist() == []
    assert delta.before.partition("a", 0)["leader"] == 1
    assert delta.after.partition("a", 0)["leader"] == 4
    assert delta.before.topic_number_by_id(A) == 0
    assert delta.after.topic_number_by_id(A) == -1


def test_a_delta_omits_topics_added_and_removed_within_it() -> None:
    table = journaled(TOPIC_A, partition(0))
    feed(
        table, 2, TOPIC_B, partition(0, B), partition(1), records.RemoveTopic(topic_id=B),
        partition(2), change(0, 2), change(0, 3), change(1, 2),
    )  # fmt: skip
    delta = table.delta(2)
    assert (delta.since_offset, delta.offset) == (2, 10)
    assert (delta.topics_added, delta.topics_removed) == ([], [])
    assert delta.rows_added == [(2, 4)]
    assert delta.rows_changed.tolist() == [0]


def test_a_delta_needs_two_images_of_one_table_in_their_order() -> None:
    table, other = journaled(TOPIC_A), journaled(TOPIC_A)
    early, late = table.image(0), table.image(1)
    assert TableDelta(early, late).topics_added == [0]
    for before, after in ((late, early), (early, other.image(1))):
        with pytest.raises(OffsetOutOfRangeError, match="no delta"):
            TableDelta(before, after)
    with pytest.raises(OffsetOutOfRangeError, match="no image"):
        TableImage(table, -1)


def test_the_index_lists_a_row_for_members_that_are_not_replicas() -> None:
    table = journaled(TOPIC_A, partition(0))
    table.ensure_index()
    feed(table, 2, change(0, -2, isr=[1, 8], eligible_leader_replicas=[9]))
    assert [table.broker_rows(broker).tolist() for broker in (1, 2, 8, 9)] == [[0]] * 4
    table.revert(2)
    assert [table.broker_rows(broker).tolist() for broker in (1, 8, 9)] == [[0], [], []]


def test_an_index_built_in_steps_equals_one_built_at_once() -> None:
    log = [TOPIC_A]
    log += [partition(n, replicas=(n % 7, n % 7 + 1, 5_000 + n % 3)) for n in range(400)]
    table, other = journaled(*log), journaled(*log)
    assert other.ensure_index() is False
    parts = 1
    while table.ensure_index(60):
        assert table.indexed_row_count == 60 * parts
        assert not table.is_indexed
        parts += 1
    assert parts == 7
    assert table.is_indexed
    for broker in (*range(9), 5_000, 5_001, 5_002, 5_003):
        rows = table.broker_rows(broker).tolist()
        assert rows == other.broker_rows(broker).tolist()
        assert rows == [n for n in range(400) if broker in (n % 7, n % 7 + 1, 5_000 + n % 3)]


def test_added_rows_are_indexed_at_the_next_query() -> None:
    table = journaled(TOPIC_A, partition(0))
    table.ensure_index()
    size = table.memory_sizes["broker_index"]
    feed(table, 2, *(partition(n) for n in range(1, 1_000)))
    assert table.memory_sizes["broker_index"] == size
    assert table.indexed_row_count == 1
    assert table.broker_rows(2).tolist() == list(range(1_000))
    assert table.is_indexed


def test_the_index_drops_reverted_rows() -> None:
    table = journaled(TOPIC_A, partition(0))
    table.ensure_index()
    for turn in range(20):
        feed(table, 2, *(partition(n, replicas=(turn, 7)) for n in range(1, 500)))
        assert table.broker_rows(turn).tolist() == list(range(0 if turn in (1, 2, 3) else 1, 500))
        size = table.memory_sizes["broker_index"]
        table.revert(2)
        assert table.indexed_row_count == 1
        assert table.broker_rows(7).tolist() == []
        assert table.broker_rows(1).tolist() == [0]
    assert size < 20 * 4 * 700


def test_an_unsorted_list_is_returned_sorted_and_distinct() -> None:
    table = journaled(TOPIC_A, *(partition(n, replicas=(1, 2)) for n in range(300)))
    table.ensure_index()
    chance = random.Random(8)
    offset, moved = 301, set()
    for _ in range(6):
        some = chance.sample(range(300), 40)
        log = [
            records.PartitionChange(partition_id=n, topic_id=A, replicas=[3, 2], isr=[3], leader=3)
            for n in some
        ]
        feed(table, offset, *log)
        offset += len(log)
        moved.update(some)
        feed(table, offset, partition(offset, replicas=(3, 4)))
        offset += 1
        assert table.broker_rows(3).tolist() == [*sorted(moved), *range(300, table.row_count)]
        assert table.broker_rows(1).tolist() == sorted({*range(300)} - moved)


def test_a_long_journal_has_little_unused_memory() -> None:
    # Beyond a megabyte the journal grows in place, by an eighth of its size at a time.
    table = journaled(TOPIC_A, partition(0))
    for first in range(2, 40_002, 1_000):
        feed(table, first, *(change(0, -2, isr=[1 + n % 3]) for n in range(1_000)))
    assert table.journal_length >= 40_000
    size = table.memory_sizes["journal"]
    assert size < 1.2 * 64 * 40_000
    # The change at offset 2 + n set the ISR to 1 + n % 1000 % 3.
    for offset in (5_000, 20_001, 39_000):
        isr = table.image(offset).state_of(0)["isr"]
        assert isr == [1 + (offset - 3) % 1_000 % 3]
    for offset in (10_000, 30_000, 39_000, 40_000):
        table.forget(offset)
        assert table.journal_length == 40_002 - offset
    table.revert(40_000)
    assert table.journal_length == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="with it a long journal is a malloc block")
def test_a_long_journal_that_is_forgotten_returns_its_memory() -> None:
    table = journaled(TOPIC_A, partition(0))
    for first in range(2, 200_002, 1_000):
        feed(table, first, *(change(0, -2, isr=[1 + n % 3]) for n in range(1_000)))
    held = anonymous_bytes()
    table.forget(199_990)
    assert held - anonymous_bytes() > 9_000_000
    assert table.journal_length == 12
    assert table.image(199_995).state_of(0)["isr"] == [1 + (199_995 - 3) % 1_000 % 3]
    gc.collect()
    for first in range(200_002, 240_002, 1_000):
        feed(table, first, *(change(0, -2, isr=[3]) for _ in range(1_000)))
    table.revert(200_002)
    assert table.state_of(0)["isr"] == [1 + 999 % 3]


def anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024
