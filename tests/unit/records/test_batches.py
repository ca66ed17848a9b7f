"""Typed records are encoded into batches and decoded again at their offsets."""

from __future__ import annotations

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft.errors import InvalidRecordError
from kraft.records import (
    KRaftVersion,
    LeaderChange,
    NoOp,
    Partition,
    Topic,
    Uuid,
    Voter,
    decode_control,
    decode_control_key,
    decode_value,
)
from kraft.records.batches import encode_control_records, encode_records


def test_records_have_consecutive_offsets_in_a_batch() -> None:
    topic = Uuid(range(16))
    records = [Topic("orders", topic), Partition(0, topic, [1], [1], leader=1), NoOp()]
    batches = encode_records(
        records, base_offset=40, epoch=7, timestamp_ms=1234, metadata_version=17
    )
    read = [made for batch in iterate(batches) for made in batch]
    assert [made.offset for made in read] == [40, 41, 42]
    assert [decode_value(made.value) for made in read] == records
    assert [decode_value(made.value).version for made in read] == [0, 1, 0]
    assert all(made.key is None and made.timestamp_ms == 1234 for made in read)
    assert len(encode_records([])) == 0


def test_control_records_share_a_control_batch_and_have_keys() -> None:
    records = [LeaderChange(1, [Voter(1)], [Voter(1)]), KRaftVersion(1)]
    batches = encode_control_records(records, base_offset=9, epoch=2)
    assert batches[22] & 0x20
    read = [made for batch in iterate(batches) for made in batch]
    assert [decode_control(decode_control_key(made.key), made.value) for made in read] == records
    with pytest.raises(InvalidRecordError, match="not a control record"):
        encode_control_records([NoOp()])
