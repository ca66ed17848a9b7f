"""Which requests the leaders of simulated replicas send, and when they send them again."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Any

from kraft import records
from kraft.broker.lifecycle import BrokerState
from kraft.errors import INELIGIBLE_REPLICA
from kraft.fleet.broker_context import BrokerContext
from kraft.fleet.light_broker import LightBroker
from kraft.fleet.partition_rules import changed_rows
from kraft.fleet.shared_metadata import SharedMetadata
from kraft.fleet.simulated_replicas import SimulatedReplicas
from kraft.network.authentication import ListenerSecurity
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.alter_partition import (
    AlterPartitionRequestData,
    AlterPartitionResponseData,
    IsrPartitionResult,
    IsrTopicResult,
)
from kraft.raft.voters import Endpoint
from kraft.records import Record, Uuid
from kraft.security.protocols import SecurityProtocol
from tests.harness.table_records import batch_of

TOPIC = Uuid(bytes([1]) * 16)
DIRECTORY = Uuid(bytes([7]) * 16)


class Clock(asyncio.AbstractEventLoop):
    """Timers in virtual time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        #: How many callbacks have run.
        self.turns = 0

    def time(self) -> float:
        return self._now

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self._now + delay, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (timer.when(), self._count, timer))
        return timer

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_later(0.0, callback, *args, context=context)

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled timer in the heap, where `run` passes it over."""

    @property
    def waiting(self) -> int:
        """The number of timers that are set."""
        return len(self._timers)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self.turns += 1
                timer._run()
        self._now = end


class RecordingBroker(LightBroker):
    """A broker in service whose requests the test answers."""

    def __init__(self, id: int, context: BrokerContext) -> None:
        super().__init__(id, None, [DIRECTORY], context)
        self.is_up = True
        self.session.state = BrokerState.RUNNING
        self.knows_leader = True
        self.sent: list[AlterPartitionRequestData] = []
        #: The number of the loop's callback that sent each.
        self.turns: list[int] = []
        self.answered: Callable[[Any], None] = print

    def call(self, purpose: str, api: Any, request: Any, answer: Any, answered: Any) -> bool:
        if not self.is_up or not self.knows_leader:
            return False
        self.sent.append(request)
        assert isinstance(self._context.loop, Clock)
        self.turns.append(self._context.loop.turns)
        self.answered = answered
        return True

    def isrs(self) -> list[list[int]]:
        """Return the ISRs of the first partition in the requests so far."""
        return [
            [member.broker_id for member in request.topics[0].partitions[0].new_isr_with_epochs]
            for request in self.sent
        ]


class Replicas:
    """Each leader leads one partition; broker 9 follows it and has left the ISR."""

    def __init__(self, leaders: int = 1) -> None:
        self.clock = Clock()
        self.shared = SharedMetadata(
            lambda delta, size: self.simulated.on_delta(delta, changed_rows(delta))
        )
        context = BrokerContext(
            self.clock,
            "cluster",
            (Endpoint("CONTROLLER", "127.0.0.1", 1),),
            ListenerSecurity(SecurityProtocol.PLAINTEXT),
            ThrottledLog(logging.getLogger(__name__), self.clock.time),
            self.shared,
            lambda name, broker, value: None,
            lambda broker, error: None,
        )
        self.leaders = {id: RecordingBroker(id, context) for id in range(1, leaders + 1)}
        self.leader = self.leaders[1]
        self.simulated = SimulatedReplicas(
            self.clock,
            self.leaders,
            lambda: self.shared.image,
            lambda id: self.shared.state.table.broker_rows(id),
        )
        self._offset = 0
        self.apply(
            *(
                records.RegisterBroker(
                    broker_id=id, broker_epoch=id, fenced=False, log_dirs=[DIRECTORY], version=3
                )
                for id in (*self.leaders, 9)
            ),
            records.Topic(name="a", topic_id=TOPIC, version=0),
            *(
                records.Partition(
                    partition_id=id - 1,
                    topic_id=TOPIC,
                    replicas=[id, 9],
                    isr=[id],
                    leader=id,
                    leader_epoch=5,
                    partition_epoch=9,
                    directories=[DIRECTORY] * 2,
                    version=1,
                )
                for id in self.leaders
            ),
        )

    def apply(self, *log: Record) -> None:
        data = bytes(batch_of(log, self._offset))
        piece = self.shared.receive(self._offset, data)
        self._offset += len(log)
        self.shared.commit(piece, self._offset)


def test_a_follower_that_has_caught_up_is_proposed_once() -> None:
    replicas = Replicas()
    replicas.clock.run(0.6)
    assert replicas.leader.isrs() == [[1, 9]]
    replicas.apply(records.PartitionChange(partition_id=0, topic_id=TOPIC, isr=[1, 9], version=1))
    replicas.leader.answered(AlterPartitionResponseData())
    replicas.clock.run(10)
    assert len(replicas.leader.sent) == 1


def test_a_proposal_is_made_again_once_the_leader_is_known() -> None:
    replicas = Replicas()
    replicas.leader.knows_leader = False
    replicas.clock.run(0.6)
    replicas.leader.knows_leader = True
    replicas.clock.run(1.5)
    assert replicas.leader.isrs() == [[1, 9]]


def test_a_rejected_proposal_is_made_again() -> None:
    replicas = Replicas()
    replicas.clock.run(0.6)
    rejected = IsrPartitionResult(partition_index=0, error_code=INELIGIBLE_REPLICA)
    replicas.leader.answered(AlterPartitionResponseData(topics=[IsrTopicResult(TOPIC, [rejected])]))
    replicas.clock.run(3)
    assert replicas.leader.isrs() == [[1, 9]] * 2
    assert replicas.simulated.outcomes == {"AlterPartition INELIGIBLE_REPLICA": 1}


def test_an_accepted_proposal_is_not_made_again_while_its_record_is_on_its_way() -> None:
    """Brokers that are far behind proposed it each second, and the controllers rejected it."""
    replicas = Replicas()
    replicas.clock.run(0.6)
    accepted = IsrPartitionResult(
        partition_index=0, leader_id=1, leader_epoch=5, isr=[1, 9], partition_epoch=10
    )
    replicas.leader.answered(AlterPartitionResponseData(topics=[IsrTopicResult(TOPIC, [accepted])]))
    replicas.simulated.set_lagging([9], is_lagging=True)
    replicas.simulated.set_lagging([9], is_lagging=False)
    replicas.clock.run(60)
    assert replicas.leader.isrs() == [[1, 9]]
    assert not replicas.clock.waiting, "nobody looks again before a record comes"
    replicas.apply(records.PartitionChange(partition_id=0, topic_id=TOPIC, isr=[1, 9], version=1))
    replicas.apply(records.PartitionChange(partition_id=0, topic_id=TOPIC, isr=[1], version=1))
    replicas.clock.run(1)
    assert replicas.leader.isrs() == [[1, 9], [1, 9]], "the partition has another epoch"


def test_of_one_response_only_the_rejected_proposals_are_made_again() -> None:
    replicas = Replicas()
    replicas.apply(
        records.Partition(
            partition_id=7,
            topic_id=TOPIC,
            replicas=[1, 9],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY] * 2,
            version=1,
        )
    )
    replicas.clock.run(0.6)
    accepted = IsrPartitionResult(partition_index=0, partition_epoch=10)
    rejected = IsrPartitionResult(partition_index=7, error_code=INELIGIBLE_REPLICA)
    replicas.leader.answered(
        AlterPartitionResponseData(topics=[IsrTopicResult(TOPIC, [rejected, accepted])])
    )
    replicas.clock.run(3)
    partitions = [
        [each.partition_index for each in request.topics[0].partitions]
        for request in replicas.leader.sent
    ]
    assert partitions == [[0, 7], [7]]


def test_a_restarted_leader_proposes_although_its_last_request_has_no_response() -> None:
    replicas = Replicas()
    replicas.clock.run(0.6)
    replicas.leader.is_up = False
    replicas.simulated.forget(1)
    replicas.clock.run(3)
    replicas.leader.is_up = True
    replicas.apply(
        records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=1, version=0)
    )
    replicas.apply(
        records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=-1, version=0)
    )
    replicas.clock.run(1.5)
    assert replicas.leader.isrs() == [[1, 9]] * 2


def test_each_leader_sends_in_a_turn_of_its_own() -> None:
    """A process with a hundred leaders would send no heartbeat while all of them send at once."""
    replicas = Replicas(leaders=5)
    replicas.clock.run(0.6)
    turns = [turn for each in replicas.leaders.values() for turn in each.turns]
    assert len(turns) == len(set(turns)) == 5


def test_what_changes_while_a_request_is_in_flight_is_proposed_after_it() -> None:
    replicas = Replicas()
    replicas.clock.run(0.6)
    moved = records.PartitionChange(
        partition_id=0, topic_id=TOPIC, replicas=[1, 9, 3], directories=[DIRECTORY] * 3, version=1
    )
    replicas.apply(moved, records.RegisterBroker(broker_id=3, broker_epoch=3, fenced=False))
    replicas.clock.run(5)
    assert len(replicas.leader.sent) == 1
    replicas.leader.answered(AlterPartitionResponseData())
    replicas.clock.run(0.1)
    assert replicas.leader.isrs() == [[1, 9], [1, 9, 3]]


def test_a_proposal_names_the_epochs_of_the_partition_and_its_members() -> None:
    replicas = Replicas()
    replicas.clock.run(0.6)
    (partition,) = replicas.leader.sent[0].topics[0].partitions
    assert replicas.leader.sent[0].topics[0].topic_id == TOPIC
    assert (partition.partition_index, partition.leader_epoch) == (0, 5)
    assert partition.partition_epoch == 9
    members = [(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs]
    assert members == [(1, 1), (9, 9)]
