"""Assign replicas to directories, and remove brokers from ISRs."""

from __future__ import annotations

import numpy as np
import pytest

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.directory_assignment import assign_directory, leave_isr
from kraft.controller.decision import Records
from kraft.controller.state import election_context
from kraft.errors import InvalidRequestError
from tests.harness.decisions import Lab, directory


def test_rows_and_codes_are_in_the_order_of_the_request() -> None:
    lab = Lab(3)
    lab.create("s", [2])
    lab.create("t", [0, 1], [1, 2], [2, 0])
    builder = BatchBuilder()
    topic = lab.cluster.table.topic_number("t")
    codes, rows = assign_directory(
        election_context(lab.cluster), builder, 0, directory(0, 5), topic, [2, 1, 3, 0]
    )
    assert (codes.tolist(), rows.tolist()) == ([0, 6, 3, 0], [3, -1, -1, 1])
    assert (codes.dtype.name, rows.dtype.name) == ("int16", "int32")
    changed = [record.partition_id for record in Records.finished(builder)]  # type: ignore[attr-defined]
    assert changed == [2, 0]


def test_no_partitions_give_no_codes() -> None:
    lab = Lab(1)
    lab.create("t", [0])
    builder = BatchBuilder()
    codes, rows = assign_directory(
        election_context(lab.cluster), builder, 0, directory(0), 0, np.empty(0, np.int32)
    )
    assert (len(codes), len(rows), builder.record_count) == (0, 0, 0)
    assert leave_isr(election_context(lab.cluster), builder, 0, []) == 0


def test_a_broker_outside_of_the_isr_leaves_and_an_election_may_follow() -> None:
    lab = Lab(3)
    lab.create("t", [0, 1], [1, 2])
    builder = BatchBuilder()
    assert leave_isr(election_context(lab.cluster), builder, 2, [0]) == 0
    assert leave_isr(election_context(lab.cluster), builder, 2, [1]) == 1
    assert Records.finished(builder)[0].isr == [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("bad", [b"", b"fifteen bytes..", bytearray(16)])
def test_a_directory_has_sixteen_bytes(bad: bytes) -> None:
    lab = Lab(1)
    lab.create("t", [0])
    with pytest.raises(InvalidRequestError, match="16 bytes"):
        assign_directory(election_context(lab.cluster), BatchBuilder(), 0, bad, 0, [0])


@pytest.mark.parametrize("topic", [-1, 1, 1_000_000])
def test_a_removed_topic_is_rejected(topic: int) -> None:
    lab = Lab(1)
    lab.create("t", [0])
    with pytest.raises(InvalidRequestError, match="no live topic"):
        assign_directory(election_context(lab.cluster), BatchBuilder(), 0, directory(0), topic, [0])


def test_leaving_a_row_without_a_partition_is_rejected() -> None:
    lab = Lab(1)
    lab.create("t", [0])
    for row in (-1, 1):
        with pytest.raises(InvalidRequestError):
            leave_isr(election_context(lab.cluster), BatchBuilder(), 0, [row])
