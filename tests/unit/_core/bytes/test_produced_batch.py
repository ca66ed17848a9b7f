"""Produced batches: what is rejected with which code, and the bytes of what is accepted."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft._core.bytes.batch import assign_offsets, deflate, inflate, scan
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.batch_records import iterate
from kraft._core.bytes.compression import CODEC_NAMES, compress
from kraft._core.bytes.produced_batch import MAX_RECORD_ERRORS, ProducedBatch, check_produced
from kraft.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    RejectedBatchError,
)
from tests.harness.produced_batches import (
    APPEND_TIME,
    CONTROL,
    HOUR_MS,
    NOW_MS,
    TRANSACTIONAL,
    RawBatch,
    RawRecord,
    generated_batch,
    mutated,
    sealed,
    varint,
    with_wrong_field,
)

FOREVER_MS = 2**63 - 1
THREE = [RawRecord(5), RawRecord(9, value=b"x" * 50), RawRecord(-3)]


def check(records: Any, **changes: Any) -> ProducedBatch:
    rules: dict[str, Any] = {
        "append_time": False,
        "now_ms": NOW_MS,
        "before_max_ms": FOREVER_MS,
        "after_max_ms": HOUR_MS,
        "max_size": 1 << 20,
        "keys_required": False,
        "partition": "t-0",
    }
    return check_produced(records, **(rules | changes))


def rejected(records: Any, **changes: Any) -> RejectedBatchError:
    with pytest.raises(RejectedBatchError) as caught:
        check(records, **changes)
    return caught.value


def rows(data: Any) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for b in iterate(data) for r in b]


@pytest.mark.parametrize("codec", range(5))
def test_a_valid_batch_is_appended_as_it_was_sent(codec: int) -> None:
    sent = RawBatch(
        THREE, codec=codec, producer_id=8, producer_epoch=2, base_sequence=5,
        attributes=TRANSACTIONAL,
    ).encoded()  # fmt: skip
    batch = check(sent)
    assert bytes(batch.data) == sent
    assert (batch.record_count, batch.codec, batch.is_rebuilt) == (3, codec, False)
    assert (batch.max_timestamp, batch.max_timestamp_delta) == (NOW_MS + 9, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 2, 5)
    assert batch.is_transactional
    assert batch.append_time_ms == -1
    assert batch.record_bytes == sum(len(r.encoded(i)) for i, r in enumerate(THREE))
    assert assign_offsets(batch.data, 700, 4) == 703
    assert [row[0] for row in rows(batch.data)] == [700, 701, 702]


def test_a_writable_buffer_is_used_in_place_and_a_read_only_one_is_copied() -> None:
    sent = RawBatch(THREE).encoded()
    own = bytearray(sent)
    assign_offsets(check(own).data, 3, 9)
    assert own != sent
    assert scan(own).base_offsets.tolist() == [3]
    assign_offsets(check(sent).data, 3, 9)
    assert scan(sent).base_offsets.tolist() == [0]


def test_bytes_of_an_incomplete_second_batch_are_left_out() -> None:
    sent = RawBatch(THREE).encoded()
    for more in (b"\0" * 11, sent[:12], sent[:16], sent[:-1]):
        assert bytes(check(sent + more).data) == sent
        assert bytes(check(bytearray(sent + more)).data) == sent


@pytest.mark.parametrize("codec", range(5))
def test_the_max_timestamp_is_that_of_the_records(codec: int) -> None:
    sent = RawBatch(THREE, codec=codec, max_timestamp=77, attributes=0x80)
    batch = check(sent.encoded())
    # Rewriting clears the unknown attribute, as in Kafka.
    corrected = replace(sent, max_timestamp=NOW_MS + 9, attributes=0)
    assert bytes(batch.data) == corrected.encoded()


@pytest.mark.parametrize("codec", range(5))
def test_append_time_is_set_in_the_header(codec: int) -> None:
    sent = RawBatch(THREE, codec=codec)
    batch = check(sent.encoded(), append_time=True, now_ms=NOW_MS + 500)
    stamped = replace(sent, attributes=APPEND_TIME, max_timestamp=NOW_MS + 500)
    assert bytes(batch.data) == stamped.encoded()
    assert (batch.max_timestamp, batch.append_time_ms) == (NOW_MS + 500, NOW_MS + 500)
    assert batch.max_timestamp_delta == 0


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
def test_another_codec_of_the_topic_builds_the_batch_again(source: int, target: int) -> None:
    sent = RawBatch(THREE, codec=source, producer_id=8, producer_epoch=2, base_sequence=5)
    batch = check(sent.encoded(), codec=target)
    assert batch.is_rebuilt == (source != target)
    table = scan(batch.data)
    assert len(table) == 1
    assert table.attributes.tolist() == [target]
    assert table.producer_ids.tolist() == [8]
    assert table.base_sequences.tolist() == [5]
    assert rows(inflate(batch.data)) == rows(inflate(sent.encoded()))
    if batch.is_rebuilt:
        # The base timestamp is the first record's, as Kafka builds it.
        assert table.base_timestamps.tolist() == [NOW_MS + 5]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("deltas", [(0, 0, 0), (0, 1, 5), (2, 1, 0), (-1, 1, 2)])
def test_wrong_offset_deltas_are_replaced(codec: int, deltas: tuple[int, ...]) -> None:
    records = [replace(one, offset_delta=delta) for one, delta in zip(THREE, deltas, strict=True)]
    batch = check(RawBatch(records, codec=codec).encoded())
    assert batch.is_rebuilt
    validate(batch.data, dense=True)
    assert rows(batch.data) == rows(RawBatch(THREE, codec=codec).encoded())


HEADER_FAULTS = {
    "no bytes": (b"", INVALID_RECORD, "no whole batch"),
    "cut short": (RawBatch().encoded()[:-1], INVALID_RECORD, "no whole batch"),
    "length": (RawBatch(length=13).encoded(), CORRUPT_MESSAGE, "length 13"),
    "negative length": (RawBatch(length=-1).encoded(), CORRUPT_MESSAGE, "length -1"),
    "less than a header": (RawBatch(length=48).encoded(), CORRUPT_MESSAGE, "CRC-32C"),
    "magic 0": (RawBatch(magic=0).encoded(), INVALID_RECORD, "magic 0"),
    "magic 1": (RawBatch(magic=1).encoded(), INVALID_RECORD, "magic 1"),
    "magic 3": (RawBatch(magic=3).encoded(), CORRUPT_MESSAGE, "magic 3"),
    "magic -1": (RawBatch(magic=-1).encoded(), CORRUPT_MESSAGE, "magic -1"),
    "two": (2 * RawBatch().encoded(), INVALID_RECORD, "more than one batch"),
    "malformed second": (RawBatch().encoded() + bytes(12), CORRUPT_MESSAGE, "length 0"),
    "base offset": (RawBatch(base_offset=1).encoded(), INVALID_RECORD, "begins at 0"),
    "crc": (RawBatch(crc=7).encoded(), CORRUPT_MESSAGE, "CRC-32C"),
    "codec": (RawBatch(attributes=5).encoded(), UNSUPPORTED_COMPRESSION_TYPE, "codec 5"),
    "count": (RawBatch(count=2).encoded(), INVALID_RECORD, "2 records"),
    "no record": (RawBatch([]).encoded(), INVALID_RECORD, "0 records"),
    "negative": (RawBatch(count=-1, last_offset_delta=-2).encoded(), INVALID_RECORD, "-1 records"),
    "largest": (
        RawBatch(count=2**31 - 1, last_offset_delta=2**31 - 2).encoded(),
        INVALID_RECORD,
        "record 1 of",
    ),
    "control": (RawBatch(attributes=CONTROL).encoded(), INVALID_RECORD, "control records"),
    "sequence": (RawBatch(producer_id=0).encoded(), INVALID_RECORD, "base sequence -1"),
    "rest": (RawBatch(rest=b"\0").encoded(), INVALID_RECORD, "left over"),
    "gzip": (RawBatch(codec=1, payload=b"none").encoded(), INVALID_RECORD, "does not decompress"),
    "zstd": (RawBatch(codec=4, payload=b"none").encoded(), INVALID_RECORD, "does not decompress"),
}


@pytest.mark.parametrize("name", HEADER_FAULTS)
def test_a_faulty_batch_is_rejected_with_kafkas_code(name: str) -> None:
    data, code, words = HEADER_FAULTS[name]
    buffer = bytearray(data)
    error = rejected(buffer)
    assert error.kafka_code == code
    assert words in str(error)
    assert "t-0" in str(error)
    assert error.record_errors == ()
    assert buffer == data


def test_zstd_needs_version_7() -> None:
    data = RawBatch(codec=4).encoded()
    check(data)
    error = rejected(data, zstd_allowed=False)
    assert error.kafka_code == UNSUPPORTED_COMPRESSION_TYPE


def test_sizes_are_checked_before_and_after_compression() -> None:
    data = RawBatch([RawRecord(value=b"a" * 5000)]).encoded()
    assert rejected(data, max_size=len(data) - 1).kafka_code == MESSAGE_TOO_LARGE
    check(data, max_size=len(data))
    packed = bytes(deflate(data, 4))
    error = rejected(packed, codec=0, max_size=1000)
    assert error.kafka_code == MESSAGE_TOO_LARGE
    assert "after compression" in str(error)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_inflated_bytes_are_bounded(codec: int) -> None:
    bomb = RawBatch([RawRecord(value=b"\0" * (4 << 20))], codec=codec).encoded()
    error = rejected(bomb, budget=1 << 20)
    assert error.kafka_code == MESSAGE_TOO_LARGE
    assert str(1 << 20) in str(error)
    check(bomb, budget=5 << 20)


@pytest.mark.parametrize("codec", range(5))
def test_records_without_a_key_are_named_on_a_compacted_topic(codec: int) -> None:
    records = [RawRecord(key=b"k"), RawRecord(), RawRecord(key=b""), RawRecord()]
    error = rejected(RawBatch(records, codec=codec).encoded(), keys_required=True)
    assert error.kafka_code == INVALID_RECORD
    sentence = "Compacted topic cannot accept message without key in topic partition t-0"
    assert error.record_errors == [(1, sentence), (3, sentence)]
    check(RawBatch(records[::2], codec=codec).encoded(), keys_required=True)


@pytest.mark.parametrize("delta", [-HOUR_MS - 1, HOUR_MS + 1])
def test_timestamps_outside_the_range_are_named(delta: int) -> None:
    data = RawBatch([RawRecord(), RawRecord(delta)]).encoded()
    error = rejected(data, before_max_ms=HOUR_MS)
    assert error.kafka_code == INVALID_TIMESTAMP
    assert error.record_errors == [
        (
            1,
            f"Timestamp {NOW_MS + delta} of message with offset 1 is out of range. The timestamp "
            f"should be within [{NOW_MS - HOUR_MS}, {NOW_MS + HOUR_MS}]",
        )
    ]
    check(RawBatch([RawRecord(delta + (1 if delta < 0 else -1))]).encoded(), before_max_ms=HOUR_MS)
    # Under LogAppendTime the producer's timestamps do not matter.
    check(data, before_max_ms=HOUR_MS, append_time=True)


def test_a_record_without_a_timestamp_is_never_out_of_range() -> None:
    data = RawBatch(base_timestamp=-1).encoded()
    assert check(data, before_max_ms=0, after_max_ms=0).max_timestamp == -1


def test_the_code_is_invalid_timestamp_if_one_record_has_one() -> None:
    data = RawBatch([RawRecord(), RawRecord(2 * HOUR_MS, key=b"k")]).encoded()
    error = rejected(data, keys_required=True)
    assert error.kafka_code == INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_a_producer_may_not_send_append_time() -> None:
    data = RawBatch(attributes=APPEND_TIME).encoded()
    error = rejected(data, append_time=True)
    assert error.kafka_code == INVALID_TIMESTAMP
    assert error.record_errors[0][1].startswith("Invalid timestamp type in message")
    # As in Kafka, CreateTime takes it, with the batch's timestamp for every record.
    batch = check(data)
    assert scan(batch.data).attributes.tolist() == [0]


def test_the_errors_of_records_are_bounded() -> None:
    count = 3 * MAX_RECORD_ERRORS
    error = rejected(RawBatch([RawRecord()] * count).encoded(), keys_required=True)
    assert len(error.record_errors) == MAX_RECORD_ERRORS
    assert str(error).startswith(f"{count} records")


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    "body",
    [
        b"",
        varint(100) + b"\0" * 20,
        varint(-1),
        varint(6) + b"\0\0\0\3\1\0",
        varint(6) + b"\0\0\0\1\3\0",
        varint(6) + b"\0\0\0\1\1\1",
        varint(6) + b"\0\0\0\1\1\2",
        varint(7) + b"\0\0\0\1\1\0\0",
        b"\xff" * 11,
        varint(20) + b"\0" + b"\xff" * 10 + b"\0" * 9,
    ],
)
def test_a_malformed_record_is_rejected(codec: int, body: bytes) -> None:
    payload = compress(codec, body) if codec else body
    error = rejected(RawBatch(payload=payload, codec=codec).encoded())
    assert error.kafka_code == INVALID_RECORD
    assert "record 0" in str(error) or codec


def test_an_argument_out_of_range_is_rejected() -> None:
    with pytest.raises(ValueError, match="codec 5"):
        check(RawBatch().encoded(), codec=5)


@given(st.randoms(use_true_random=False), st.sampled_from((-1, 0, 1, 2, 3, 4)), st.booleans())
def test_what_is_accepted_can_be_read_and_what_is_rejected_is_unchanged(
    dice: Random, codec: int, append_time: bool
) -> None:
    source = generated_batch(dice)
    kind = dice.randrange(3)
    data = (with_wrong_field(dice, source) if kind else source).encoded()
    if kind == 2:
        data = mutated(dice, data)
    buffer = bytearray(data)
    try:
        batch = check(buffer, codec=codec, append_time=append_time, budget=1 << 20)
    except RejectedBatchError:
        assert kind
        assert buffer == data
        return
    next_offset = assign_offsets(batch.data, 1 << 40, 3)
    table = validate(batch.data, dense=True)
    assert len(table) == 1
    assert int(table.last_offsets[0]) + 1 == next_offset
    read = rows(batch.data)
    assert len(read) == batch.record_count
    assert table.attributes[0] & 7 == batch.codec
    latest = max([row[1] for row in read])
    if append_time:
        assert (batch.max_timestamp, batch.max_timestamp_delta) == (NOW_MS, 0)
    elif not data[22] & APPEND_TIME and latest >= 0:
        first = next(i for i, row in enumerate(read) if row[1] == latest)
        assert (batch.max_timestamp, batch.max_timestamp_delta) == (latest, first)
    if not kind:
        sent = rows(data)
        assert [row[2:] for row in read] == [row[2:] for row in sent]
        assert CODEC_NAMES[batch.codec] == CODEC_NAMES[source.codec if codec < 0 else codec]


def test_every_cut_and_flipped_bit_is_rejected_or_harmless() -> None:
    whole = RawBatch(THREE, producer_id=1, producer_epoch=0, base_sequence=0).encoded()
    for size in range(len(whole)):
        assert rejected(whole[:size]).kafka_code in (INVALID_RECORD, CORRUPT_MESSAGE)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x40
        for data in (bytes(changed), sealed(bytes(changed))):
            try:
                batch = check(data)
            except RejectedBatchError:
                continue
            validate(batch.data, dense=True)
