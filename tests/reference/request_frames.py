"""Generated requests of every API and version of the controller listener, as frames.

The values of a body follow its schema: each field gets a value of its type. Most values come from a
`Vocabulary`: names, ids and epochs that the node knows, so that many requests pass the validation
and reach the controller's decisions. The same random state makes the same frames.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from kraft._core.codec.fetch import METADATA_TOPIC, METADATA_TOPIC_ID
from kraft._core.codec.message_schema import ZERO_UUID, FieldSpec, Uuid
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.apis import RPCS
from kraft.protocol.envelope import ENVELOPE, EnvelopeRequestData
from kraft.protocol.headers import Api, request_frame
from kraft.security.principals import USER_TYPE, KafkaPrincipal, encode_principal
from kraft.server.apis.forwarding import FORWARDABLE

_RARE = 0.06
_INTEGERS = {"int8": 8, "int16": 16, "uint16": 17, "int32": 32, "int64": 64}


REQUESTS: dict[int, tuple[Api, type[Message]]] = {
    rpc.api.key: (rpc.api, rpc.request) for rpc in RPCS if rpc.request is not None
}
#: Requests about the one partition of the metadata log.
_OF_METADATA_LOG = frozenset((1, 52, 53, 54, 55, 59))
#: Every API and version of the table; a listener announces most of them.
ALL: tuple[tuple[int, int], ...] = tuple(
    (key, version)
    for key, (api, _) in sorted(REQUESTS.items())
    for version in range(api.lowest, api.highest + 1)
)

_TEXTS = (
    *("", "1", "2", "-1", "0.5", "PLAINTEXT", "CONTROLLER", "127.0.0.1", "::1", "*", "broker-0"),
    *("User:alice", "User:*", "alice", "client-7", "user", "client-id", "ip", "SCRAM-SHA-256"),
    *("PLAIN", "metadata.version", "kraft.version", "group.version", METADATA_TOPIC, "a" * 250),
    *("retention.ms", "cleanup.policy", "compact,delete", "min.insync.replicas", "log.retention"),
    *("unclean.leader.election.enable", "true", "follower.replication.throttled.replicas"),
    *("max.connections", "producer_byte_rate", "controller_mutation_rate", "request_percentage"),
    *("connection_creation_rate", "1.0.0", "topic with spaces", "x.y", "x_y", "..", "é\0"),
)


@dataclass
class Vocabulary:
    """Names and numbers that a node knows; fields of requests are drawn from them."""

    cluster_id: str
    topics: dict[str, Uuid]
    node_id: int = 1
    directory_id: Uuid = ZERO_UUID
    #: The epoch of the quorum.
    epoch: int = 1
    #: The epochs of registered brokers, by id.
    brokers: dict[int, int] = field(default_factory=dict)

    def texts(self, name: str) -> tuple[str, ...]:
        if name == "cluster_id":
            return (self.cluster_id,)
        topics = (*self.topics, *self.topics, "new", f"new-{len(self.topics) % 50}")
        return topics if name in ("topic", "topic_name") else (*_TEXTS, *topics)

    def uuids(self) -> tuple[Uuid, ...]:
        return (*self.topics.values(), METADATA_TOPIC_ID, self.directory_id, ZERO_UUID)


@dataclass
class FrameWriter:
    """Draws valid requests from a random state."""

    vocabulary: Vocabulary
    chance: random.Random
    _is_of_metadata_log: bool = False
    #: The broker that the request has named last: its epoch follows.
    _broker: int = -1

    def frame(self, key: int, version: int) -> bytes:
        """Return a request with its size and header."""
        api, _ = REQUESTS[key]
        client = self.chance.choice(("fuzz", "", None, "é" * 20))
        correlation = self.chance.choice((0, 1, 7, -1, (1 << 31) - 1))
        return request_frame(api, version, correlation, client, self.body(key, version))

    def body(self, key: int, version: int) -> bytes:
        api, kind = REQUESTS[key]
        self._is_of_metadata_log = key in _OF_METADATA_LOG and self.chance.random() > _RARE
        message = self._struct(kind, version, is_flexible=version >= api.flexible_since)
        if key == ENVELOPE.key and isinstance(message, EnvelopeRequestData):
            self._fill(message)
        return message.encode(version)

    def _fill(self, envelope: EnvelopeRequestData) -> None:
        """Put a forwardable request into an envelope."""
        inner = self.chance.choice(sorted(FORWARDABLE & REQUESTS.keys()))
        version = self.chance.choice([at for key, at in ALL if key == inner])
        envelope.request_data = self.frame(inner, version)[4:]
        if self.chance.random() > _RARE:
            envelope.request_principal = encode_principal(KafkaPrincipal(USER_TYPE, "alice"))
            envelope.client_host_address = b"\x7f\0\0\1"

    def _struct(self, kind: type[Struct], version: int, *, is_flexible: bool) -> Any:
        values: dict[str, Any] = {}
        for name, spec in kind.schema.specs.items():
            if not spec.since <= version <= spec.until:
                continue
            if spec.tag >= 0 and self.chance.random() < 0.5:
                continue
            values[name] = self._field(name, spec, version, is_flexible)
        if is_flexible and self.chance.random() < _RARE:
            tag = self.chance.choice((9, 200, (1 << 31) - 2))
            values["unknown_tagged_fields"] = {tag: self.chance.randbytes(3)}
        return kind(**values)

    def _field(self, name: str, spec: FieldSpec, version: int, is_flexible: bool) -> Any:
        may_be_null = spec.nullable and version >= spec.nullable_since
        if may_be_null and self.chance.random() < 0.3:
            return None
        if not spec.is_array:
            return self._value(name, spec, version, is_flexible)
        is_one = self._is_of_metadata_log and name in ("topics", "partitions")
        count = 1 if is_one else self.chance.choice((0, 1, 1, 1, 2, 3))
        return [self._value(name, spec, version, is_flexible) for _ in range(count)]

    def _value(self, name: str, spec: FieldSpec, version: int, is_flexible: bool) -> Any:
        chance, kind = self.chance, spec.kind
        if spec.of is not None:
            return self._struct(spec.of, version, is_flexible=is_flexible)
        if kind in _INTEGERS:
            return self._integer(name, _INTEGERS[kind])
        if kind == "string":
            if chance.random() < _RARE / 2:
                return "".join(chr(chance.randrange(1, 0xD800)) for _ in range(chance.randrange(9)))
            if self._is_of_metadata_log and name in ("topic", "topic_name"):
                return METADATA_TOPIC
            return chance.choice(self.vocabulary.texts(name))
        if kind == "uuid":
            if self._is_of_metadata_log:
                return METADATA_TOPIC_ID if name == "topic_id" else self.vocabulary.directory_id
            return chance.choice(self.vocabulary.uuids())
        if kind == "bytes":
            return chance.randbytes(chance.choice((0, 1, 16, 40)))
        if kind == "bool":
            return chance.random() < 0.5
        return chance.choice((0.0, 1.0, -1.0, 1e300, float("inf"), float("nan"), 5.5))

    def _integer(self, name: str, bits: int) -> int:
        chance, known = self.chance, self.vocabulary
        if chance.random() < _RARE:
            if bits == 17:
                return chance.choice((0, 65535))
            return chance.choice((-(1 << bits - 1), (1 << bits - 1) - 1, -2, 1 << bits - 2))
        if self._is_of_metadata_log and name in ("partition", "partition_index"):
            return 0
        if name == "broker_epoch":
            return known.brokers.get(self._broker, 1)
        if "epoch" in name:
            return chance.choice((known.epoch, known.epoch, 0, 1, -1))
        if "broker" in name or "replica" in name or name == "isr":
            self._broker = chance.choice((*known.brokers, 7))
            return self._broker
        if name in ("voter_id", "controller_id", "node_id", "leader_id"):
            return known.node_id
        if name in ("timeout_ms", "max_wait_ms"):
            return chance.choice((0, 1, 5))
        if bits == 8:
            return chance.choice((0, 1, 2, 3, 4, 5, 8))
        if bits == 17:
            return chance.choice((1, 9092))
        return chance.choice((0, 0, 0, 1, 1, 2, 3, -1, 100))


def whole_frames(stream: bytes | bytearray) -> list[bytes]:
    """Return the whole frames of a stream, without their sizes."""
    found, at = [], 0
    while len(stream) >= at + 4:
        size = int.from_bytes(stream[at : at + 4], "big", signed=True)
        if size < 0 or len(stream) < at + 4 + size:
            break
        found.append(bytes(stream[at + 4 : at + 4 + size]))
        at += 4 + size
    return found
