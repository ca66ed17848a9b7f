"""A stream of admin operations by Kafka's Admin client, and the state that it must have caused.

An `AdminStream` is a thread with an Admin client of its own. It changes only its own topics, users
and ACLs, one request after the other, so that each acknowledgement decides the state of one of
them. A request that fails leaves the outcome open: its object is dropped from the expected state.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kraft.metadata.facade import Metadata
from tests.interop.cluster import ClusterError, Driver
from tests.interop.end_agreement import MECHANISMS

#: Failures while there is no leader, and of a request that the client sent again after the first
#: attempt was carried out.
EXPECTED_FAILURES = {
    "TimeoutException",
    "DisconnectException",
    "NotControllerException",
    "TopicExistsException",
    "UnknownTopicOrPartitionException",
    "InvalidPartitionsException",
    "ElectionNotNeededException",
    # The preferred replica is not in the ISR yet, after a reassignment or while its broker is down.
    "PreferredLeaderNotAvailableException",
    "ResourceNotFoundException",
    "UnknownServerException",
    # The broker that answers has not applied the topic yet.
    "UnknownTopicIdException",
}
QUOTA, SETTING = "producer_byte_rate", "retention.ms"
TOPIC_RESOURCE, SHA_256 = 2, "SCRAM-SHA-256"
_PAUSE_S = 0.02


@dataclass
class ExpectedTopic:
    partitions: int
    setting: str | None = None


@dataclass
class AdminStream:
    """Operations of one kind of objects (``topics``, else users and ACLs) until `stop`."""

    ask: Driver
    name: str
    brokers: tuple[int, ...]
    changes_topics: bool
    seed: int
    topics: dict[str, ExpectedTopic] = field(default_factory=dict)
    deleted_topics: set[str] = field(default_factory=set)
    quotas: dict[str, float | None] = field(default_factory=dict)
    iterations: dict[str, int | None] = field(default_factory=dict)
    #: The topics that ACLs name, and whether the ACL exists.
    acls: dict[str, bool] = field(default_factory=dict)
    acknowledged: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._made = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ended_by: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def count(self) -> int:
        """The number of acknowledged operations."""
        return self.acknowledged.total()

    def check_running(self) -> None:
        if self._ended_by is not None:
            raise AssertionError(f"the stream {self.name} ended") from self._ended_by

    def stop(self) -> None:
        """End after the request in progress."""
        self._stopping.set()
        self._thread.join(60)
        self.check_running()
        assert not self._thread.is_alive(), f"the stream {self.name} hangs"

    def _run(self) -> None:
        kinds = (
            (
                (self._create_topic, 5),
                (self._delete_topic, 2),
                (self._add_partitions, 2),
                (self._configure, 3),
                (self._reassign, 1),
                (self._elect, 1),
            )
            if self.changes_topics
            else ((self._alter_quota, 2), (self._alter_user, 2), (self._alter_acl, 2))
        )
        try:
            while not self._stopping.is_set():
                (change,) = self._draw.choices(*zip(*kinds, strict=True))
                change()
                self._stopping.wait(_PAUSE_S)
        except BaseException as failure:
            self._ended_by = failure
            raise

    def _new(self) -> str:
        self._made += 1
        return f"{self.name}-{self._made}"

    def _known(self, found: dict[str, Any]) -> str | None:
        return self._draw.choice(list(found)) if found else None

    def _send(self, verb: str, forget: Callable[[], object] = lambda: None, **fields: Any) -> bool:
        """Return whether the request is acknowledged; else call ``forget``."""
        try:
            self.ask(verb, **fields)
        except ClusterError as error:
            forget()
            found = re.search(r": (\w+(?:Exception|Error))\b", str(error))
            failure = found[1] if found else str(error)
            if failure not in EXPECTED_FAILURES:
                raise
            self.failures[failure] += 1
            return False
        self.acknowledged[verb] += 1
        return True

    # -- topics

    def _create_topic(self) -> None:
        name, partitions = self._new(), self._draw.randint(1, 4)
        topic = {"name": name, "partitions": partitions, "replication_factor": 2}
        if self._send("create_topics", topics=[topic]):
            self.topics[name] = ExpectedTopic(partitions)

    def _delete_topic(self) -> None:
        name = self._known(self.topics)
        if name is not None and len(self.topics) > 3:
            del self.topics[name]
            if self._send("delete_topics", topics=[name]):
                self.deleted_topics.add(name)

    def _add_partitions(self) -> None:
        name = self._known(self.topics)
        if name is not None and self.topics[name].partitions < 8:
            total = self.topics[name].partitions + 1
            if self._send("create_partitions", self._forget(name), topic=name, total=total):
                self.topics[name].partitions = total

    def _configure(self) -> None:
        name = self._known(self.topics)
        if name is not None:
            value = str(10**9 + self._made * 1000 + self._draw.randrange(1000))
            fields = {"type": "TOPIC", "name": name, "ops": [["SET", SETTING, value]]}
            if self._send("alter_config", self._forget(name), **fields):
                self.topics[name].setting = value

    def _reassign(self) -> None:
        """Move a partition; the brokers move the data while other operations go on."""
        name = self._known(self.topics)
        if name is not None:
            replicas = self._draw.sample(self.brokers, 2)
            self._send("reassign", partitions={name: {"0": replicas}})

    def _elect(self) -> None:
        name = self._known(self.topics)
        if name is not None:
            self._send("elect", type="PREFERRED", partitions={name: [0]})

    def _forget(self, name: str) -> Callable[[], object]:
        return lambda: self.topics.pop(name, None)

    # -- users and ACLs

    def _alter_quota(self) -> None:
        user = self._known(self.quotas) if self._draw.random() < 0.4 else self._new()
        user = user or self._new()
        value = None if user in self.quotas and self._draw.random() < 0.5 else 1e6 + self._made
        if self._send(
            "alter_quota", lambda: self.quotas.pop(user, None),
            entity={"user": user}, key=QUOTA, value=value,
        ):  # fmt: skip
            self.quotas[user] = value

    def _alter_user(self) -> None:
        user = self._known(self.iterations) if self._draw.random() < 0.4 else self._new()
        user = user or self._new()
        fields: dict[str, Any] = {"user": user, "mechanism": SHA_256}

        def forget() -> None:
            self.iterations.pop(user, None)

        if self.iterations.get(user) is not None and self._draw.random() < 0.5:
            if self._send("delete_scram", forget, **fields):
                self.iterations[user] = None
        else:
            rounds = 4096 + self._draw.randrange(100)
            if self._send("upsert_scram", forget, iterations=rounds, password="p", **fields):
                self.iterations[user] = rounds

    def _alter_acl(self) -> None:
        name = self._known(self.acls) if self._draw.random() < 0.4 else self._new()
        name = name or self._new()
        acl = {
            "resource": "TOPIC", "name": name, "pattern": "LITERAL", "principal": "User:a",
            "host": "*", "operation": "READ", "permission": "ALLOW",
        }  # fmt: skip
        exists = not self.acls.get(name, False)
        verb = "create_acl" if exists else "delete_acl"
        if self._send(verb, lambda: self.acls.pop(name, None), **acl):
            self.acls[name] = exists

    # -- the expected state

    def check(self, state: Metadata) -> None:
        """Check that every acknowledged operation is in this state."""
        for name, expected in self.topics.items():
            assert name in state.topics, f"topic {name} is lost"
            found = ExpectedTopic(
                len(state.topics[name].rows),
                state.configs.get((TOPIC_RESOURCE, name), {}).get(SETTING),
            )
            assert found == expected, (name, found, expected)
        for name in self.deleted_topics:
            assert name not in state.topics, f"topic {name} is back"
        for user, value in self.quotas.items():
            limits = state.client_quotas.get((("user", user),), {})
            assert limits.get(QUOTA) == value, (user, limits, value)
        mechanism = next(key for key, text in MECHANISMS.items() if text == SHA_256)
        for user, rounds in self.iterations.items():
            credential = state.scram_credentials.get((mechanism, user))
            assert (credential and credential.iterations) == rounds, (user, credential, rounds)
        named = {acl.resource_name for acl in state.acls.values()}
        for name, exists in self.acls.items():
            assert (name in named) == exists, (name, exists)

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Wait until so many more operations are acknowledged."""
        goal, give_up = self.count + count, time.monotonic() + timeout_s
        while self.count < goal:
            self.check_running()
            assert time.monotonic() < give_up, f"{self.name}: no operation is acknowledged"
            time.sleep(0.05)
