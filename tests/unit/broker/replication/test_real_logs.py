"""Replication over partition logs on disk: the same answers and records as over simulated logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraft import records
from kraft._core.bytes.file_slice import FileSlice
from kraft._core.decide.placement import UNASSIGNED_DIRECTORY
from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from kraft.broker.replication.messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    BrokerFetchRequest,
    FetchPartition,
    PartitionId,
)
from kraft.broker.replication.replica_moves import ReplicaMove
from kraft.broker.replication.settings import ReplicationSettings
from kraft.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    StorageError,
)
from kraft.records import Uuid
from kraft.simulation.memory_disk import MemoryDisk
from kraft.simulation.replica_log import ReplicaSlice
from tests.harness.joined_brokers import DIRECTORY, P0, TOPIC, JoinedBrokers, batch
from tests.harness.partition_logs import Logs, directory_id

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=50, file_delete_delay_ms=0)
#: Rounds of fetches after which a follower has all, though each reads one segment at most.
ALL = 40


class RealBrokers(JoinedBrokers):
    """Joined brokers whose logs are on disks, two directories each."""

    def __init__(
        self,
        home: Path,
        *ids: int,
        disks: dict[int, Any] | None = None,
        settings: ReplicationSettings | None = None,
    ) -> None:
        self.home = home
        self.disks = disks or {}
        self.logs: dict[int, Logs] = {}
        super().__init__(*ids, settings=settings, stores=self._store)

    def _store(self, id: int) -> PartitionLogStore:
        paths = [self.home / str(id) / name for name in "12"]
        for path in paths:
            if id in self.disks:
                self.disks[id].make_directory(str(path))
            else:
                path.mkdir(parents=True, exist_ok=True)
        self.logs[id] = Logs(*paths, settings=SMALL, disk=self.disks.get(id))
        # Of the tests' batches: producers do not expire.
        self.logs[id].now_ms = 1
        return PartitionLogStore(self.logs[id].manager)

    def log(self, id: int, partition: PartitionId = P0) -> PartitionLog:
        log = self[id].partition(partition).log
        assert isinstance(log, PartitionLog)
        return log

    def store(self, id: int) -> PartitionLogStore:
        store = self[id].logs
        assert isinstance(store, PartitionLogStore)
        return store

    def restart(self, id: int, *, clean: bool = True) -> None:
        """Begin a new process of a broker; a crash loses nothing that was written."""
        broker = self[id]
        self.store(id).set_high_watermarks(broker.manager.high_watermarks())
        if clean:
            self.logs[id].manager.close()
        else:
            self.logs[id].manager.write_checkpoints()
        broker.logs = self._store(id)
        broker.start()
        self.deliver(id)

    def close(self) -> None:
        for logs in self.logs.values():
            logs.manager.close()


def content(brokers: RealBrokers, id: int) -> list[bytes]:
    log = brokers.log(id)
    return [bytes(each.data) for each in log.core.batches(log.start_offset)]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[RealBrokers]:
    brokers = RealBrokers(tmp_path, 1, 2)
    brokers.create(leader=1)
    yield brokers
    brokers.close()


def test_followers_get_the_batches_of_all_segments(brokers: RealBrokers) -> None:
    for sequence in range(30):
        brokers[1].produce(
            sequence, batch(b"x" * 20, producer_id=5, sequence=sequence), timeout_ms=0
        )
    brokers.replicate(2, rounds=ALL)
    assert brokers.log(1).core.segment_count > 5
    assert content(brokers, 2) == content(brokers, 1)
    assert len(content(brokers, 2)) == 30
    assert [brokers[id].partition().high_watermark for id in (1, 2)] == [30, 30]
    assert brokers.log(2).producers.producers[5].last_sequence == 29


def test_a_consumer_gets_a_part_of_a_file(brokers: RealBrokers) -> None:
    brokers[1].produce(data=batch(b"value"), acks=1)
    assert brokers[1].fetch(0).records is None  # type: ignore[union-attr]
    brokers.replicate(2)
    answer = brokers[1].fetch(0)
    assert answer is not None
    assert isinstance(answer.records, FileSlice)
    assert answer.records.read() == content(brokers, 1)[0]


def test_errors_of_the_log_are_error_codes(brokers: RealBrokers) -> None:
    first = batch(producer_id=5, sequence=0)
    assert brokers[1].produce(data=first, acks=1) == (NONE, 0, 0, None, -1)
    assert brokers[1].produce(data=first, acks=1) == (NONE, 0, 0, None, -1), "a duplicate"
    answer = brokers[1].produce(data=batch(producer_id=5, sequence=7), acks=1)
    assert answer is not None
    assert answer.error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert brokers.log(1).end_offset == 1


def test_an_uncommitted_end_is_replaced_by_that_of_the_next_leader(brokers: RealBrokers) -> None:
    for _ in range(5):
        brokers[1].produce(acks=1)
    brokers.replicate(2)
    for _ in range(9):
        brokers[1].produce(data=batch(b"lost"), acks=1)
    brokers.change(leader=2)
    brokers[2].produce(data=batch(b"kept"), acks=1)
    brokers.replicate(1, rounds=ALL)
    assert content(brokers, 1) == content(brokers, 2)
    assert brokers.log(1).epochs == [(0, 0), (1, 5)]
    assert (brokers.log(1).end_offset, brokers[2].partition().high_watermark) == (6, 6)


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_comes_back_with_its_records_and_high_watermark(
    brokers: RealBrokers, clean: bool
) -> None:
    for _ in range(12):
        brokers[1].produce(acks=1)
    brokers.replicate(2, rounds=ALL)
    before = content(brokers, 2)
    brokers.restart(2, clean=clean)
    assert brokers[2].partition().high_watermark == 12
    assert content(brokers, 2) == before
    brokers[1].produce(acks=1)
    brokers.replicate(2, rounds=ALL)
    assert content(brokers, 2) == content(brokers, 1)


def test_deleted_records_go_on_all_replicas(brokers: RealBrokers) -> None:
    for _ in range(20):
        brokers[1].produce(data=batch(b"x" * 50), acks=1)
    brokers.replicate(2, rounds=ALL)
    brokers[1].manager.delete_records("delete", {P0: 13}, 1_000.0, 0.0)
    brokers.replicate(2, rounds=ALL)
    brokers[1].take()
    assert brokers[1].answers.pop("delete") == {P0: (NONE, 13)}
    assert [brokers.log(id).start_offset for id in (1, 2)] == [13, 13]
    for id in (1, 2):
        brokers.store(id).set_high_watermarks(brokers[id].manager.high_watermarks())
        assert sum(brokers.logs[id].manager.apply_retention(0)) > 0
    assert brokers.log(1).core.base_offsets[0] > 0


def test_a_follower_begins_anew_where_its_leaders_log_begins(brokers: RealBrokers) -> None:
    for _ in range(20):
        brokers[1].produce(data=batch(b"x" * 50), acks=1)
    brokers.log(1).raise_start_offset(15)
    brokers.log(1).high_watermark = 20
    brokers.log(1).apply_retention(0)
    brokers.replicate(2, rounds=ALL)
    assert brokers.log(2).start_offset == 15
    assert content(brokers, 2) == content(brokers, 1)


def test_offsets_are_listed_by_time(brokers: RealBrokers) -> None:
    for _ in range(9):
        brokers[1].produce(acks=1)
    brokers.replicate(2, rounds=ALL)
    manager = brokers[1].manager
    assert manager.list_offset(P0, 1) == (NONE, 0, 1, 0)
    assert manager.list_offset(P0, 2) == (NONE, -1, -1, -1)
    assert manager.list_offset(P0, MAX_TIMESTAMP) == (NONE, 0, 1, 0)
    assert manager.list_offset(P0, EARLIEST) == (NONE, 0, -1, 0)
    assert manager.list_offset(P0, LATEST) == (NONE, 9, -1, 0)


def test_a_topic_that_was_created_again_has_a_new_log(brokers: RealBrokers) -> None:
    brokers[1].produce(acks=1)
    brokers.logs[1].manager.close()
    logs = Logs(*(brokers.home / "1" / name for name in "12"), settings=SMALL)
    opened = PartitionLogStore(logs.manager).open(
        PartitionId(b"other topic's id", 0), "a", bytes(DIRECTORY)
    )
    assert opened.log.end_offset == 0
    assert opened.log.topic_id == Uuid(b"other topic's id")  # type: ignore[attr-defined]
    names = [path.name for path in (brokers.home / "1" / "1").iterdir()]
    assert sum(name.startswith("a-0.") and name.endswith("-stray") for name in names) == 1
    brokers.logs[1] = logs


def test_a_deleted_partition_is_gone(brokers: RealBrokers) -> None:
    brokers[1].produce(acks=1)
    brokers.append(records.RemoveTopic(topic_id=TOPIC))
    assert P0 not in brokers[1].manager.partitions
    assert brokers.logs[1].manager.get("a", 0) is None
    assert brokers.logs[1].manager.remove_due(brokers.logs[1].now_ms) == 1
    brokers.store(1).delete(P0)


def test_a_failed_write_takes_the_partitions_of_the_directory_offline(tmp_path: Path) -> None:
    disk = MemoryDisk()
    brokers = RealBrokers(tmp_path, 1, 2, disks={1: disk})
    brokers.create(leader=1)
    brokers.create(leader=1, partition=1)
    disk.refuse("write")
    answer = brokers[1].produce(acks=1)
    assert answer is not None
    assert answer.error == KAFKA_STORAGE_ERROR
    (path,) = brokers.logs[1].failed
    assert path.endswith("/1")
    brokers[1].manager.directory_failed(bytes(DIRECTORY), 0.0)
    fetched = brokers[1].fetch(0, id=PartitionId(bytes(TOPIC), 1))
    assert fetched is not None
    assert fetched.error == KAFKA_STORAGE_ERROR
    brokers.close()


@pytest.mark.parametrize(
    ("replica", "damage"), [(-1, os.remove), (2, lambda path: os.truncate(path, 9))]
)
def test_a_failed_read_takes_the_partitions_of_the_directory_offline(
    tmp_path: Path, replica: int, damage: Callable[[Path], None]
) -> None:
    """ReplicaManager.readFromLog, UnifiedLog.read: the error of one partition of a Fetch."""
    brokers = RealBrokers(tmp_path, 1, 2)
    brokers.create(leader=1)
    brokers.create(leader=1, partition=1, directory=directory_id(1))
    other = PartitionId(bytes(TOPIC), 1)
    for id in (P0, other):
        for _ in range(40):
            brokers[1].produce(data=batch(b"x" * 60), acks=1, id=id)
    brokers.replicate(2, rounds=ALL)
    assert brokers.log(1).core.segment_count > 10, "more than the pool keeps open"
    damage(tmp_path / "1" / "1" / "a-0" / f"{0:020}.log")
    fetches = [FetchPartition(id, 0, 1_000, log_start_offset=0) for id in (P0, other)]
    leader = brokers[1]
    leader.manager.fetch("both", BrokerFetchRequest(fetches, replica, 2), leader.now)
    leader.take()
    fetched = {each.id: each.error for each in leader.answers["both"].partitions}
    assert fetched == {P0: KAFKA_STORAGE_ERROR, other: NONE}
    assert [path.endswith("/1/1") for path in brokers.logs[1].failed] == [True]
    leader.manager.directory_failed(bytes(DIRECTORY), 0.0)
    assert not leader.partition().is_leader
    assert leader.partition(other).is_leader
    brokers.close()


def test_requests_between_a_failure_and_the_news_of_it(tmp_path: Path) -> None:
    """A log whose directory has failed raises an error before the manager takes it offline."""
    brokers = RealBrokers(tmp_path, 1, 2, settings=ReplicationSettings(max_lag_ms=100.0))
    brokers.create(leader=1)
    brokers[1].produce(acks=1)
    brokers.replicate(2)
    leader = brokers[1]
    brokers.logs[1].directories[0].fail(StorageError("broken"))
    answer = leader.fetch(0, replica=2)
    assert answer is not None
    assert answer.error == KAFKA_STORAGE_ERROR
    leader.manager.delete_records("delete", {P0: 1}, 1_000.0, leader.now)
    leader.take()
    assert leader.answers.pop("delete")[P0].error == KAFKA_STORAGE_ERROR
    # The check of the ISR goes on to other partitions.
    leader.now += 1_000.0
    leader.manager.tick(leader.now)
    assert leader.take().isr_changes is None
    brokers.close()


def test_a_batch_that_fails_leaves_those_before_it_in_the_answer(tmp_path: Path) -> None:
    disk = MemoryDisk()
    brokers = RealBrokers(tmp_path, 1, 2, disks={1: disk})
    brokers.create(leader=1)
    brokers.create(leader=1, partition=1)
    other = PartitionId(bytes(TOPIC), 1)
    disk.refuse("write", "/a-1/")
    leader = brokers[1]
    leader.manager.produce("both", {P0: batch(), other: batch()}, 1, 1_000.0, leader.now)
    leader.take()
    answers = leader.answers.pop("both")
    assert [answers[id].error for id in (P0, other)] == [NONE, KAFKA_STORAGE_ERROR]
    brokers.close()


def test_no_log_is_created_while_an_offline_directory_may_have_it(tmp_path: Path) -> None:
    disk = MemoryDisk()
    for name in "12":
        disk.make_directory(f"/{name}")
    logs = Logs("/1", "/2", disk=disk)
    store = PartitionLogStore(logs.manager)
    logs.directories[0].fail(StorageError("broken"))
    with pytest.raises(StorageError, match="may be in a log directory that is offline"):
        store.open(P0, "a", directory_id(0))
    assert store.open(P0, "a", directory_id(1)).directory == directory_id(1)
    other = PartitionId(bytes(TOPIC), 1)
    assert store.open(other, "a", UNASSIGNED_DIRECTORY).directory == directory_id(1)


# -- beside simulated logs


class Twins:
    """Two sets of brokers that get the same calls, one with simulated logs."""

    def __init__(self, home: Path) -> None:
        self.real = RealBrokers(home, 1, 2, 3)
        self.simulated = JoinedBrokers(1, 2, 3)
        self.both: tuple[JoinedBrokers, JoinedBrokers] = (self.real, self.simulated)
        for one in self.both:
            one.create(leader=1)
        self.leader = 1

    def facts(self, one: JoinedBrokers) -> list[Any]:
        found: list[Any] = []
        for broker in one.brokers.values():
            partition = broker.partition()
            log = partition.log
            assert log is not None
            found.append(
                (
                    *(partition.high_watermark, partition.isr, partition.leader_epoch),
                    *(log.start_offset, log.end_offset),
                    [log.end_offset_of(epoch) for epoch in range(partition.leader_epoch + 1)],
                    sorted(broker.answers.items(), key=repr),
                )
            )
            broker.answers.clear()
        return found

    def step(self, dice: Random) -> str:
        name = dice.choice(("produce", "produce", "produce", "replicate", "lead", "read", "delete"))
        seed = dice.random()
        answers = [getattr(self, name)(one, Random(seed)) for one in self.both]
        assert answers[0] == answers[1], name
        if name == "lead":
            self.leader = answers[0]
        assert self.facts(self.real) == self.facts(self.simulated), name
        return name

    def produce(self, one: JoinedBrokers, dice: Random) -> Any:
        # Without producers: after a truncation simulated logs remember more of their batches.
        data = batch(*(bytes(dice.randrange(90)) for _ in range(dice.randint(1, 3))))
        answer = one[self.leader].produce(data=data, acks=1)
        return None if answer is None else answer[:3]

    def replicate(self, one: JoinedBrokers, dice: Random) -> None:
        for id in dice.sample((1, 2, 3), 2):
            one.replicate(id, rounds=ALL)

    def lead(self, one: JoinedBrokers, dice: Random) -> int:
        leader = dice.choice((1, 2, 3))
        one.change(leader=leader)
        return leader

    def read(self, one: JoinedBrokers, dice: Random) -> Any:
        log = one[self.leader].partition().log
        assert log is not None
        offset = dice.randint(log.start_offset, log.end_offset)
        answer = one[self.leader].fetch(offset, max_bytes=1)
        assert answer is not None
        data = answer.records
        whole = b""
        if isinstance(data, FileSlice):
            whole = data.read()
        elif isinstance(data, ReplicaSlice):
            whole = data.data
        return answer._replace(records=None), whole

    def delete(self, one: JoinedBrokers, dice: Random) -> None:
        broker = one[self.leader]
        log = broker.partition().log
        assert log is not None
        # Simulated logs forget the last epoch with the last record.
        last = min(broker.partition().high_watermark, log.end_offset - 1)
        if last > log.start_offset:
            offset = dice.randint(log.start_offset, last)
            broker.manager.delete_records(offset, {P0: offset}, 0.0, broker.now)


@pytest.mark.parametrize("seed", range(12))
def test_real_logs_answer_as_simulated_ones(seed: int, tmp_path: Path) -> None:
    twins = Twins(tmp_path)
    dice = Random(seed)
    done = {twins.step(dice) for _ in range(120)}
    assert len(done) == 5
    for id, broker in twins.simulated.brokers.items():
        log = twins.real.log(id)
        real = b"".join(bytes(each.data) for each in log.core.batches(log.start_offset))
        whole = b"".join(each.data for each in broker.log().batches)
        assert real == whole
    twins.real.close()


def test_a_move_lets_settled_partitions_be_read_again(brokers: RealBrokers) -> None:
    """Readers that had all of the old log read the one that replaces it; a cancelled move is none.

    A settled partition is not read until it changes.
    """
    for _ in range(3):
        brokers[1].produce(acks=1)
    brokers.replicate(2, rounds=4)
    manager, partition = brokers[1].manager, brokers[1].partition()
    settled = manager.fetches.settled
    assert len(settled) == 1
    (target,) = (
        each for each in brokers.logs[1].manager.directories if each.id != partition.directory
    )

    def begin() -> ReplicaMove:
        brokers.store(1).create_future(P0, "a", target)
        manager.moves.resume(partition)
        return manager.moves.moves[P0]

    begin()
    manager.moves.cancel(P0)
    assert len(settled) == 1
    move = begin()
    while (part := move.next_part(1 << 20)) is not None:
        assert move.append(part, part.records.read())
    assert len(settled) == 1
    manager.moves.finish(move)
    assert len(settled) == 0
    assert partition.directory == target.id
    brokers[1].produce(acks=1)
    brokers.replicate(2, rounds=4)
    assert content(brokers, 2) == content(brokers, 1)
    assert len(content(brokers, 2)) == 4
    assert len(settled) == 1
