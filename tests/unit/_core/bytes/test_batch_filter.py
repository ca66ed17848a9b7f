"""Compaction of batches: the records that stay, delete horizons, empty and damaged batches."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft._core.bytes.batch import scan
from kraft._core.bytes.batch_filter import DISCARD, ENDS_NOTHING, RETAIN_EMPTY, filter_batches
from kraft._core.bytes.batch_records import iterate
from kraft._core.bytes.key_offsets import KeyOffsets
from kraft.errors import CorruptRecordError
from tests.harness.produced_batches import (
    APPEND_TIME,
    CONTROL,
    HORIZON,
    NOW_MS,
    TRANSACTIONAL,
    RawBatch,
    RawRecord,
)

RETENTION_MS = 1_000


def keyed(*keys: bytes | None, **named: Any) -> RawBatch:
    return RawBatch([RawRecord(place, key=key) for place, key in enumerate(keys)], **named)


def mapped(data: bytes) -> KeyOffsets:
    offsets = KeyOffsets(1 << 16)
    assert not offsets.add(data, 0)
    return offsets


def filtered(
    data: bytes, offsets: KeyOffsets, codes: bytes | None = None, now: int = NOW_MS
) -> bytes:
    return bytes(filter_batches(data, offsets, now, RETENTION_MS, codes).data)


def left(data: bytes) -> list[tuple[int, bytes | None, int]]:
    """Return offset, key and timestamp of each record; the CRCs are checked."""
    return [
        (record.offset, record.key, record.timestamp_ms)
        for batch in iterate(data)
        for record in batch
    ]


@pytest.mark.parametrize("codec", range(5))
def test_the_last_record_of_each_key_stays(codec: int) -> None:
    first = keyed(b"a", b"b", b"c", codec=codec, leader_epoch=3).encoded()
    second = keyed(b"b", b"b", base_offset=3, codec=codec, leader_epoch=4).encoded()
    offsets = mapped(first + second)
    found = filter_batches(first + second, offsets, NOW_MS, RETENTION_MS)
    assert (found.read_count, found.kept_count) == (5, 3)
    assert left(bytes(found.data)) == [
        (0, b"a", NOW_MS),
        (2, b"c", NOW_MS + 2),
        (4, b"b", NOW_MS + 1),
    ]
    table = scan(found.data)
    assert table.tail_reason is None
    assert table.last_offsets.tolist() == [2, 4]
    assert table.base_offsets.tolist() == [0, 3]
    assert table.partition_leader_epochs.tolist() == [3, 4]
    assert table.max_timestamps.tolist() == [NOW_MS + 2, NOW_MS + 1]
    assert [each & 7 for each in table.array["attributes"].tolist()] == [codec, codec]


def test_a_batch_that_stays_as_it_is_keeps_its_bytes() -> None:
    data = keyed(b"a", b"b", attributes=0x80).encoded()
    assert filtered(data, mapped(data)) == data
    late = keyed(b"a", base_offset=9).encoded()
    assert filtered(late, mapped(data)) == late, "after the offsets of the map"


def test_records_without_a_key_go_and_batches_without_records_too() -> None:
    data = keyed(None, b"a").encoded() + keyed(None, base_offset=2).encoded()
    assert left(filtered(data, mapped(data))) == [(1, b"a", NOW_MS + 1)]
    assert len(scan(filtered(data, mapped(data)))) == 1


def test_a_tombstone_gets_a_horizon_and_goes_after_it() -> None:
    data = RawBatch([RawRecord(3, b"a", None), RawRecord(5, b"b")]).encoded()
    offsets = mapped(data)
    once = filtered(data, offsets)
    (header,) = scan(once).array
    assert header["attributes"] == HORIZON
    assert header["base_timestamp"] == NOW_MS + RETENTION_MS
    assert header["max_timestamp"] == NOW_MS + 5
    assert left(once) == [(0, b"a", NOW_MS + 3), (1, b"b", NOW_MS + 5)]
    assert filtered(once, offsets, now=NOW_MS + RETENTION_MS - 1) == once
    late = filtered(once, offsets, now=NOW_MS + RETENTION_MS)
    assert left(late) == [(1, b"b", NOW_MS + 5)]
    (header,) = scan(late).array
    assert (header["attributes"], header["base_timestamp"]) == (HORIZON, NOW_MS + RETENTION_MS)


def test_under_log_append_time_all_records_have_the_batchs_time() -> None:
    data = RawBatch(
        [RawRecord(key=b"a", value=None), RawRecord(key=b"a"), RawRecord(key=b"b", value=None)],
        attributes=APPEND_TIME,
        max_timestamp=NOW_MS + 70,
    ).encoded()
    once = filtered(data, mapped(data))
    assert left(once) == [(1, b"a", NOW_MS + 70), (2, b"b", NOW_MS + 70)]
    (header,) = scan(once).array
    assert header["attributes"] == HORIZON | APPEND_TIME
    assert header["max_timestamp"] == NOW_MS + 70


def test_the_last_batch_of_a_producer_stays_without_records() -> None:
    data = keyed(
        b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=40, leader_epoch=5,
        attributes=TRANSACTIONAL | APPEND_TIME, codec=4,
    ).encoded()  # fmt: skip
    offsets = mapped(data + keyed(b"a", b"b", base_offset=2).encoded())
    assert filtered(data, offsets) == b""
    for codes in (bytes([RETAIN_EMPTY]), bytes([RETAIN_EMPTY | DISCARD])):
        empty = filtered(data, offsets, codes)
        assert len(empty) == 61
        (header,) = scan(empty).array
        found = {name: int(header[name]) for name in header.dtype.names or ()}
        found.pop("crc")
        assert found == {
            "position": 0,
            "base_offset": 0,
            "base_timestamp": -1,
            "max_timestamp": NOW_MS + 1,
            "producer_id": 7,
            "batch_length": 49,
            "partition_leader_epoch": 5,
            "last_offset_delta": 1,
            "base_sequence": 40,
            "record_count": 0,
            "attributes": TRANSACTIONAL | APPEND_TIME,
            "producer_epoch": 2,
            "magic": 2,
        }
        assert scan(empty).tail_reason is None
        assert filtered(empty, offsets, codes) == empty, "a second time"
        assert filtered(empty, offsets) == b""


def test_discarded_records_go_whatever_their_keys() -> None:
    data = keyed(b"a", attributes=TRANSACTIONAL).encoded()
    assert filtered(data, mapped(data), bytes([DISCARD])) == b""


def test_a_marker_gets_a_horizon_once_its_transaction_has_no_records() -> None:
    data = keyed(b"key!", attributes=TRANSACTIONAL | CONTROL, producer_id=7).encoded()
    offsets = KeyOffsets(1 << 16)
    offsets.reach(0)
    assert filtered(data, offsets) == data
    once = filtered(data, offsets, bytes([ENDS_NOTHING]))
    (header,) = scan(once).array
    assert header["attributes"] == TRANSACTIONAL | CONTROL | HORIZON
    assert header["base_timestamp"] == NOW_MS + RETENTION_MS
    assert filtered(once, offsets, bytes([ENDS_NOTHING])) == once
    assert filtered(once, offsets, bytes([ENDS_NOTHING | DISCARD])) == b""


def test_headers_and_large_timestamps_survive() -> None:
    headers = [(b"name", b"value"), (b"", None)]
    data = RawBatch(
        [RawRecord(key=b"gone"), RawRecord(2**40, b"a", None, headers), RawRecord(1, b"gone")],
        base_timestamp=-5,
    ).encoded()
    once = filtered(data, mapped(data))
    (batch,) = iterate(once)
    first, second = batch
    assert (first.offset, first.timestamp_ms, first.value) == (1, 2**40 - 5, None)
    assert list(first.headers) == headers
    assert (second.offset, second.timestamp_ms) == (2, -4)


def test_damaged_batches_raise_or_stay_in_bounds() -> None:
    whole = bytearray(
        keyed(b"a", b"b", b"a").encoded()
        + RawBatch([RawRecord(key=b"b", value=None)], base_offset=3).encoded()
    )
    offsets = mapped(bytes(whole))
    dice = Random(7)
    rejected = 0
    for _ in range(3_000):
        damaged = bytearray(whole)
        for _ in range(dice.choice((1, 2))):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        # The CRCs are not checked here.
        try:
            filtered(bytes(damaged), offsets)
        except CorruptRecordError:
            rejected += 1
    assert 300 < rejected < 2_900
    with pytest.raises(CorruptRecordError):
        filtered(bytes(whole[:-1]), offsets)
