"""Counts of records by type, made without decoding, equal those of the decoded records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import kraft
from kraft._core.bytes.batch import BatchBuilder
from kraft.metadata.record_counts import RecordCounts
from kraft.records import AbortTransaction, BeginTransaction, EndTransaction, NoOp, Record
from kraft.records.batches import encode_records

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"


@pytest.mark.parametrize("end", [None, 0, 1, 777])
def test_the_counts_equal_those_of_decoded_records(end: int | None) -> None:
    metadata = kraft.open_metadata(DATA / "controller-101")
    assert metadata.source is not None
    counts = RecordCounts()
    for piece in metadata.source.slices():
        counts.add(piece.data, end_offset=end)
    decoded = [each for each in metadata.records() if end is None or each.offset < end]
    assert counts.by_type == Counter(type(each.record).__name__ for each in decoded)
    assert counts.record_count == len(decoded)


def counted(*records: Record) -> RecordCounts:
    counts = RecordCounts()
    counts.add(encode_records(records))
    return counts


def test_a_transaction_is_open_until_it_ends_or_is_aborted() -> None:
    assert counted(NoOp(), BeginTransaction(), NoOp()).open_transaction == 1
    assert counted(BeginTransaction(), EndTransaction()).open_transaction is None
    assert counted(BeginTransaction(), AbortTransaction()).open_transaction is None
    again = counted(BeginTransaction(), AbortTransaction(), BeginTransaction())
    assert again.open_transaction == 2


def test_an_unknown_type_is_counted_by_its_number() -> None:
    builder = BatchBuilder(0, 1, 0)
    builder.append(bytes([1, 99, 0]))
    builder.append(bytes([1, 20, 0, 0]))
    counts = RecordCounts()
    counts.add(builder.finish())
    assert counts.by_type == {"type 99": 1, "NoOp": 1}
