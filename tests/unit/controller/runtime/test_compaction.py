"""Rows of deleted partitions are dropped, and no decision under way loses its rows."""

from __future__ import annotations

from typing import Any

import pytest

from kraft._core.table.table import PartitionTable
from kraft.controller.decision import NO_RECORDS, Decision
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import DecisionContext, Operation
from kraft.controller.runtime.quorum_controller import ROWS_COPIED_AT_ONCE
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import InvalidRequestError, ReplayError
from tests.harness.controller import ControllerLog, leading, replayed

FEW = 10


def with_dead_rows(count: int, live: int = 1) -> ControllerLog:
    """Return the log of a controller that has so many rows of deleted partitions."""
    log = leading(3, min_dead_rows=FEW)
    log.create("deleted", count)
    log.create("kept", live)
    log.settle()
    log.submit(requests.delete_topics([TopicToDelete("deleted")]))
    log.settle()
    return log


def test_rows_of_deleted_partitions_are_dropped() -> None:
    log = with_dead_rows(50)
    controller, table = log.controller, log.controller.cluster.table
    assert table.row_count == 51
    assert controller.is_compaction_due
    controller.compact(log.now_ms)
    assert table.row_count == 1
    assert not controller.is_compaction_due
    assert log.response_of_new_topic() == 1
    assert partitions_of(table) == partitions_of(replayed(log).table)


def test_live_rows_are_copied_in_steps_in_which_table_and_image_can_be_read() -> None:
    log = with_dead_rows(30_000, live=4 * ROWS_COPIED_AT_ONCE)
    controller, table = log.controller, log.controller.cluster.table
    before, image = partitions_of(table), table.image()
    assert [controller.prepare_compaction() for _ in range(5)] == [True] * 4 + [False]
    assert controller.is_compacting
    assert partitions_of(table) == before
    assert image.column("topic").size == table.row_count == 30_000 + 4 * ROWS_COPIED_AT_ONCE
    controller.compact(log.now_ms)
    assert not controller.is_compacting
    assert image.column("topic").size == 30_000 + 4 * ROWS_COPIED_AT_ONCE
    assert table.row_count == 4 * ROWS_COPIED_AT_ONCE
    assert partitions_of(table) == before
    assert log.response_of_new_topic() == 1


def test_a_compaction_of_a_table_that_has_changed_is_an_error() -> None:
    log = with_dead_rows(30_000, live=ROWS_COPIED_AT_ONCE)
    controller, table = log.controller, log.controller.cluster.table
    assert controller.prepare_compaction()
    log.create("meanwhile", 1)
    log.settle()
    with pytest.raises(ReplayError, match="its journal holds changes"):
        controller.compact(log.now_ms)
    assert not controller.is_compacting
    assert table.row_count == 30_000 + ROWS_COPIED_AT_ONCE + 1


def partitions_of(table: PartitionTable) -> dict[str, list[dict[str, Any]]]:
    """Return the partitions of each topic, without the numbers of rows and topics."""
    return {
        table.topic_name(topic): [
            table.state_of(row) | {"topic": None, "row": None}
            for row in sorted(table.topic_rows(topic).tolist())
        ]
        for topic in table.topic_numbers()
    }


@pytest.mark.parametrize(("dead", "live"), [(FEW - 1, 1), (50, 51)])
def test_few_dead_rows_are_kept(dead: int, live: int) -> None:
    assert not with_dead_rows(dead, live).controller.is_compaction_due


def test_an_image_in_use_keeps_the_old_rows() -> None:
    log = with_dead_rows(50)
    cluster = log.controller.cluster
    image = cluster.table.image()
    log.controller.compact(log.now_ms)
    assert cluster.table.row_count == 1
    assert image.column("topic").size == 51


def test_uncommitted_records_are_not_compacted() -> None:
    log = with_dead_rows(50)
    log.create("uncommitted", 1)
    log.run()
    with pytest.raises(AssertionError, match="a revert would need the journal"):
        log.controller.compact(log.now_ms)


def test_a_transaction_keeps_its_rows() -> None:
    log = with_dead_rows(50_000)
    cluster = log.controller.cluster
    log.create("large", 30_000)
    log.run_once()
    assert not log.controller.is_compaction_due
    while cluster.transaction_start is None:
        log.run_once()
    assert not log.controller.is_compaction_due
    with pytest.raises(ReplayError, match="a transaction is open"):
        cluster.compact()
    log.settle()
    assert log.controller.is_compaction_due


def in_parts(log: ControllerLog, *, deadline_ms: float = float("inf")) -> list[bool]:
    """Submit an operation that is decided in parts until ``True`` is in the returned list."""
    is_done: list[bool] = []

    def decide(context: DecisionContext) -> Decision[None]:
        return Decision(NO_RECORDS, None, is_partial=not is_done)

    log.submit(Operation("in parts", decide), deadline_ms=deadline_ms)
    return is_done


def test_a_decision_in_parts_keeps_its_rows_until_it_is_finished() -> None:
    log = with_dead_rows(50)
    is_done = in_parts(log)
    assert log.controller.is_compaction_due
    log.run_once()
    assert not log.controller.is_compaction_due
    log.heartbeat(1, wants_fence=True)
    log.run_once()
    assert not log.controller.is_compaction_due
    is_done.append(True)
    log.run_once()
    assert log.controller.is_compaction_due


def test_a_decision_in_parts_that_expires_keeps_no_rows() -> None:
    log = with_dead_rows(50)
    in_parts(log, deadline_ms=log.now_ms + 10)
    log.run_once()
    log.now_ms += 20
    assert not log.controller.is_compaction_due
    log.run_once()
    assert log.controller.is_compaction_due


def test_a_decision_in_parts_keeps_no_rows_after_its_leader() -> None:
    log = with_dead_rows(50)
    in_parts(log)
    log.run_once()
    assert not log.controller.is_compaction_due
    log.take(log.controller.renounce(log.now_ms))
    assert log.controller.is_compaction_due


def test_a_decision_in_parts_that_fails_keeps_no_rows() -> None:
    log = with_dead_rows(50)
    parts = 0

    def decide(context: DecisionContext) -> Decision[None]:
        nonlocal parts
        parts += 1
        if parts > 1:
            raise InvalidRequestError("no")
        return Decision(NO_RECORDS, None, is_partial=True)

    log.submit(Operation("in parts", decide))
    log.run_once()
    assert not log.controller.is_compaction_due
    log.run_once()
    assert log.controller.is_compaction_due


def test_the_index_of_a_compacted_table_is_built_again() -> None:
    log = with_dead_rows(100_000, live=30_000)
    log.controller.compact(log.now_ms)
    table = log.controller.cluster.table
    assert table.indexed_row_count == 0
    log.run()
    assert table.indexed_row_count < 30_000
    log.now_ms += 10
    log.run()
    assert table.indexed_row_count == 30_000
