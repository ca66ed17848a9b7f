"""The simulation of replicated partitions: its log, and checks that can fail."""

from __future__ import annotations

from random import Random

import pytest

from kraft._core.bytes.batch import BatchBuilder
from kraft.broker.replication.messages import PartitionId
from kraft.errors import CorruptRecordError, StorageError
from kraft.simulation.batch_tree import Violation
from kraft.simulation.replica_checks import CommittedPartition
from kraft.simulation.replica_log import ReplicaLog, ReplicaStore

P0 = PartitionId(b"t" * 16, 0)
STATE = {"isr": [1], "elr": [], "leader": 1}


# -- the simulated log


def batch(count: int = 1, producer_id: int = -1, sequence: int = -1) -> bytes:
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    for _ in range(count):
        builder.append(b"value")
    return bytes(builder.finish())


def log_of(*counts: int) -> ReplicaLog:
    log = ReplicaLog(P0, lambda partition, epoch: None)
    for count in counts:
        log.append_as_leader(batch(count), 0)
    return log


def test_reads_return_whole_batches_below_the_end() -> None:
    log = log_of(2, 2, 2)
    assert len(log.read(1, 10_000, 6).batches) == 3
    assert len(log.read(2, 10_000, 4).batches) == 1
    assert len(log.read(2, 1, 6).batches) == 1
    assert len(log.read(4, 10_000, 5).batches) == 0
    assert [each.header.base_offset for each in log.batches_between(2, 4)] == [2]


def test_a_power_failure_loses_unsynced_batches_only() -> None:
    lengths = set()
    for seed in range(50):
        log = log_of(1, 1)
        log.sync()
        log.append_as_leader(batch(), 0)
        log.append_as_leader(batch(), 0)
        log.lose_tail(Random(seed))
        lengths.add(log.end_offset)
    assert lengths == {2, 3, 4}


def test_a_follower_appends_without_gaps() -> None:
    source, log = log_of(1, 1), log_of()
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(source.batches[1].data)
    log.append_as_follower(source.read(0, 10_000, 2).data)
    assert log.end_offset == 2


def test_truncation_forgets_sequences() -> None:
    log = ReplicaLog(P0, lambda partition, epoch: None)
    for sequence in (0, 1):
        log.append_as_leader(batch(producer_id=5, sequence=sequence), 0)
    log.truncate_to(1)
    assert log.append_as_leader(batch(producer_id=5, sequence=1), 1).first_offset == 1
    assert log.append_as_leader(batch(producer_id=5, sequence=0), 1).first_offset == 0


def test_a_store_does_not_create_what_may_be_offline() -> None:
    store = ReplicaStore(Random(1), lambda partition, epoch: None)
    one, other = b"d" * 15 + b"1", b"d" * 15 + b"2"
    store.use([one, other])
    assert store.open(P0, "a", one).directory == one
    store.fail(one)
    with pytest.raises(StorageError):
        store.open(P0, "a", one)
    assert store.open(P0, "a", bytes(16)).directory == other


# -- the checks


def committed(*sequences: int) -> CommittedPartition:
    known = CommittedPartition(P0, STATE)
    log = ReplicaLog(P0, lambda partition, epoch: None)
    for sequence in sequences:
        log.append_as_leader(batch(producer_id=sequence, sequence=0), 0)
    for each in log.batches:
        known.extend(each)
    return known


def test_records_twice_are_a_violation() -> None:
    known = CommittedPartition(P0, STATE)
    twice = ReplicaLog(P0, lambda partition, epoch: None)
    for epoch in (0, 1):
        data = bytearray(batch(producer_id=5, sequence=0))
        twice._producers = twice._new_producers()
        twice.append_as_leader(data, epoch)
    known.extend(twice.batches[0])
    with pytest.raises(Violation, match="committed_in_the_order_of_the_producer"):
        known.extend(twice.batches[1])


def test_a_log_is_compared_with_the_committed_records() -> None:
    known = committed(1, 2, 3)
    same, shorter, other = log_of(), log_of(), log_of()
    for producer in (1, 2, 3):
        same.append_as_leader(batch(producer_id=producer, sequence=0), 0)
    shorter.append_as_leader(batch(producer_id=1, sequence=0), 0)
    for producer in (1, 9, 3):
        other.append_as_leader(batch(producer_id=producer, sequence=0), 0)
    assert known.difference(same, 3) is None
    assert known.difference(shorter, 3) == "the log ends at 1"
    assert known.difference(shorter, 1) is None
    assert "at 1 of epoch 0" in str(known.difference(other, 3))
    known.start_over(other)
    assert (known.end_offset, known.generation) == (1, 1)
