"""Fetches that read what changed == fetches that read their whole sessions, on generated histories.

Three brokers lead and follow six partitions. Real followers, scripted followers and consumers fetch
in sessions, with limits, waits, errors and lost responses. `FETCH_SESSION_RUNS=3000` is a long run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kraft.broker.replication.leader_fetcher import FetcherSettings
from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    BrokerFetchResponse,
    CommittedIsr,
    FetchPartition,
    IsrChangeResponse,
    IsrProposal,
    PartitionId,
)
from kraft.broker.replication.replication_output import ReplicationOutput
from kraft.broker.replication.settings import ReplicationSettings
from kraft.errors import (
    INELIGIBLE_REPLICA,
    INVALID_UPDATE_VERSION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
)
from kraft.simulation.replica_log import ReplicaLog
from tests.harness.joined_brokers import (
    DIRECTORY,
    MAX_LAG_MS,
    TOPIC,
    JoinedBroker,
    JoinedBrokers,
    batch,
    broker_record,
    fence,
)
from tests.reference.whole_scan_fetches import WholeScanFetches

RUNS = int(os.environ.get("FETCH_SESSION_RUNS", "60"))
STEPS = 150
BROKERS = (1, 2, 3)
PARTITIONS = [PartitionId(bytes(TOPIC), number) for number in range(6)]
#: The scripted readers: consumers, one of them in a rack, and followers.
READERS = (
    ("consumer", -1),
    ("other consumer", -1),
    ("in a rack", -1),
    ("follower", 2),
    ("late", 3),
)
SETTINGS = ReplicationSettings(
    max_lag_ms=MAX_LAG_MS,
    fetcher=FetcherSettings(backoff_ms=100.0),
    max_fetch_sessions=4,
    is_rack_aware=True,
)


class Reader:
    """A client of one broker with a session."""

    def __init__(self, name: str, replica: int) -> None:
        self.name = name
        self.replica = replica
        self.session_id = self.epoch = 0
        self.offsets: dict[PartitionId, int] = {}
        self.sent: dict[PartitionId, int] = {}
        self.requests = 0

    def request(
        self, dice: Random, offset_of: Callable[[PartitionId], int], replica_epoch: int
    ) -> BrokerFetchRequest:
        wanted = dice.sample(PARTITIONS, dice.randint(1, len(PARTITIONS)))
        forgotten: list[PartitionId] = []
        if dice.random() < 0.08:
            self.begin_anew(dice)
        if self.epoch == 0:
            self.offsets = {id: offset_of(id) for id in wanted}
            named = list(self.offsets)
        else:
            if dice.random() < 0.1:
                forgotten = [id for id in wanted[:2] if self.offsets.pop(id, None) is not None]
            if dice.random() < 0.1:
                self.offsets[wanted[0]] = offset_of(wanted[0])
                self.sent.pop(wanted[0], None)
            named = [id for id, at in self.offsets.items() if self.sent.get(id) != at]
        for id in forgotten:
            self.sent.pop(id, None)
        self.sent |= {id: self.offsets[id] for id in named}
        denied = dice.choice(PARTITIONS) if self.replica < 0 and dice.random() < 0.1 else None
        self.requests += 1
        epoch = self.epoch
        self.epoch = -1 if epoch < 0 else epoch + 1
        return BrokerFetchRequest(
            [
                FetchPartition(id, self.offsets[id], dice.choice((90, 10_000)), log_start_offset=0)
                for id in named
            ],
            self.replica,
            replica_epoch - (dice.random() < 0.03) if self.replica >= 0 else -1,
            dice.choice((0, 0, 50, 400)),
            dice.choice((1, 1, 300)),
            dice.choice((100, 300, 100_000)),
            self.session_id,
            epoch + (dice.random() < 0.03),
            forgotten,
            "rack-2" if self.name == "in a rack" else None if dice.random() < 0.9 else "",
            uses_topic_ids=dice.random() > 0.02,
            error_of=None
            if self.replica >= 0 or dice.random() < 0.5
            else lambda id: TOPIC_AUTHORIZATION_FAILED if id == denied else 0,
        )

    def begin_anew(self, dice: Random) -> None:
        """Begin another session; a client that closes it names the old one."""
        self.epoch = 0
        self.sent.clear()
        if dice.random() < 0.5:
            self.session_id = 0

    def answered(self, response: BrokerFetchResponse, dice: Random) -> None:
        if response.error or response.session_id == 0:
            self.begin_anew(dice)
            return
        self.session_id = response.session_id
        for each in response.partitions:
            if each.records is not None and dice.random() < 0.9:
                self.offsets[each.id] = each.records.batches[-1].header.last_offset + 1  # type: ignore


class Side:
    """Brokers and readers of one of the two kinds."""

    def __init__(self, *, is_twin: bool) -> None:
        self.brokers = JoinedBrokers(*BROKERS, settings=SETTINGS)
        self.answers: list[Any] = []
        self.proposals: dict[int, list[IsrProposal]] = {id: [] for id in BROKERS}
        self.readers = {
            (name, id): Reader(name, replica) for name, replica in READERS for id in (1, 2)
        }
        self.tokens: dict[Any, Reader] = {}
        self.epochs = {id: id for id in BROKERS}
        for broker in self.brokers.brokers.values():
            if is_twin:
                manager = broker.manager
                manager.fetches = WholeScanFetches(
                    manager, manager.partitions, manager.context, SETTINGS, broker._next_session
                )
            self._watch(broker)
        for number in range(len(PARTITIONS)):
            self.brokers.create(leader=1 if number < 4 else 2, partition=number)

    def _watch(self, broker: JoinedBroker) -> None:
        take = broker.take

        def taking() -> ReplicationOutput:
            output = take()
            self.proposals[broker.id] += output.isr_changes or []
            self.answers += [
                (broker.id, answer.token, plain(answer.response)) for answer in output.answers
            ]
            return output

        broker.take = taking  # type: ignore[method-assign]

    def facts(self) -> Any:
        found: list[Any] = []
        for broker in self.brokers.brokers.values():
            fetches = broker.manager.fetches
            if isinstance(fetches, WholeScanFetches):
                found.append(sorted(fetches.scanned))
            else:
                sessions = fetches.sessions._sessions
                found.append(sorted(sessions))
                assert len(fetches.settled) == sum(
                    len(each.partitions) - len(each.unread) for each in sessions.values()
                )
            found.append(len(fetches.waiting))
            found.append([(each.id, each.isr) for each in self.proposals[broker.id]])
            for partition in broker.manager.partitions.values():
                found.append((partition.id.partition, partition.high_watermark, partition.isr))
                leading, log = partition.leading, partition.log
                if leading is not None and log is not None:
                    found += [
                        (
                            *(id, each.end_offset, each.start_offset, each.broker_epoch),
                            each.is_caught_up(log.end_offset, broker.now, MAX_LAG_MS),
                        )
                        for id, each in leading.followers.items()
                    ]
        # Requests that one change ends are answered in any order.
        answers, self.answers = self.answers, []
        return found, sorted(answers, key=lambda answer: answer[:2])


def plain(response: Any) -> Any:
    """Return an answer that can be compared."""
    if not isinstance(response, BrokerFetchResponse):
        return response
    return response._replace(
        partitions=[
            each._replace(records=each.records and bytes(each.records.read()))  # type: ignore
            for each in response.partitions
        ]
    )


class Histories:
    """Steps that both sides do."""

    def __init__(self) -> None:
        self.both = Side(is_twin=False), Side(is_twin=True)
        self.tokens = 0

    def step(self, dice: Random) -> str:
        name = dice.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()))[0]
        seed = dice.random()
        self.tokens += 1
        for side in self.both:
            getattr(self, name)(side, Random(seed))
            for broker in side.brokers.brokers.values():
                broker.take()
        new, twin = (side.facts() for side in self.both)
        assert new == twin, name
        return name

    # -- requests

    def read(self, side: Side, dice: Random) -> None:
        """Let a scripted reader fetch, or take the answer to its last fetch."""
        broker = side.brokers[dice.choice((1, 1, 1, 2))]
        name, _ = dice.choice(READERS)
        reader = side.readers[name, broker.id]

        def offset_of(id: PartitionId) -> int:
            log = broker.store.logs.get(id)
            end = log.end_offset if log else 0
            return end if dice.random() < 0.6 else max(0, end - dice.randint(-1, 3))

        token = f"{name} {broker.id} {self.tokens}"
        epoch = side.brokers[max(reader.replica, 1)].manager.context.broker_epoch
        request = reader.request(dice, offset_of, epoch)
        broker.manager.fetch(token, request, broker.now)
        side.tokens[token] = reader
        broker.take()
        for token in [token for token in side.tokens if token in broker.answers]:
            side.tokens.pop(token).answered(broker.answers.pop(token), dice)

    def replicate(self, side: Side, dice: Random) -> None:
        side.brokers.replicate(dice.choice(BROKERS), rounds=dice.randint(1, 3))

    def produce(self, side: Side, dice: Random) -> None:
        broker = side.brokers[dice.choice((1, 1, 2))]
        ids = dice.sample(PARTITIONS, dice.randint(1, 2))
        batches = {id: batch(bytes(dice.randrange(90))) for id in ids}
        acks = dice.choice((1, 1, -1))
        broker.manager.produce(f"produce {self.tokens}", batches, acks, 100.0, broker.now)

    def delete(self, side: Side, dice: Random) -> None:
        broker = side.brokers[dice.choice((1, 2))]
        id = dice.choice(PARTITIONS)
        partition = broker.manager.partitions.get(id)
        if partition is not None and partition.is_leader and partition.log is not None:
            # Simulated logs forget the last epoch with the last record.
            last = min(partition.high_watermark, partition.log.end_offset - 1)
            if last >= 0:
                offsets = {id: dice.randint(0, last)}
                broker.manager.delete_records(f"delete {self.tokens}", offsets, 200.0, broker.now)

    # -- time, disks, metadata

    def wait(self, side: Side, dice: Random) -> None:
        side.brokers.wait(dice.choice((10.0, 60.0, 500.0, 4_000.0, 130_000.0)))
        for broker in side.brokers.brokers.values():
            broker.manager.tick(broker.now)

    def retain(self, side: Side, dice: Random) -> None:
        """Remove the oldest records, as the upkeep of logs does."""
        broker = side.brokers[dice.choice((1, 2))]
        partition = broker.manager.partitions.get(dice.choice(PARTITIONS))
        if partition is not None and isinstance(partition.log, ReplicaLog):
            log = partition.log
            last = min(partition.high_watermark, log.end_offset - 1)
            if last > log.start_offset:
                log.raise_start_offset(dice.randint(log.start_offset + 1, last))
                broker.manager.start_offsets_changed(broker.now)

    def lose_directory(self, side: Side, dice: Random) -> None:
        broker = side.brokers[dice.choice((1, 2))]
        if dice.random() < 0.3 and bytes(DIRECTORY) in broker.store.directories:
            broker.store.fail(bytes(DIRECTORY))
            broker.manager.directory_failed(bytes(DIRECTORY), broker.now)

    def answer_isr(self, side: Side, dice: Random) -> None:
        """Commit or reject the proposed ISRs of a broker."""
        broker = side.brokers[dice.choice((1, 1, 2))]
        proposals, side.proposals[broker.id] = side.proposals[broker.id], []
        outcomes: dict[PartitionId, CommittedIsr | int] = {}
        for each in proposals:
            outcomes[each.id] = (
                CommittedIsr(
                    broker.id, each.leader_epoch, each.partition_epoch + 1, tuple(each.isr)
                )
                if dice.random() < 0.7
                else dice.choice((INELIGIBLE_REPLICA, INVALID_UPDATE_VERSION, UNKNOWN_SERVER_ERROR))
            )
        if proposals:
            response = IsrChangeResponse(0, outcomes) if dice.random() < 0.95 else None
            broker.manager.isr_answered(response, broker.now)

    def elect(self, side: Side, dice: Random) -> None:
        leader = dice.choice((1, 1, 2, -1))
        side.brokers.change(partition=dice.randrange(6), leader=leader)

    def change_isr(self, side: Side, dice: Random) -> None:
        """Another ISR, or other replicas, without a new leader epoch."""
        partition = dice.randrange(6)
        state = side.brokers[3].manager.partitions.get(PARTITIONS[partition])
        leader = 1 if state is None or state.leader_id < 0 else state.leader_id
        members = [id for id in BROKERS if id == leader or dice.random() < 0.6]
        side.brokers.change(partition=partition, isr=members)

    def fence(self, side: Side, dice: Random) -> None:
        id = dice.choice((2, 3))
        change = fence(id, is_fenced=dice.choice((1, -1)), epoch=side.epochs[id])
        side.brokers.append(change)

    def register(self, side: Side, dice: Random) -> None:
        """Register a broker again; its fetches have the old broker epoch for some steps."""
        id = dice.choice((2, 3))
        if dice.random() < 0.4:
            side.epochs[id] = 100 * self.tokens + id
            side.brokers.append(broker_record(id, epoch=side.epochs[id]))
        else:
            side.brokers[id].manager.set_broker_epoch(side.epochs[id])


STEP_WEIGHTS = {
    "read": 40,
    "produce": 12,
    "replicate": 12,
    "wait": 8,
    "delete": 4,
    "retain": 3,
    "answer_isr": 6,
    "elect": 2,
    "change_isr": 3,
    "fence": 2,
    "register": 2,
    "lose_directory": 1,
}


@pytest.mark.parametrize("first", range(0, RUNS, 10))
def test_fetches_answer_as_those_that_read_everything(first: int) -> None:
    done: Counter[str] = Counter()
    most_settled = 0
    for seed in range(first, first + 10):
        dice, histories = Random(seed), Histories()
        for number in range(STEPS):
            try:
                done[histories.step(dice)] += 1
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {number}: {error}") from error
            manager = histories.both[0].brokers[1].manager
            most_settled = max(most_settled, len(manager.fetches.settled))
    assert set(done) == set(STEP_WEIGHTS)
    assert most_settled >= 8
