"""Large requests are decided in turns: the work of one turn is counted in function calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kraft.controller.configs.client_quotas import QuotaAlteration
from kraft.controller.configs.config_changes import ConfigChange
from kraft.controller.runtime import requests, security_requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.security.acls import AclFilter
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.controller.topics.topic_creation import NewTopic
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.image.configs import TOPIC
from kraft.image.security import AccessControl
from kraft.records import Uuid
from tests.harness.controller import ControllerLog, leading

COUNT = 8_000
#: Calls of Python functions in one turn: 5 to 10 ms.
MOST_CALLS = 40_000
NAMES = [f"topic-{number}" for number in range(COUNT)]


def new_topics(partitions: int, prefix: str = "") -> list[NewTopic]:
    return [
        NewTopic(prefix + name, Uuid((number + 1000).to_bytes(16, "big")), partitions, 1)
        for number, name in enumerate(NAMES)
    ]


LARGE: dict[str, Callable[[], Operation]] = {
    "topics without partitions": lambda: requests.create_topics(new_topics(0)),
    "topics that exist": lambda: requests.create_topics(new_topics(1)),
    "validated topics": lambda: requests.create_topics(new_topics(1, "new-"), validate_only=True),
    "partitions of unknown topics": lambda: requests.create_partitions(
        [NewPartitions("no-" + name, 2) for name in NAMES]
    ),
    "validated partitions": lambda: requests.create_partitions(
        [NewPartitions(name, 2) for name in NAMES], validate_only=True
    ),
    "partitions": lambda: requests.create_partitions([NewPartitions(name, 2) for name in NAMES]),
    "validated configurations": lambda: requests.alter_configs(
        [((TOPIC, name), {"retention.ms": "7"}) for name in NAMES], validate_only=True
    ),
    "invalid configurations": lambda: requests.alter_configs(
        [((TOPIC, name), {"retention.ms": "x"}) for name in NAMES]
    ),
    "configurations": lambda: requests.incremental_alter_configs(
        [((TOPIC, name), [ConfigChange("retention.ms", "7")]) for name in NAMES]
    ),
    "validated quotas": lambda: requests.alter_client_quotas(
        [QuotaAlteration({"user": name}, [("producer_byte_rate", 1.0)]) for name in NAMES],
        validate_only=True,
    ),
    "reassignments": lambda: requests.alter_partition_reassignments(
        {(name, 0): [2] for name in NAMES}
    ),
    "reassignments of unknown topics": lambda: requests.alter_partition_reassignments(
        {("no-" + name, 0): [2] for name in NAMES}
    ),
    "elections": lambda: requests.elect_leaders(
        ElectionType.PREFERRED, {name: [0] for name in NAMES}
    ),
    "ACLs": lambda: security_requests.create_acls(
        [AccessControl(2, name, 3, "User:alice", "*", 3, 3) for name in NAMES]
    ),
    "filters of ACLs": lambda: security_requests.delete_acls(
        [AclFilter(resource_name=name) for name in NAMES]
    ),
    "deletions of unknown topics": lambda: requests.delete_topics(
        [TopicToDelete("no-" + name) for name in NAMES]
    ),
}


@pytest.fixture(scope="module")
def log() -> ControllerLog:
    """Return the log of a controller with 8,000 topics."""
    log = leading(2)
    log.submit(requests.create_topics(new_topics(1)))
    log.settle()
    return log


def calls_in_each_turn(log: ControllerLog, operation: Operation) -> tuple[int, list[int]]:
    """Decide an operation; return its token, and the calls of Python functions in each turn."""
    counted = [0]

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counted[0] += 1

    token, turns = log.submit(operation), []
    while True:
        counted[0] = 0
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            ready = log.run_once()
        finally:
            sys.setprofile(before)
        turns.append(counted[0])
        if ready.wake_at_ms > log.now_ms:
            return token, turns


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_request_is_decided_in_short_turns(log: ControllerLog, kind: str) -> None:
    since = log.end_offset
    token, turns = calls_in_each_turn(log, LARGE[kind]())
    log.commit()
    answer = log.answers.pop(token)
    assert answer.error is None
    assert len(answer.response) == COUNT
    assert max(turns) <= MOST_CALLS, turns
    assert sum(turns) >= COUNT // 10, "the work was counted"
    if "valid" in kind or "unknown" in kind or "without" in kind or "exist" in kind:
        assert log.names(since) == []


def test_a_validated_request_of_a_million_partitions_is_accepted() -> None:
    """The same request without validate_only is."""
    log = leading(3)
    since = log.end_offset
    topics = [
        NewTopic(f"large-{n}", Uuid((n + 10).to_bytes(16, "big")), 8_000, 3) for n in range(125)
    ]
    token = log.submit(requests.create_topics(topics, validate_only=True))
    log.settle()
    created = log.response(token)
    assert {each.num_partitions for each in created.values()} == {8_000}
    assert log.names(since) == []
    log.create("small", 1)
    log.settle()
    wanted = [NewPartitions("small", 30_001)]
    since = log.end_offset
    token = log.submit(requests.create_partitions(wanted, validate_only=True))
    log.settle()
    assert log.response(token) == {"small": 30_000}
    assert log.names(since) == []


def test_errors_of_a_response_hold_no_frames() -> None:
    """The frames would hold the response: without the garbage collector it were never freed."""
    log = leading(1)
    for kind in ("topics without partitions", "invalid configurations"):
        token, _ = calls_in_each_turn(log, LARGE[kind]())
        log.commit()
        for error in log.answers.pop(token).response.values():
            assert error is not None
            assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
