"""The life of a broker: its states, and a real quorum's view of it."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kraft.broker.controller_channel import ControllerChannel
from kraft.broker.lifecycle import BrokerLifecycle, BrokerState, LifecycleState
from kraft.errors import RequestTimedOutError
from kraft.image.publishing import Phase
from kraft.metadata.identifiers import random_uuid
from kraft.network.authentication import ListenerSecurity
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.broker_heartbeat import BrokerHeartbeatResponseData
from kraft.protocol.broker_registration import BrokerRegistrationRequestData
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.raft.voters import Endpoint
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES
from tests.harness.controller_nodes import Quorum, RunScenario, run, until

NEVER = float("inf")
CAUGHT_UP, UNFENCED = (
    BrokerHeartbeatResponseData(is_caught_up=True),
    BrokerHeartbeatResponseData(is_caught_up=True, is_fenced=False),
)
LEAVES = BrokerHeartbeatResponseData(is_caught_up=True, should_shut_down=True)
OWN, LOST = Uuid(b"\6" * 16), Uuid(b"\7" * 16)


@pytest.fixture
def run_scenario(monkeypatch: pytest.MonkeyPatch) -> RunScenario:
    return lambda scenario, quorum: run(scenario, quorum, monkeypatch)


def in_service() -> LifecycleState:
    """Return the state of a broker that is unfenced, at time 0."""
    facts = LifecycleState(2000)
    facts.registered(10)
    facts.applied(11)
    facts.beaten(CAUGHT_UP, 0)
    facts.loaded()
    facts.sent()
    facts.beaten(UNFENCED, 0)
    assert facts.state is BrokerState.RUNNING
    return facts


def test_changed_cordoned_directories_are_told_at_once() -> None:
    facts = in_service()
    assert facts.heartbeat(5).cordoned_log_dirs is None
    facts.set_cordoned([OWN])
    assert facts.due_ms == 0
    assert facts.heartbeat(5).cordoned_log_dirs == [OWN]
    facts.sent()
    facts.beaten(UNFENCED, 100)
    facts.set_cordoned([OWN])
    assert facts.due_ms == 2100, "nothing has changed"
    facts.set_cordoned(None)
    assert facts.heartbeat(5).cordoned_log_dirs is None


def test_cordoned_directories_are_named_once_the_broker_has_caught_up() -> None:
    """As Kafka's brokers do, which name them also if there are none."""
    facts = LifecycleState(2000)
    facts.registered(10)
    facts.sent()
    facts.set_cordoned([])
    assert facts.due_ms == NEVER
    assert facts.heartbeat(5).cordoned_log_dirs is None
    facts.applied(11)
    assert facts.heartbeat(5).cordoned_log_dirs is None, "the controller has not answered that yet"
    facts.beaten(CAUGHT_UP, 0)
    assert facts.heartbeat(5).cordoned_log_dirs == []
    facts.begin_controlled_shutdown()
    assert facts.heartbeat(5).cordoned_log_dirs == []


def test_a_broker_is_in_service_once_its_metadata_have_its_registration() -> None:
    facts = LifecycleState(2000)
    facts.registered(10)
    facts.sent()
    facts.beaten(BrokerHeartbeatResponseData(), 100)
    assert (facts.state, facts.due_ms) == (BrokerState.STARTING, 2100)
    facts.applied(10)
    assert facts.due_ms == 2100, "offset 10, the registration, is not applied"
    facts.applied(11)
    assert facts.due_ms == 0
    beat = facts.heartbeat(5)
    assert (beat.current_metadata_offset, beat.broker_epoch, beat.want_fence) == (10, 10, True)
    facts.sent()
    facts.beaten(CAUGHT_UP, 200)
    assert (facts.state, facts.due_ms) == (BrokerState.RECOVERY, 210)
    facts.loaded()
    assert facts.due_ms == 0
    assert not facts.heartbeat(5).want_fence
    facts.sent()
    facts.beaten(UNFENCED, 300)
    assert (facts.state, facts.due_ms) == (BrokerState.RUNNING, 2300)


def test_an_event_during_a_request_makes_the_next_one_due_at_once() -> None:
    facts = in_service()
    facts.sent()
    facts.directory_failed(LOST)
    facts.beaten(UNFENCED, 500)
    assert facts.due_ms == 0
    assert facts.heartbeat(5).offline_log_dirs == [LOST]
    facts.sent()
    facts.directory_failed(LOST)
    assert facts.due_ms == NEVER, "the controller knows it already"


def test_failures_wait_longer_and_never_longer_than_an_interval() -> None:
    facts = in_service()
    waits = []
    for _ in range(8):
        facts.sent()
        facts.failed(1000)
        waits.append(facts.due_ms - 1000)
    assert waits == [100, 200, 400, 800, 1600, 2000, 2000, 2000]
    facts.sent()
    facts.beaten(UNFENCED, 0)
    facts.sent()
    facts.failed(0)
    assert facts.due_ms == 100


def test_a_controlled_shutdown_ends_when_the_controller_says_so() -> None:
    facts = in_service()
    assert facts.begin_controlled_shutdown()
    assert (facts.due_ms, facts.heartbeat(5).want_shut_down) == (0, True)
    facts.sent()
    facts.beaten(UNFENCED, 0)
    assert facts.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    facts.beaten(LEAVES, 0)
    assert (facts.state, facts.due_ms) == (BrokerState.SHUTTING_DOWN, NEVER)


def test_a_stopping_broker_asks_again_soon_but_once() -> None:
    facts = in_service()
    facts.begin_controlled_shutdown()
    for due_ms in (50, 2050, 4050):
        asked_ms = facts.due_ms
        facts.sent()
        facts.beaten(UNFENCED, asked_ms)
        assert facts.due_ms == due_ms


def test_a_broker_that_never_served_leaves_at_once() -> None:
    facts = LifecycleState(2000)
    facts.registered(10)
    assert not facts.begin_controlled_shutdown()
    assert (facts.state, facts.due_ms) == (BrokerState.SHUTTING_DOWN, NEVER)


def channel_to(leader: Callable[[], Endpoint | None]) -> ControllerChannel:
    warnings = ThrottledLog(logging.getLogger(__name__), time.monotonic)
    security = ListenerSecurity()
    return ControllerChannel(leader, "test", security, warnings, attempt_timeout_ms=20_000)


def lifecycle_over(
    channel: ControllerChannel,
    cluster_id: str,
    *,
    log_dirs: Sequence[Uuid] = (OWN,),
    registration_timeout_ms: float = 20_000,
) -> BrokerLifecycle:
    """Return the lifecycle of broker 7."""
    return BrokerLifecycle(
        BrokerRegistrationRequestData(
            7,
            cluster_id,
            random_uuid(),
            [AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092, 0)],
            [SupportedFeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            log_dirs=list(log_dirs),
        ),
        channel,
        heartbeat_interval_ms=200,
        registration_timeout_ms=registration_timeout_ms,
        applied_offset=lambda: sys.maxsize,
    )


class Registered:
    """The lifecycle of broker 7 in the process of a controller of a quorum."""

    def __init__(self, quorum: Quorum, at: int) -> None:
        node = quorum.running[at]
        self.channel = channel_to(node.leader_endpoint)
        self.lifecycle = lifecycle_over(
            self.channel,
            node.identity.cluster_id,
            log_dirs=(OWN, LOST),
        )
        assert node.controller is not None
        node.controller.publishing.images.register(self.lifecycle, Phase.HEARTBEATS)

    async def serve(self) -> int:
        epoch = await self.lifecycle.register()
        self.lifecycle.start()
        self.lifecycle.loaded()
        await until(lambda: self.lifecycle.state is BrokerState.RUNNING)
        return epoch

    def close(self) -> None:
        self.lifecycle.close()
        self.channel.close()


def test_a_broker_joins_and_leaves_a_quorum(
    tmp_path: Path, run_scenario: RunScenario, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        broker = Registered(quorum, 1)
        epoch = await broker.serve()
        known = quorum.cluster(1).state.brokers[7]
        assert (known.epoch, known.fenced) == (epoch, False)
        broker.lifecycle.directory_failed(LOST)
        await until(lambda: not broker.lifecycle.facts.due_ms < 1)
        assert await broker.lifecycle.leave(20_000)
        assert quorum.cluster(1).state.brokers[7].fenced
        assert broker.lifecycle.state is BrokerState.SHUTTING_DOWN
        told = re.findall(r"broker 7 is (\w+)", caplog.text)
        assert told[-3:] == ["RUNNING", "PENDING_CONTROLLED_SHUTDOWN", "SHUTTING_DOWN"]
        broker.close()

    run_scenario(scenario, quorum)


def test_a_broker_follows_the_leader(tmp_path: Path, run_scenario: RunScenario) -> None:
    quorum = Quorum(tmp_path, 3)

    async def scenario() -> None:
        await quorum.start()
        leader = await quorum.active()
        at = next(id for id in quorum.running if id != leader)
        broker = Registered(quorum, at)
        epoch = await broker.serve()
        await quorum.stop(leader)
        new = await quorum.active()
        heard = quorum.runner(new).controller
        await until(lambda: heard.cluster.state.brokers[7].epoch == epoch)
        broker.lifecycle.directory_failed(LOST)
        await until(lambda: broker.lifecycle.facts.due_ms == NEVER)
        await until(
            lambda: broker.lifecycle.facts.due_ms < NEVER and not broker.lifecycle.last_failure
        )
        assert not quorum.cluster(new).state.brokers[7].fenced
        broker.close()

    run_scenario(scenario, quorum)


def test_a_registration_without_a_leader_ends_in_time() -> None:
    async def scenario() -> None:
        channel = channel_to(lambda: None)
        lifecycle = lifecycle_over(channel, "cluster", registration_timeout_ms=100)
        with pytest.raises(RequestTimedOutError, match=r"100 ms .*: .*the quorum has no leader"):
            await lifecycle.register()
        channel.close()

    asyncio.run(scenario())


def test_another_process_has_the_id(tmp_path: Path, run_scenario: RunScenario) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        first, second = Registered(quorum, 1), channel_to(quorum.running[1].leader_endpoint)
        await first.serve()
        cluster_id = quorum.running[1].identity.cluster_id
        lifecycle = lifecycle_over(second, cluster_id, registration_timeout_ms=3000)
        with pytest.raises(RequestTimedOutError, match="DUPLICATE_BROKER_REGISTRATION"):
            await lifecycle.register()
        first.close()
        second.close()

    run_scenario(scenario, quorum)
