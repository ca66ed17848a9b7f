"""Many rows at once, beside each row by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kraft._core.table.table import PartitionTable
from kraft.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kraft.metadata import partitions
from kraft.metadata.partitions import Partitions
from kraft.records import RemoveTopic, Uuid
from kraft.records.values import encode_value
from tests.reference.random_tables import batches_of, random_records


def table_of(seed: int) -> PartitionTable:
    """Return a table with irregular rows, short lists, and rows of removed topics."""
    table = PartitionTable()
    table.apply(batches_of([encode_value(each) for each in random_records(seed, topics=120)]))
    for name in [table.topic_name(number) for number in table.topic_numbers()][:10]:
        topic_id = Uuid(table.topic_id_of(table.topic_number(name)))
        table.apply(batches_of([encode_value(RemoveTopic(topic_id=topic_id))]))
    return table


@pytest.mark.parametrize("seed", range(5))
def test_many_rows_are_those_of_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_ROWS_AT_ONCE", 100)
    found = Partitions(table_of(seed))
    live = np.flatnonzero(found.live)
    assert len(live) > 200
    assert len(live) < len(found.live)
    assert np.isin(found.irregular_rows, live).any()
    chance = random.Random(seed)
    rows = [int(chance.choice(live)) for _ in range(500)]
    expected = [found.row(row) for row in rows]
    assert list(found.rows(rows)) == expected
    assert list(found.rows(np.array(rows, np.int32))) == expected
    assert list(found) == [found.row(int(row)) for row in live]
    assert list(found.rows([])) == []


def test_rows_that_hold_no_partition_are_errors() -> None:
    found = Partitions(table_of(1))
    live, dead = np.flatnonzero(found.live), np.flatnonzero(~found.live)
    for row, error in (
        (int(dead[0]), UnknownTopicOrPartitionError),
        (len(found.live), OffsetOutOfRangeError),
        (-1, InvalidArgumentError),
    ):
        reading = found.rows(np.array([int(live[0]), row]))
        assert next(reading) == found.row(int(live[0]))
        with pytest.raises(error):
            next(reading)
    # Before the first row is read.
    for wrong in ([1.5], [-1], "0", np.array([1.5]), np.array([[0]]), None):
        with pytest.raises(InvalidArgumentError):
            found.rows(wrong)  # type: ignore[arg-type]
