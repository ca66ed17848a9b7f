"""The process of light brokers: commands and replies, without a ZooKeeper."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from kraft.errors import ZooKeeperError
from kraft.generations.zk_worker import ZkWorker, ZkWorkerPlan
from kraft.zookeeper.light_broker import ZkLightBroker

PATIENCE_S = 60.0
Replies = queue.Queue[dict[str, Any]]


@pytest.fixture
def replies() -> Replies:
    return queue.Queue()


@pytest.fixture
def worker(replies: Replies) -> ZkWorker:
    plan = ZkWorkerPlan("127.0.0.1:1", 6000, False, [(1, "rack-1"), (2, "rack-2")])
    return ZkWorker(plan, replies.put)


def test_a_broker_without_an_answer_stops_all_the_same(
    worker: ZkWorker, replies: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def stop(broker: ZkLightBroker) -> None:
        if broker.id == 2:
            raise TimeoutError("timed out")

    monkeypatch.setattr(ZkLightBroker, "stop", stop)
    monkeypatch.setattr(ZkLightBroker, "kill", lambda broker: killed.append(broker.id))
    worker.carry_out({"do": "stop", "brokers": [1]})
    assert replies.get(timeout=PATIENCE_S)["stopped"] == 1
    worker.carry_out({"do": "stop", "brokers": [2]})
    assert replies.get(timeout=PATIENCE_S) == {"unanswered": 2, "why": "timed out"}
    assert replies.get(timeout=PATIENCE_S)["stopped"] == 2
    assert killed == [2]


def test_a_broker_that_cannot_register_is_a_failure(
    worker: ZkWorker, replies: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(broker: ZkLightBroker) -> None:
        raise ZooKeeperError("it is registered in another session")

    monkeypatch.setattr(ZkLightBroker, "start", start)
    worker.carry_out({"do": "start", "brokers": [2]})
    assert replies.get(timeout=PATIENCE_S) == {
        "failed": "broker 2 was not started: it is registered in another session"
    }


def test_knowledge_is_reported_when_every_running_broker_has_it(
    worker: ZkWorker, replies: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ZkLightBroker, "is_running", True)
    first, second = worker.brokers.values()
    worker.carry_out({"do": "await", "token": 7, "knowledge": {"absent": [5]}})
    assert replies.get(timeout=PATIENCE_S)["known"] == 7
    for broker in (first, second):
        broker.leader_counts[5] = 1
    worker.carry_out({"do": "await", "token": 8, "knowledge": {"absent": [5]}})
    first.leader_counts[5] = 0
    first.on_metadata(first)
    second.on_metadata(second)
    assert replies.empty()
    second.leader_counts[5] = 0
    second.on_metadata(second)
    assert replies.get(timeout=PATIENCE_S)["known"] == 8


def test_a_session_that_ended_is_a_failure(worker: ZkWorker, replies: Replies) -> None:
    broker = worker.brokers[1]
    broker.on_expired(broker)
    assert "ended the session of broker 1" in replies.get(timeout=PATIENCE_S)["failed"]
