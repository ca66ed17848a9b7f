"""Records are counted by type without decoding them, and the count is that of the decoded ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import kraft
from kraft._core.batch import BatchBuilder
from kraft.metadata.census import Census
from kraft.records import AbortTransaction, BeginTransaction, EndTransaction, NoOp, Record
from kraft.records.batches import encode_records

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"


@pytest.mark.parametrize("end", [None, 0, 1, 777])
def test_the_count_is_that_of_decoded_records(end: int | None) -> None:
    metadata = kraft.open_metadata(DATA / "controller-101")
    assert metadata.source is not None
    census = Census()
    for piece in metadata.source.slices():
        census.add(piece.data, end_offset=end)
    decoded = [each for each in metadata.records() if end is None or each.offset < end]
    assert census.counts == Counter(type(each.record).__name__ for each in decoded)
    assert census.record_count == len(decoded)


def counted(*records: Record) -> Census:
    census = Census()
    census.add(encode_records(records))
    return census


def test_a_transaction_is_open_until_it_ends_or_is_aborted() -> None:
    assert counted(NoOp(), BeginTransaction(), NoOp()).open_transaction == 1
    assert counted(BeginTransaction(), EndTransaction()).open_transaction is None
    assert counted(BeginTransaction(), AbortTransaction()).open_transaction is None
    again = counted(BeginTransaction(), AbortTransaction(), BeginTransaction())
    assert again.open_transaction == 2


def test_a_type_to_come_is_counted_by_its_number() -> None:
    builder = BatchBuilder(0, 1, 0)
    builder.append(bytes([1, 99, 0]))
    builder.append(bytes([1, 20, 0, 0]))
    census = Census()
    census.add(builder.finish())
    assert census.counts == {"type 99": 1, "NoOp": 1}
