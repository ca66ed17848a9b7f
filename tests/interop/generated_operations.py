"""Generated operations of an admin client, valid and invalid, as requests of `java/Drive.java`.

The same seed gives the same operations: nothing depends on a controller's answers. The names are
few, so that later operations meet the objects of earlier ones: a topic that exists, a user whose
credential is gone. Replicas are always assigned, because a controller places them randomly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

#: The brokers that hold replicas, and one that is unregistered sometime.
BROKERS = (1001, 1002, 1003, 1004)
LEAVING_BROKER = 1004
UNKNOWN_BROKER = 77

_TOPICS = tuple(f"topic-{number}" for number in range(20))
_USERS = ("alice", "bob", "carol")
_TOKENS = tuple(f"token-{number}" for number in range(6))
_TOPIC_CONFIGS: dict[str, tuple[str, ...]] = {
    "retention.ms": ("1000", "86400000", "-1", "much", "-2"),
    "cleanup.policy": ("compact", "delete", "compact,delete", "burn"),
    "min.insync.replicas": ("1", "2", "0"),
    "unclean.leader.election.enable": ("true", "false", "maybe"),
    "compression.type": ("zstd", "producer", "paper"),
    "no.such.config": ("1",),
}
_BROKER_CONFIGS: dict[str, tuple[str, ...]] = {
    "log.retention.ms": ("60000", "-1", "much"),
    "log.cleaner.threads": ("2", "3"),
    "follower.replication.throttled.rate": ("1000", "-5"),
    "min.insync.replicas": ("1", "2"),
    "max.connections": ("100", "many"),
}
_METRICS_CONFIGS: dict[str, tuple[str, ...]] = {
    "interval.ms": ("100", "60000", "1"),
    "metrics": ("org.apache.kafka.consumer.", "*"),
    "match": ("client_id=a.*", "no_such=1"),
    "no.such.config": ("1",),
}
_GROUP_CONFIGS: dict[str, tuple[str, ...]] = {
    "consumer.session.timeout.ms": ("46000", "1"),
    "consumer.heartbeat.interval.ms": ("6000", "soon"),
    "no.such.config": ("1",),
}
_LISTS = ("cleanup.policy", "metrics")
#: The operations that Kafka defines for a resource; the client rejects no others.
_ACLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "TOPIC": (("topic-1", "topic-", "*"), ("READ", "WRITE", "DESCRIBE", "ALTER_CONFIGS", "ALL")),
    "GROUP": (("group-1", "*"), ("READ", "DESCRIBE", "DELETE")),
    "CLUSTER": (("kafka-cluster", "kafka"), ("CREATE", "ALTER", "CLUSTER_ACTION")),
    "TRANSACTIONAL_ID": (("transaction-1",), ("WRITE", "DESCRIBE")),
    "DELEGATION_TOKEN": (("token-1",), ("DESCRIBE",)),
    "USER": (("User:bob",), ("CREATE_TOKENS", "DESCRIBE_TOKENS")),
}
_QUOTAS = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    *("connection_creation_rate", "no_such_quota"),
)
_FEATURES = {
    "group.version": (0, 1, 9),
    "transaction.version": (0, 1, 2),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1, 2),
    "metadata.version": (1, 29, 30, 99),
    "no.such.feature": (0, 1),
}
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Operation:
    """One request: the verb and the fields of `java/Drive.java`."""

    verb: str
    fields: dict[str, Any]


@dataclass
class Generator:
    """An endless stream of operations; the same for the same seed."""

    seed: int
    #: The replicas of each partition of each topic, if all its operations were accepted.
    _topics: dict[str, list[list[int]]] = field(default_factory=dict)
    _acls: list[dict[str, str]] = field(default_factory=list)
    #: The brokers that are still registered.
    _brokers: list[int] = field(default_factory=lambda: list(BROKERS))

    def __iter__(self) -> Iterator[Operation]:
        draw = self._draw = random.Random(self.seed)
        kinds: tuple[tuple[Callable[[], Operation], int], ...] = (
            (self._create_topic, 14),
            (self._create_partitions, 5),
            (self._delete_topic, 3),
            (self._alter_config, 16),
            (self._alter_quota, 12),
            (self._alter_scram, 8),
            (self._alter_acl, 14),
            (self._update_feature, 5),
            (self._reassign, 10),
            (self._elect, 8),
            (self._change_token, 6),
            (self._unregister_broker, 1),
        )
        makers, weights = zip(*kinds, strict=True)
        while True:
            (make,) = draw.choices(makers, weights)
            yield make()

    def _chance(self, share: float) -> bool:
        return self._draw.random() < share

    def _checked(self, verb: str, **fields: Any) -> Operation:
        """Return an operation that the controller may only be asked to validate."""
        if self._chance(0.1):
            fields["validate_only"] = True
        return Operation(verb, fields)

    # -- topics

    def _create_topic(self) -> Operation:
        draw = self._draw
        name = draw.choice(("no/name", "..", "a" * 250) if self._chance(0.05) else _TOPICS)
        topic: dict[str, Any] = {"name": name, "configs": {}}
        kind = draw.random()
        if kind < 0.8:
            partitions, replicas = draw.randint(1, 4), draw.randint(1, 3)
            topic["assignment"] = [self._replicas(replicas) for _ in range(partitions)]
        elif kind < 0.9:
            # Duplicate, unknown, unequal, none.
            bad = ([[1001, 1001]], [[1001, UNKNOWN_BROKER]], [[1001, 1002], [1003]], [[]])
            topic["assignment"] = draw.choice(bad)
        else:
            topic["partitions"], topic["replication_factor"] = draw.choice(((1, 9), (0, 1), (1, 0)))
        if self._chance(0.4):
            config = draw.choice(list(_TOPIC_CONFIGS))
            topic["configs"] = {config: draw.choice(_TOPIC_CONFIGS[config])}
        operation = self._checked("create_topics", topics=[topic])
        if kind < 0.8 and name in _TOPICS and not topic["configs"] and len(operation.fields) == 1:
            self._topics.setdefault(name, list(topic["assignment"]))
        return operation

    def _replicas(self, count: int) -> list[int]:
        """Return registered brokers; rarely one that was."""
        return self._draw.sample(BROKERS if self._chance(0.05) else self._brokers, count)

    def _some_topic(self) -> str:
        """Return a topic that exists; rarely another."""
        known = list(self._topics)
        return self._draw.choice(_TOPICS if not known or self._chance(0.2) else known)

    def _create_partitions(self) -> Operation:
        draw = self._draw
        name = self._some_topic()
        partitions = self._topics.get(name, [[1001]])
        total = len(partitions) + draw.randint(1, 2)
        added = [self._replicas(len(partitions[0])) for _ in range(total - len(partitions))]
        if self._chance(0.15):
            # Too few, or one new partition without a place.
            total, added = draw.choice(((1, added), (total + 1, added)))
        else:
            partitions += added
        return self._checked("create_partitions", topic=name, total=total, assignment=added)

    def _delete_topic(self) -> Operation:
        name = self._some_topic()
        self._topics.pop(name, None)
        return Operation("delete_topics", {"topics": [name]})

    def _some_partition(self) -> tuple[str, int]:
        """Return a partition; few of them do not exist."""
        draw = self._draw
        if not self._topics or self._chance(0.1):
            return "no-such-topic", 0
        name = draw.choice(list(self._topics))
        count = len(self._topics[name])
        return name, count if self._chance(0.1) else draw.randrange(count)

    def _reassign(self) -> Operation:
        draw = self._draw
        name, partition = self._some_partition()
        partitions = self._topics.get(name, [])
        target: list[int] | None
        kind = draw.random()
        if kind < 0.35 and partition < len(partitions):
            # Only the order changes, which completes at once, and leaves the leader.
            held = partitions[partition]
            target = held[1:] + held[:1]
            partitions[partition] = target
        elif kind < 0.65:
            target = None
        elif kind < 0.7:
            target = draw.choice(([1001, 1001], [UNKNOWN_BROKER]))
        else:
            target = self._replicas(draw.randint(1, 3))
        return Operation("reassign", {"partitions": {name: {str(partition): target}}})

    def _elect(self) -> Operation:
        name, partition = self._some_partition()
        kind = self._draw.choice(("PREFERRED", "UNCLEAN"))
        return Operation("elect", {"type": kind, "partitions": {name: [partition]}})

    def _unregister_broker(self) -> Operation:
        draw = self._draw
        broker = draw.choice((LEAVING_BROKER, *[UNKNOWN_BROKER] * 4))
        if broker in self._brokers:
            self._brokers.remove(broker)
        return Operation("unregister_broker", {"broker": broker})

    # -- settings

    def _alter_config(self) -> Operation:
        draw = self._draw
        type, names, configs = draw.choices(
            (
                ("TOPIC", (), _TOPIC_CONFIGS),
                ("BROKER", ("", "1001", "1002"), _BROKER_CONFIGS),
                ("CLIENT_METRICS", ("metrics-1", "metrics-2"), _METRICS_CONFIGS),
                ("GROUP", ("group-1", "group-2"), _GROUP_CONFIGS),
            ),
            (6, 2, 1, 1),
        )[0]
        changes: list[list[str | None]] = []
        for config in draw.sample(list(configs), draw.choice((1, 1, 1, 2))):
            verb = draw.choices(("SET", "DELETE", "APPEND", "SUBTRACT"), (6, 2, 1, 1))[0]
            if verb in ("APPEND", "SUBTRACT") and config not in _LISTS and self._chance(0.8):
                verb = "SET"
            changes.append(
                [verb, config, None if verb == "DELETE" else draw.choice(configs[config])]
            )
        name = self._some_topic() if type == "TOPIC" else draw.choice(names)
        return self._checked("alter_config", type=type, name=name, ops=changes)

    def _alter_quota(self) -> Operation:
        draw = self._draw
        user, client = (draw.choice((*_USERS, None)) for _ in range(2))
        kind = draw.choice(("user", "client", "both", "ip", "bad"))
        entity: dict[str, str | None]
        if kind == "user":
            entity = {"user": user}
        elif kind == "client":
            entity = {"client-id": client}
        elif kind == "both":
            entity = {"user": user, "client-id": client}
        elif kind == "ip":
            entity = {"ip": draw.choice(("10.0.0.1", "127.0.0.1", None))}
        else:
            entity = draw.choice(({"ip": "10.0.0.1", "user": "bob"}, {"planet": "mars"}))
        key = "connection_creation_rate" if kind == "ip" else draw.choice(_QUOTAS)
        value = draw.choice((1024.0, 50.0, 0.5, 2_000_000.0, -1.0, None, None))
        if key == "controller_mutation_rate" and value == 0.5:
            # It would apply to the clients of the test, and reject by the time between operations.
            value = 500.0
        return self._checked("alter_quota", entity=entity, key=key, value=value)

    def _update_feature(self) -> Operation:
        draw = self._draw
        feature = draw.choice(list(_FEATURES))
        level = draw.choice(_FEATURES[feature])
        types = ["SAFE_DOWNGRADE", "UNSAFE_DOWNGRADE"]
        if level > 0:
            # Java's FeatureUpdate rejects an upgrade to 0.
            types.append("UPGRADE")
        return self._checked(
            "update_feature", feature=feature, level=level, type=draw.choice(types)
        )

    # -- security

    def _alter_scram(self) -> Operation:
        draw = self._draw
        fields: dict[str, Any] = {
            "user": draw.choice(_USERS),
            "mechanism": draw.choice(("SCRAM-SHA-256", "SCRAM-SHA-512")),
        }
        if self._chance(0.4):
            return Operation("delete_scram", fields)
        fields["iterations"] = draw.choice((4096, 4096, 5000, 100, 20_000))
        fields["password"] = f"password-{draw.randrange(1000)}"
        return Operation("upsert_scram", fields)

    def _alter_acl(self) -> Operation:
        draw = self._draw
        resource = draw.choice((*_ACLS, "TOPIC", "TOPIC"))
        names, operations = _ACLS[resource]
        fields = {
            "resource": resource,
            "name": draw.choice(names),
            "pattern": draw.choice(("LITERAL", "LITERAL", "PREFIXED")),
            "principal": draw.choice(("User:alice", "User:bob", "User:*", "nobody")),
            "host": draw.choice(("*", "10.0.0.1")),
            "operation": draw.choice(operations),
            "permission": draw.choice(("ALLOW", "DENY")),
        }
        if not self._chance(0.35):
            self._acls.append(fields)
            return Operation("create_acl", fields)
        # Two random ACLs are seldom equal.
        known = self._acls if self._acls and self._chance(0.7) else [fields]
        return Operation("delete_acl", draw.choice(known))

    def _change_token(self) -> Operation:
        draw = self._draw
        label = draw.choice(_TOKENS)
        kind = draw.random()
        if kind < 0.5:
            fields: dict[str, Any] = {
                "label": label,
                "renewers": draw.choice(([], ["User:bob"], ["User:bob", "User:carol"], ["Tree:a"])),
                "max_lifetime_ms": draw.choice((-1, 48 * _HOUR_MS, 5 * _HOUR_MS)),
            }
            if self._chance(0.3):
                fields["owner"] = draw.choice(("User:alice", "User:bob"))
            return Operation("create_token", fields)
        if kind < 0.75:
            fields = {"token": label, "period_ms": draw.choice((-1, 2 * _HOUR_MS))}
            return Operation("renew_token", fields)
        fields = {"token": label, "period_ms": draw.choice((-1, 3 * _HOUR_MS))}
        return Operation("expire_token", fields)
