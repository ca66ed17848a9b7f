"""Idempotent producers of a partition: sequences, duplicates, epochs, transactions in the log."""

from __future__ import annotations

import struct

import pytest

from kraft.broker.produce_validation import ProduceRules, validate
from kraft.broker.producer_state import (
    LAST_SEQUENCE,
    BatchMetadata,
    ProducerStateEntry,
    ProducerStates,
    SequencedBatch,
)
from kraft.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from tests.harness.produced_batches import CONTROL, NOW_MS, TRANSACTIONAL, RawBatch, RawRecord


def batch(
    sequence: int, offset: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> SequencedBatch:
    return SequencedBatch(7, epoch, sequence, offset, offset + count - 1, NOW_MS, transactional)


def written(states: ProducerStates, one: SequencedBatch) -> ProducerStateEntry:
    entry = states.next_entry(one)
    states.put(entry, one.last_offset + 1)
    return entry


def marker(*, epoch: int = 0, coordinator: int = 3, offset: int = 0, kind: int = 1) -> bytes:
    record = RawRecord(key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, coordinator))
    return RawBatch(
        [record], base_offset=offset, attributes=CONTROL | TRANSACTIONAL, producer_id=7,
        producer_epoch=epoch,
    ).encoded()  # fmt: skip


def data(sequence: int, *, offset: int, count: int = 1, epoch: int = 0, flags: int = 0) -> bytes:
    return RawBatch(
        [RawRecord()] * count, base_offset=offset, attributes=flags, producer_id=7,
        producer_epoch=epoch, base_sequence=sequence,
    ).encoded()  # fmt: skip


def test_sequences_must_follow_each_other() -> None:
    states = ProducerStates("t-0")
    written(states, batch(0, 100, 3))
    written(states, batch(3, 103, 2))
    for wrong in (4, 6, 0, 3):
        with pytest.raises(OutOfOrderSequenceError, match="last sequence there is 4"):
            states.next_entry(batch(wrong, 105))
    assert states.next_entry(batch(5, 105)).last_sequence == 5
    assert states.producers[7].last_sequence == 4
    assert states.end_offset == 105


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert written(ProducerStates("t-0"), batch(55, 0)).last_sequence == 55


def test_0_follows_the_largest_sequence() -> None:
    states = ProducerStates("t-0")
    entry = written(states, batch(LAST_SEQUENCE - 1, 0, 4))
    assert entry.last_sequence == 1
    assert entry.batches[0].first_sequence == LAST_SEQUENCE - 1
    assert states.duplicate_of(7, 0, LAST_SEQUENCE - 1, 4) == entry.batches[0]
    states = ProducerStates("t-0")
    written(states, batch(LAST_SEQUENCE, 0))
    written(states, batch(0, 1))


def test_duplicates_of_the_last_five_batches_are_known() -> None:
    states = ProducerStates("t-0")
    for i in range(7):
        written(states, batch(2 * i, 10 + 2 * i, 2))
    for i in range(7):
        found = states.duplicate_of(7, 0, 2 * i, 2)
        assert (found is not None) == (i >= 2)
        if found:
            assert (found.first_offset, found.last_offset) == (10 + 2 * i, 11 + 2 * i)
            assert found.timestamp_ms == NOW_MS
    # Only the same range of the same epoch is a duplicate.
    assert states.duplicate_of(7, 0, 12, 1) is None
    assert states.duplicate_of(7, 1, 12, 2) is None
    assert states.duplicate_of(8, 0, 12, 2) is None


def test_a_new_epoch_begins_with_0_and_fences_the_one_before() -> None:
    states = ProducerStates("t-0")
    written(states, batch(0, 0, 5))
    with pytest.raises(OutOfOrderSequenceError, match="begins with 0"):
        states.next_entry(batch(5, 5, epoch=1))
    entry = written(states, batch(0, 5, epoch=1))
    assert len(entry.batches) == 1
    assert states.duplicate_of(7, 0, 0, 5) is None
    with pytest.raises(InvalidProducerEpochError, match="epoch 0; the last seen epoch is 1"):
        states.next_entry(batch(5, 6))


def test_batches_of_the_log_are_not_checked() -> None:
    states = ProducerStates("t-0")
    states.replay(data(9, offset=0) + data(4, offset=1, count=2, epoch=3) + data(0, offset=3))
    assert states.producers[7].producer_epoch == 0
    assert states.producers[7].batches == (BatchMetadata(0, 3, 0, NOW_MS),)
    assert states.end_offset == 4


def test_replay_skips_what_is_known_and_follows_batches_without_a_producer() -> None:
    states = ProducerStates("t-0", end_offset=2)
    plain = RawBatch([RawRecord()] * 4, base_offset=2).encoded()
    states.replay(data(0, offset=0, count=2) + plain)
    assert not states.producers
    assert states.end_offset == 6
    states.replay(b"")
    assert states.end_offset == 6
    with pytest.raises(CorruptRecordError):
        states.replay(plain[:-1])


def test_a_transaction_in_the_log_is_open_until_its_marker() -> None:
    states = ProducerStates("t-0")
    states.replay(data(0, offset=10, flags=TRANSACTIONAL) + data(1, offset=11, flags=TRANSACTIONAL))
    assert states.first_undecided_offset == 10
    with pytest.raises(InvalidTxnStateError, match="since offset 10"):
        states.next_entry(batch(2, 12))
    states.expire(NOW_MS + 10**12)
    assert 7 in states.producers
    states.replay(marker(offset=12))
    assert states.first_undecided_offset is None
    assert states.producers[7].coordinator_epoch == 3
    assert states.end_offset == 13
    # The sequences continue in the same epoch, and begin again in another one.
    assert states.next_entry(batch(2, 13)).last_sequence == 2
    states.replay(marker(offset=13, epoch=1))
    assert states.producers[7].batches == ()
    written(states, batch(0, 14, epoch=1))


def test_a_client_begins_no_transaction() -> None:
    first = batch(0, 0, transactional=True)
    states = ProducerStates("t-0")
    with pytest.raises(InvalidTxnStateError, match="begins none"):
        states.next_entry(first)
    entry = ProducerStates("t-0", takes_transactions=True).next_entry(first)
    assert entry.transaction_offset == 0
    # One that a broker with transactions began can go on, in its epoch.
    states.replay(data(0, offset=0, flags=TRANSACTIONAL))
    assert states.next_entry(batch(1, 1, transactional=True)).transaction_offset == 0
    with pytest.raises(InvalidTxnStateError, match="begins none"):
        states.next_entry(batch(0, 1, epoch=1, transactional=True))


def test_a_damaged_marker_is_reported() -> None:
    for record in (RawRecord(), RawRecord(key=b"\0\0\0\1", value=b"\0")):
        control = RawBatch([record], attributes=CONTROL, producer_id=7).encoded()
        with pytest.raises(CorruptRecordError, match="cut short"):
            ProducerStates("t-0").replay(control)


def test_other_control_records_change_no_producer() -> None:
    states = ProducerStates("t-0")
    states.replay(marker(kind=2))
    assert not states.producers
    assert states.end_offset == 1


def test_producers_expire() -> None:
    states = ProducerStates("t-0", expiration_ms=100)
    written(states, batch(0, 0))
    states.expire(NOW_MS + 99)
    assert states.producers
    states.expire(NOW_MS + 100)
    assert not states.producers
    # Its next batch may have any sequence: the producer is unknown.
    written(states, batch(41, 1))


def test_the_number_of_producers_is_bounded() -> None:
    states = ProducerStates("t-0", max_producers=3)
    for producer_id in (1, 2, 3, 1, 4):
        entry = ProducerStateEntry(producer_id)
        states.put(entry, 0)
    assert list(states.producers) == [3, 1, 4]


def test_the_fields_come_from_a_validated_batch() -> None:
    sent = RawBatch([RawRecord(), RawRecord(3)], producer_id=7, producer_epoch=2, base_sequence=8)
    produced = validate(
        sent.encoded(), ProduceRules(), "t-0", next_offset=50, leader_epoch=0, now_ms=NOW_MS
    )
    one = SequencedBatch.of(produced, 50)
    assert one == SequencedBatch(7, 2, 8, 50, 51, NOW_MS + 3, False)
    assert one.last_sequence == 9
    live, replayed = ProducerStates("t-0"), ProducerStates("t-0")
    written(live, one)
    replayed.replay(produced.data)
    assert live.producers == replayed.producers
    assert live.end_offset == replayed.end_offset == 52
