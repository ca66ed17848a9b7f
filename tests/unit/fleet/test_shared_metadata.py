"""The state that brokers of one process share: decoded once, compared for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft.errors import CorruptRecordError
from kraft.fleet.shared_metadata import SharedMetadata
from kraft.image.publishing import ImageDelta
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records import Record, Uuid
from kraft.records.values import encode_value
from tests.harness.metadata_store import snapshot_bytes
from tests.harness.table_records import batch_of

TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 9)]


def topics(*numbers: int) -> list[Record]:
    return [
        records.Topic(name=f"t{number}", topic_id=TOPICS[number], version=0) for number in numbers
    ]


def in_epoch(epoch: int, base_offset: int, log: list[Record]) -> bytes:
    builder = BatchBuilder(base_offset, epoch)
    for record in log:
        builder.append(encode_value(record))
    return bytes(builder.finish())


class Deltas:
    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.shared = SharedMetadata(self._on_delta)

    def _on_delta(self, delta: ImageDelta, size: int) -> None:
        self.offsets.append(delta.image.offset)


def test_the_bytes_of_a_second_broker_are_not_decoded_again() -> None:
    deltas = Deltas()
    shared = deltas.shared
    data = bytes(batch_of(topics(0, 1)))
    first = shared.receive(0, data)
    shared.commit(first, 2)
    second = shared.receive(0, memoryview(data))
    shared.commit(second, 2)
    assert second is first
    assert first.data is None
    assert (shared.counts.received_bytes, shared.counts.decoded_bytes) == (2 * len(data), len(data))
    assert deltas.offsets == [2]


def test_nothing_is_applied_before_it_is_committed() -> None:
    deltas = Deltas()
    shared = deltas.shared
    data = bytes(batch_of(topics(0))) + bytes(batch_of(topics(1), 1))
    piece = shared.receive(0, data)
    shared.commit(piece, 0)
    assert (shared.next_offset, piece.data is None) == (0, False)
    shared.commit(piece, 1)
    assert (shared.next_offset, piece.data is None) == (1, False)
    shared.commit(piece, 2)
    assert (shared.next_offset, piece.data is None) == (2, True)
    assert deltas.offsets == [1, 2]


def test_a_slow_brokers_larger_response_is_recognised_as_old() -> None:
    shared = Deltas().shared
    one, two = bytes(batch_of(topics(0))), bytes(batch_of(topics(1), 1))
    for offset, data in ((0, one), (1, two)):
        shared.commit(shared.receive(offset, data), 2)
    decoded = shared.counts.decoded_bytes
    late = shared.receive(0, one + two)
    assert (late.base_offset, late.end_offset, late.data) == (0, 2, None)
    shared.commit(late, 2)
    assert shared.counts.decoded_bytes == decoded


def test_the_epochs_of_a_piece_have_their_first_offsets() -> None:
    shared = Deltas().shared
    data = in_epoch(1, 0, topics(0, 1)) + in_epoch(1, 2, topics(2)) + in_epoch(4, 3, topics(3))
    piece = shared.receive(0, data)
    assert (piece.epochs, piece.end_offset) == ([(1, 0), (4, 3)], 4)


def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    shared = Deltas().shared
    whole = bytes(batch_of(topics(0)))
    piece = shared.receive(0, whole + bytes(batch_of(topics(1), 1))[:30])
    assert (piece.end_offset, piece.size) == (1, len(whole))


def test_bytes_that_do_not_continue_at_the_offset_are_rejected() -> None:
    shared = Deltas().shared
    with pytest.raises(
        CorruptRecordError, match="for a fetch of offset 0, which begin with offset 5"
    ):
        shared.receive(0, bytes(batch_of(topics(0), 5)))
    with pytest.raises(CorruptRecordError, match="which begin with no batch"):
        shared.receive(0, b"\0" * 80)


def test_another_batch_for_a_committed_offset_is_found() -> None:
    """A controller that sends one broker other records is found, whatever else it sends with them.

    The whole response is new to the process; its batches are compared one by one.
    """
    shared = Deltas().shared
    one, two = bytes(batch_of(topics(0))), bytes(batch_of(topics(1), 1))
    for offset, data in ((0, one), (1, two)):
        shared.commit(shared.receive(offset, data), 2)
    other = bytes(batch_of(topics(2), 1))
    piece = shared.receive(0, one + other)
    with pytest.raises(CorruptRecordError, match="different batches for the committed offset 1"):
        shared.commit(piece, 2)


def test_a_batch_is_found_that_was_received_before_another_one_was_committed() -> None:
    shared = Deltas().shared
    early = shared.receive(0, bytes(batch_of(topics(2))))
    shared.commit(shared.receive(0, bytes(batch_of(topics(0)))), 1)
    with pytest.raises(CorruptRecordError, match="different batches for the committed offset 0"):
        shared.commit(early, 1)


def test_the_uncommitted_batch_of_a_deposed_leader_is_no_fault() -> None:
    """A leader that was paused sends its last batch to a broker; the others have a later leader's.

    The broker truncates its log once it finds the later leader.
    """
    deltas = Deltas()
    shared = deltas.shared
    one, two = in_epoch(1, 0, topics(0)), in_epoch(2, 1, topics(1))
    for offset, data in ((0, one), (1, two)):
        shared.commit(shared.receive(offset, data), 2)
    shared.commit(shared.receive(0, one + in_epoch(1, 1, topics(2))), 1)
    shared.commit(shared.receive(1, in_epoch(1, 1, topics(2, 3))), 1)
    shared.commit(shared.receive(2, in_epoch(2, 2, topics(4))), 3)
    assert deltas.offsets == [1, 2, 3]


def test_another_batch_for_an_uncommitted_offset_is_no_fault() -> None:
    shared = Deltas().shared
    shared.commit(shared.receive(0, in_epoch(1, 0, topics(0))), 0)
    piece = shared.receive(0, in_epoch(2, 0, topics(1)))
    shared.commit(piece, 1)
    assert shared.next_offset == 1


def test_a_damaged_batch_for_a_committed_offset_is_found() -> None:
    shared = Deltas().shared
    data = bytes(batch_of(topics(0)))
    shared.commit(shared.receive(0, data), 1)
    damaged = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
    with pytest.raises(CorruptRecordError, match=r"begin with no batch \(.*CRC"):
        shared.receive(0, damaged)


def test_a_snapshot_behind_the_state_does_not_replace_it(tmp_path: Path) -> None:
    """Another broker may fetch and apply the log while one downloads a snapshot."""
    deltas = Deltas()
    shared = deltas.shared
    data = bytes(batch_of(topics(0)))
    shared.commit(shared.receive(0, data), 1)
    id = OffsetAndEpoch(2, 1)
    snapshot = snapshot_bytes(tmp_path, id, None)
    loading = shared.begin_snapshot(id)
    loading.add(snapshot, len(snapshot))
    shared.commit(shared.receive(1, bytes(batch_of(topics(1, 2), 1))), 3)
    shared.finish_snapshot(loading)
    assert (shared.next_offset, shared.state.table.topic_count) == (3, 3)
    assert not shared.is_loading
    assert deltas.offsets == [1, 3]


def test_the_rows_of_removed_topics_are_dropped_when_they_are_many() -> None:
    deltas = Deltas()
    shared = deltas.shared
    partitions: list[Record] = [
        records.Partition(
            partition_id=number,
            topic_id=TOPICS[0],
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            version=1,
        )
        for number in range(10_001)
    ]
    removal: list[Record] = [records.RemoveTopic(topic_id=TOPICS[0], version=0)]
    offset = 0
    for log in (topics(0), partitions, removal, topics(1), topics(2)):
        shared.commit(shared.receive(offset, bytes(batch_of(log, offset))), 1 << 40)
        offset += len(log)
    assert (shared.state.table.row_count, shared.state.table.topic_count) == (0, 2)
    assert deltas.offsets[-1] == offset


def test_two_brokers_with_different_snapshots_of_one_id_are_a_fault() -> None:
    shared = Deltas().shared
    shared.check_snapshot(OffsetAndEpoch(10, 1), 77)
    shared.check_snapshot(OffsetAndEpoch(10, 1), 77)
    with pytest.raises(CorruptRecordError, match="different bytes of snapshot 10-1"):
        shared.check_snapshot(OffsetAndEpoch(10, 1), 78)
