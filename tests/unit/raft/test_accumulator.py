"""The accumulator: which records share a batch, and when they are drained."""

import pytest

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, scan
from kraft._core.bytes.batch_records import iterate
from kraft.errors import CorruptRecordError, RecordTooLargeError
from kraft.raft.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD, Accumulator
from kraft.records import control
from tests.harness.raft_nodes import batch

EPOCH = 3


def accumulator(linger_ms: int = 25, max_batch_size: int = 1000) -> Accumulator:
    return Accumulator(EPOCH, 10, linger_ms, max_batch_size)


def drained(collected: Accumulator) -> list[tuple[int, int, list[bytes | None]]]:
    """Return base offset, end offset and values of each batch; check epochs and CRCs."""
    found = []
    for base_offset, end_offset, batches in collected.drain():
        for one in iterate(batches):
            assert one.partition_leader_epoch == EPOCH
            assert (one.base_offset, one.next_offset) == (base_offset, end_offset)
            found.append((base_offset, end_offset, [record.value for record in one]))
    return found


def test_appends_share_a_batch_until_the_linger_time_ends() -> None:
    collected = accumulator()
    assert collected.append_values((b"a", b"b"), 100) == 11
    assert collected.append_values((b"c",), 110) == 12
    assert collected.drain_at_ms == 125, "the linger counts from the first record"
    assert drained(collected) == [(10, 13, [b"a", b"b", b"c"])]
    assert collected.drain_at_ms == float("inf")
    collected.append_values((b"d",), 200)
    assert collected.drain_at_ms == 225
    assert drained(collected) == [(13, 14, [b"d"])]


def test_records_that_do_not_fit_close_the_batch_and_drain_it_at_once() -> None:
    collected = accumulator(max_batch_size=200)
    collected.append_values((b"x" * 80,), 100)
    collected.append_values((b"y" * 80,), 105)
    assert collected.drain_at_ms == 105
    assert drained(collected) == [(10, 11, [b"x" * 80]), (11, 12, [b"y" * 80])]


def test_records_of_one_append_are_never_split() -> None:
    """An append is accepted or rejected as a whole, as in Kafka's accumulator."""
    collected = accumulator(max_batch_size=200)
    fits = 200 - BATCH_OVERHEAD - 2 * RECORD_OVERHEAD
    assert collected.append_values((b"x" * fits, b""), 100) == 11
    with pytest.raises(RecordTooLargeError, match="3 records"):
        collected.append_values((b"x" * fits, b"", b""), 100)
    assert collected.next_offset == 12
    assert len(drained(collected)) == 1


def test_finished_batches_get_their_offsets_and_epoch() -> None:
    collected = accumulator()
    collected.append_values((b"a",), 100)
    batches = bytearray(batch(0, -1, b"b", b"c") + batch(2, -1, b"d"))
    assert collected.append_batches(batches, 101) == 13
    assert collected.drain_at_ms == 101
    parts = collected.drain()
    assert [(base, end) for base, end, _ in parts] == [(10, 11), (11, 14)]
    assert scan(parts[1][2]).base_offsets.tolist() == [11, 13]
    assert parts[1][2] is batches, "the offsets and the epoch are written in place"
    assert collected.append_values((b"e",), 102) == 14


def test_malformed_batches_change_nothing() -> None:
    collected = accumulator()
    with pytest.raises(CorruptRecordError):
        collected.append_batches(bytearray(batch(0, -1)[:-1]), 100)
    assert collected.next_offset == 10
    assert collected.append_values((b"a",), 100) == 10


def test_control_records_form_a_batch_that_is_drained_at_once() -> None:
    collected = accumulator()
    collected.append_values((b"a",), 100)
    assert collected.append_control([control.KRaftVersion(kraft_version=1)], 101) == 11
    assert collected.drain_at_ms == 101
    (_, _, data), (base, end, controls) = collected.drain()
    assert (base, end) == (11, 12)
    assert scan(controls).attributes.tolist() == [ATTRIBUTE_CONTROL]
    assert scan(data).attributes.tolist() == [0]


def test_an_empty_append_is_rejected() -> None:
    collected = accumulator()
    with pytest.raises(ValueError, match="at least one record"):
        collected.append_values((), 100)
    with pytest.raises(ValueError, match="at least one record"):
        collected.append_batches(bytearray(), 100)
    assert collected.drain() == []
