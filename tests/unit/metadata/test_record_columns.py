"""Columns over the records of a log equal the decoded records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraft import records
from kraft.errors import CorruptRecordError
from kraft.metadata.log_records import read_records
from kraft.metadata.record_columns import RecordColumns, TransactionSpan, transaction_spans
from kraft.metadata.source import MetadataSource
from kraft.records import Record
from kraft.records.batches import encode_records

DATA = Path(__file__).parents[2] / "data"
FILES = sorted(
    path for kind in ("*.log", "*.checkpoint") for path in DATA.rglob(kind) if path.stat().st_size
)


def bytes_of(path: Path) -> list[memoryview]:
    return [piece.data for piece in MetadataSource(path).slices_or_snapshot()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_every_column_is_what_the_records_say(path: Path) -> None:
    for data in bytes_of(path):
        columns = RecordColumns(data)
        decoded = list(read_records(data))
        assert columns.offsets.tolist() == [each.offset for each in decoded]
        assert columns.epochs.tolist() == [each.epoch for each in decoded]
        assert columns.timestamps_ms.tolist() == [each.timestamp_ms for each in decoded]
        assert columns.is_control.tolist() == [each.is_control for each in decoded]
        names = [columns.type_names[number] for number in columns.type_numbers]
        assert names == [type(each.record).__name__ for each in decoded]
        assert [columns.record(row) for row in range(len(columns))] == [
            each.record for each in decoded
        ]
        ids, partitions, known = columns.topic_partitions(np.arange(len(columns)))
        for row, each in enumerate(decoded):
            record: Any = each.record
            assert each.is_control or columns.versions[row] == record.version
            hot = isinstance(
                record, (records.Partition, records.PartitionChange, records.RemoveTopic)
            )
            assert known[row] == hot
            if hot:
                assert ids[row].tobytes() == record.topic_id
                assert partitions[row] == getattr(record, "partition_id", -1)


def log(*made: Record, first: int = 0) -> memoryview:
    return encode_records(made, base_offset=first, epoch=1)


def test_transactions_and_how_they_ended() -> None:
    begin, end, abort = (
        records.BeginTransaction(),
        records.EndTransaction(),
        records.AbortTransaction(),
    )
    noop = records.NoOp()
    first = log(noop, begin, noop, end, noop, begin, noop)
    second = log(noop, abort, noop, begin, noop, first=7)
    assert transaction_spans([first, second]) == [
        TransactionSpan(1, 4, "ended"),
        TransactionSpan(5, 9, "aborted"),
        TransactionSpan(10, 12, "open"),
    ]
    assert transaction_spans([]) == []
    assert transaction_spans([log(begin, noop, begin, noop, end)]) == [
        TransactionSpan(0, 2, "open"),
        TransactionSpan(2, 5, "ended"),
    ]


@pytest.mark.parametrize(
    ("node", "outcomes"),
    [("controller-201-open", ["ended", "open"]), ("controller-201", ["ended", "aborted"])],
)
def test_the_transaction_that_kafka_left_open_and_later_aborted(
    node: str, outcomes: list[str]
) -> None:
    source = MetadataSource(DATA / "kafka-4.3-transaction" / node)
    spans = transaction_spans(piece.data for piece in source.slices())
    assert [span.outcome for span in spans] == outcomes


def test_unknown_types_are_named_and_damage_has_its_position() -> None:
    from kraft._core.bytes.batch import BatchBuilder

    builder = BatchBuilder(base_offset=5, partition_leader_epoch=1)
    builder.append(b"\x01\x63\x00")  # a record type that does not exist
    builder.append(b"\x01\x03\x00\x00")  # a truncated Partition record
    builder.append(None)
    builder.append(b"")
    columns = RecordColumns(builder.finish(), base_position=1000)
    assert [columns.type_names[number] for number in columns.type_numbers] == [
        "type 99",
        "Partition",
        "no record",
        "no record",
    ]
    assert columns.record(0) is None
    _, partitions, known = columns.topic_partitions(np.arange(4))
    assert not known.any()
    assert (partitions == -1).all()
    for row in (1, 2, 3):
        with pytest.raises(CorruptRecordError, match=rf"offset {5 + row}, byte 1\d\d\d"):
            columns.record(row)
