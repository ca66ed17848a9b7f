"""Snapshot files of producers: their bytes, and which of them are used and removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft._core.log.disk import OsDisk
from kraft.broker.producer_snapshots import ProducerSnapshots, decode_snapshot, encode_snapshot
from kraft.broker.producer_state import BatchMetadata, ProducerStateEntry, ProducerStates
from kraft.errors import CorruptRecordError
from tests.harness.produced_batches import NOW_MS

ENTRIES = [
    ProducerStateEntry(5, 1, 4, NOW_MS, 90, (BatchMetadata(17, 99, 2, NOW_MS),)),
    ProducerStateEntry(2**63 - 1, 32767, -1, NOW_MS - 7, -1, ()),
]


def states_with(*entries: ProducerStateEntry, end_offset: int) -> ProducerStates:
    states = ProducerStates("t-0", end_offset=end_offset)
    for entry in entries:
        states.put(entry, end_offset)
    return states


def test_entries_are_read_as_they_were_written() -> None:
    data = encode_snapshot(ENTRIES)
    assert len(data) == 10 + 46 * 2
    assert decode_snapshot(data) == ENTRIES
    assert decode_snapshot(encode_snapshot([])) == []


def test_only_the_last_batch_of_a_producer_is_written() -> None:
    batches = tuple(BatchMetadata(i, 10 + i, 0, NOW_MS) for i in range(5))
    entry = ProducerStateEntry(5, 1, 4, NOW_MS, -1, batches)
    assert decode_snapshot(encode_snapshot([entry])) == [entry._replace(batches=batches[-1:])]


def test_a_damaged_file_is_reported() -> None:
    data = encode_snapshot(ENTRIES)
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError):
            decode_snapshot(data[:size])
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(CorruptRecordError):
            decode_snapshot(bytes(changed))
    with pytest.raises(CorruptRecordError, match="version 2"):
        decode_snapshot(b"\0\2" + data[2:])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_reported(data: bytes) -> None:
    try:
        entries = decode_snapshot(data)
    except CorruptRecordError:
        return
    assert len(entries) * 46 <= len(data)


def test_a_snapshot_is_taken_once_an_offset(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(OsDisk(), tmp_path)
    assert snapshots.take(states_with(*ENTRIES, end_offset=100))
    assert not snapshots.take(states_with(*ENTRIES, end_offset=100))
    assert snapshots.take(states_with(end_offset=101))
    names = ["00000000000000000100.snapshot", "00000000000000000101.snapshot"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_the_latest_file_between_start_and_end_is_loaded(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(OsDisk(), tmp_path)
    for offset in (10, 20, 30, 40):
        snapshots.take(states_with(ENTRIES[0]._replace(producer_id=offset), end_offset=offset))
    states = ProducerStates("t-0")
    snapshots.load(states, 10, 35, now_ms=NOW_MS)
    assert list(states.producers) == [30]
    assert states.end_offset == 30
    assert snapshots.offsets() == [20, 30]
    snapshots.remove_before(30)
    assert snapshots.offsets() == [30]


def test_a_damaged_file_is_removed_and_the_one_before_is_loaded(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(OsDisk(), tmp_path)
    for offset in (20, 30):
        snapshots.take(states_with(ENTRIES[0], end_offset=offset))
    Path(snapshots.path(30)).write_bytes(b"\0\1 no snapshot")
    states = ProducerStates("t-0")
    snapshots.load(states, 0, 50, now_ms=NOW_MS)
    assert states.end_offset == 20
    assert snapshots.offsets() == [20]


def test_without_a_file_the_state_is_empty_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000005.log").touch()
    states = states_with(*ENTRIES, end_offset=80)
    snapshots = ProducerSnapshots(OsDisk(), tmp_path)
    snapshots.load(states, 5, 50, now_ms=NOW_MS)
    assert not states.producers
    assert states.end_offset == 5
    assert not snapshots.take(states)


def test_expired_producers_are_not_loaded(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(OsDisk(), tmp_path)
    snapshots.take(states_with(*ENTRIES, end_offset=9))
    states = ProducerStates("t-0", expiration_ms=1000)
    snapshots.load(states, 0, 9, now_ms=NOW_MS + 5000)
    # The first has an open transaction, which does not expire.
    assert list(states.producers) == [5]
