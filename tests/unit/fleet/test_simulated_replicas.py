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
from kraft.fleet.light_broker import BrokerContext, LightBroker
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

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled timer in the heap, where `run` passes it over."""

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
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
        self.answered: Callable[[Any], None] = print

    def call(self, purpose: str, api: Any, request: Any, answer: Any, answered: Any) -> bool:
        if not self.is_up or not self.knows_leader:
            return False
        self.sent.append(request)
        self.answered = answered
        return True

    def isrs(self) -> list[list[int]]:
        """Return the ISRs of the first partition in the requests so far."""
        return [
            [member.broker_id for member in request.topics[0].partitions[0].new_isr_with_epochs]
            for request in self.sent
        ]


class Replicas:
    """Broker 1 leads the only partition; broker 2 follows it and has left the ISR."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.shared = SharedMetadata(lambda delta, size: self.simulated.on_delta(delta))
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
        self.leader = RecordingBroker(1, context)
        self.simulated = SimulatedReplicas(
            self.clock,
            {1: self.leader},
            lambda: self.shared.image,
            lambda id: self.shared.state.table.broker_rows(id),
        )
        self._offset = 0
        self.apply(
            *(
                records.RegisterBroker(
                    broker_id=id, broker_epoch=id, fenced=False, log_dirs=[DIRECTORY], version=3
                )
                for id in (1, 2)
            ),
            records.Topic(name="a", topic_id=TOPIC, version=0),
            records.Partition(
                partition_id=0,
                topic_id=TOPIC,
                replicas=[1, 2],
                isr=[1],
                leader=1,
                leader_epoch=5,
                partition_epoch=9,
                directories=[DIRECTORY] * 2,
                version=1,
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
    assert replicas.leader.isrs() == [[1, 2]]
    replicas.apply(records.PartitionChange(partition_id=0, topic_id=TOPIC, isr=[1, 2], version=1))
    replicas.leader.answered(AlterPartitionResponseData())
    replicas.clock.run(10)
    assert len(replicas.leader.sent) == 1


def test_a_proposal_is_made_again_once_the_leader_is_known() -> None:
    replicas = Replicas()
    replicas.leader.knows_leader = False
    replicas.clock.run(0.6)
    replicas.leader.knows_leader = True
    replicas.clock.run(1.5)
    assert replicas.leader.isrs() == [[1, 2]]


def test_a_rejected_proposal_is_made_again() -> None:
    replicas = Replicas()
    replicas.clock.run(0.6)
    rejected = IsrPartitionResult(partition_index=0, error_code=INELIGIBLE_REPLICA)
    replicas.leader.answered(AlterPartitionResponseData(topics=[IsrTopicResult(TOPIC, [rejected])]))
    replicas.clock.run(3)
    assert replicas.leader.isrs() == [[1, 2]] * 2
    assert replicas.simulated.outcomes == {"AlterPartition INELIGIBLE_REPLICA": 1}


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
    assert replicas.leader.isrs() == [[1, 2]] * 2
