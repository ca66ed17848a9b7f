"""The znodes of Apache Kafka: their paths, and their content as JSON.

Pure. Reads what Kafka 0.8 to 3.9 writes, and writes what the stated version writes. All paths are
relative to the cluster's chroot. The functions that read take the path for the error: a znode with
other content raises CorruptZnodeError, which names the path and the missing or wrong field.

Rules: ``ZkData.scala`` of Kafka 1.1 and 3.9, ``ZkUtils.scala`` of 0.8.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraft.errors import CorruptZnodeError

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONFIG_CHANGES = "/config/changes"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
ACLS = "/kafka-acl"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
FEATURE = "/feature"
MIGRATION = "/migration"

#: The prefixes of the sequential znodes below `ISR_CHANGES` and `LOG_DIR_EVENTS`.
ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"

#: The znodes that every broker and controller creates when it starts, parents first (1.1). Not
#: `PRODUCER_ID_BLOCK`: Kafka's brokers create it without content, and do not start if it is empty.
PERSISTENT_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
)

#: The same in 0.8.2.
PERSISTENT_PATHS_0_8 = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    "/config/topics",
    DELETE_TOPICS,
)

#: A partition's state as Kafka 0.8 to 3.1 and `PartitionStateZnode.encode` write it. A match costs
#: a fifth of the parse as any JSON.
_NUMBER = rb"(-?(?:0|[1-9][0-9]{0,9}))"
_USUAL_STATE = re.compile(
    rb'\{"controller_epoch":%b,"leader":%b,"version":1,"leader_epoch":%b,"isr":\[%b\]\}'
    % (_NUMBER, _NUMBER, _NUMBER, rb"((?:(?:0|[1-9][0-9]{0,9})(?:,(?:0|[1-9][0-9]{0,9}))*)?)")
)
_ENDPOINT = re.compile(r"([^:/]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path below which a topic's partitions are."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Return the path of a partition, whose only child is its state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(entity_type: str, name: str) -> str:
    """Return the path of a config: ``entity_type`` is topics, brokers, users, clients or ips."""
    return f"{CONFIG}/{entity_type}/{name}"


def delete_topic_path(topic: str) -> str:
    """Return the path whose existence asks the controller to delete a topic."""
    return f"{DELETE_TOPICS}/{topic}"


# -- the controller


@dataclass(frozen=True, slots=True)
class ControllerZnode:
    """The content of ``/controller``."""

    broker_id: int
    timestamp_ms: int = 0
    #: From 3.4 on: the epoch of the KRaft controller that migrates this cluster, -1 without one.
    kraft_epoch: int | None = None

    def encode(self) -> bytes:
        """Return the JSON, of version 2 with ``kraft_epoch``, else of version 1."""
        document: dict[str, Any] = {
            "version": 1 if self.kraft_epoch is None else 2,
            "brokerid": self.broker_id,
            "timestamp": str(self.timestamp_ms),
        }
        if self.kraft_epoch is not None:
            document["kraftControllerEpoch"] = self.kraft_epoch
        return _json(document)

    @classmethod
    def decode(cls, data: bytes, path: str = CONTROLLER) -> ControllerZnode:
        """Return the content; before 0.8.1 it was the broker id alone."""
        if data.strip().lstrip(b"-").isdigit():
            return cls(int(data))
        znode = JsonZnode(path, data)
        return cls(
            znode.integer("brokerid"),
            znode.number_in_text("timestamp", 0),
            znode.integer("kraftControllerEpoch", -1)
            if znode.has("kraftControllerEpoch")
            else None,
        )


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the content of ``/controller_epoch``."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes, path: str = CONTROLLER_EPOCH) -> int:
    """Return the epoch of the last controller that was elected."""
    if not data.isdigit():
        raise CorruptZnodeError(f"{path} holds {_shown(data)}, not a controller epoch")
    return int(data)


# -- brokers


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """Where clients or brokers reach a broker."""

    host: str
    port: int
    listener: str = "PLAINTEXT"
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerZnode:
    """The content of ``/brokers/ids/<id>``, whose czxid is the broker's epoch."""

    id: int
    listeners: tuple[ListenerAddress, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = 0
    #: From 2.7 on: feature -> (minimum, maximum) of the levels that the broker supports.
    features: Mapping[str, tuple[int, int]] | None = None
    #: Written by kraft: 0.8 or 2018 for a controller that answers ControlledShutdown here and has
    #: no replicas, empty for a broker.
    controller_era: str = ""

    @property
    def is_controller_only(self) -> bool:
        """Whether a controller of kraft is registered here, and no broker."""
        return bool(self.controller_era)

    def encode(self, version: int = 4) -> bytes:
        """Return the JSON of ``version`` 1 (0.8), 2 (0.9), 3 (0.10), 4 (0.10.2) or 5 (2.7).

        As with Kafka, ``host`` and ``port`` are of the first PLAINTEXT listener, or null and -1.
        """
        plain = next((one for one in self.listeners if one.security_protocol == "PLAINTEXT"), None)
        document: dict[str, Any] = {}
        if version >= 4:
            document["listener_security_protocol_map"] = {
                one.listener: one.security_protocol for one in self.listeners
            }
        if version >= 2:
            document["endpoints"] = [str(one) for one in self.listeners]
        document["jmx_port"] = self.jmx_port
        if version >= 5:
            document["features"] = {
                name: {"min_version": low, "max_version": high}
                for name, (low, high) in (self.features or {}).items()
            }
        if version >= 3 and self.rack is not None:
            document["rack"] = self.rack
        document |= {
            "host": None if plain is None else plain.host,
            "timestamp": str(self.timestamp_ms),
            "port": -1 if plain is None else plain.port,
            "version": version,
        }
        if self.controller_era:
            document["kraft_controller"] = self.controller_era
        return _json(document)

    @classmethod
    def decode(cls, data: bytes, broker_id: int) -> BrokerZnode:
        """Return the registration of a broker."""
        znode = JsonZnode(broker_path(broker_id), data)
        version = znode.integer("version", 1)
        if version < 1:
            raise znode.error(f"version is {version}, not 1 or higher")
        if version == 1:
            listeners = [ListenerAddress(znode.text("host"), znode.integer("port"))]
        else:
            protocols = znode.mapping("listener_security_protocol_map", {})
            listeners = [_listener(znode, text, protocols) for text in znode.texts("endpoints")]
        features = None
        if znode.has("features"):
            features = {
                name: _levels(znode, name, levels)
                for name, levels in znode.mapping("features").items()
            }
        return cls(
            broker_id,
            tuple(listeners),
            znode.text("rack") if znode.has("rack") else None,
            znode.integer("jmx_port", -1),
            znode.number_in_text("timestamp", 0),
            features,
            znode.text("kraft_controller") if znode.has("kraft_controller") else "",
        )


def _listener(znode: JsonZnode, text: str, protocols: Mapping[str, Any]) -> ListenerAddress:
    found = _ENDPOINT.fullmatch(text)
    if found is None:
        raise znode.error(f"endpoint {text!r} is not of the form LISTENER://HOST:PORT")
    name, host, port = found.groups()
    # Before 0.10.2 a listener's name was its security protocol.
    protocol = protocols.get(name, name)
    if not isinstance(protocol, str):
        raise znode.error(f"the security protocol of listener {name} is not a text")
    return ListenerAddress(host, int(port), name, protocol)


def _levels(znode: JsonZnode, name: str, levels: Any) -> tuple[int, int]:
    if isinstance(levels, dict):
        low, high = levels.get("min_version"), levels.get("max_version")
        if type(low) is int and type(high) is int:
            return low, high
    raise znode.error(f"feature {name} has no min_version and max_version")


# -- topics and partitions


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """The content of ``/brokers/topics/<topic>``: the replicas of its partitions.

    Version 1 (until 2.3) has only ``assignment``, version 2 the replicas of reassignments, and
    version 3 (from 2.8) the topic's id, 16 bytes as base64 for URLs without padding.
    """

    assignment: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    topic_id: str | None = None

    def encode(self, version: int = 1) -> bytes:
        """Return the JSON of ``version`` 1, 2 or 3."""
        document: dict[str, Any] = {"version": version}
        if version >= 2:
            document["removing_replicas"] = _by_text(self.removing)
            document["adding_replicas"] = _by_text(self.adding)
        if version >= 3 and self.topic_id is not None:
            document["topic_id"] = self.topic_id
        document["partitions"] = _by_text(self.assignment)
        return _json(document)

    @classmethod
    def decode(cls, data: bytes, topic: str) -> TopicZnode:
        """Return the assignment of a topic, in the order of its JSON."""
        znode = JsonZnode(topic_path(topic), data)
        return cls(
            znode.replicas("partitions"),
            znode.replicas("adding_replicas", required=False),
            znode.replicas("removing_replicas", required=False),
            znode.text("topic_id") if znode.has("topic_id") else None,
        )


def _by_text(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(ids) for partition, ids in replicas.items()}


@dataclass(frozen=True, slots=True)
class PartitionStateZnode:
    """The content of ``…/partitions/<partition>/state``, which controller and leader write."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    #: From 3.2 on: 1 while a leader that was elected uncleanly recovers (KIP-704), else 0.
    recovery_state: int | None = None

    def encode(self) -> bytes:
        """Return the JSON, with ``leader_recovery_state`` unless ``recovery_state`` is None."""
        isr = ",".join(map(str, self.isr))
        recovery = (
            "" if self.recovery_state is None else f',"leader_recovery_state":{self.recovery_state}'
        )
        # Formatted by hand: ten times as fast as json.dumps, for hundreds of thousands at once.
        return (
            f'{{"controller_epoch":{self.controller_epoch},"leader":{self.leader},"version":1,'
            f'"leader_epoch":{self.leader_epoch},"isr":[{isr}]{recovery}}}'
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> PartitionStateZnode:
        """Return leader and ISR; ``path`` names the partition in errors."""
        usual = _USUAL_STATE.fullmatch(data)
        if usual is not None:
            controller_epoch, leader, leader_epoch, isr = usual.groups()
            return cls(
                int(leader),
                int(leader_epoch),
                tuple(map(int, isr.split(b","))) if isr else (),
                int(controller_epoch),
            )
        znode = JsonZnode(path, data)
        return cls(
            znode.integer("leader"),
            znode.integer("leader_epoch"),
            znode.integers("isr"),
            znode.integer("controller_epoch"),
            znode.integer("leader_recovery_state") if znode.has("leader_recovery_state") else None,
        )


# -- configs, notifications, requests of administrators


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the content of a config's znode."""
    return _json({"version": 1, "config": dict(config)})


def decode_config(data: bytes, path: str) -> dict[str, str]:
    """Return the settings of an entity. An empty znode has none."""
    if not data:
        return {}
    znode = JsonZnode(path, data)
    return {name: znode.as_text(name, value) for name, value in znode.mapping("config").items()}


def encode_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Return the content of an ISR change notification or of a preferred election's request."""
    return _json(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": partition} for topic, partition in partitions
            ],
        }
    )


def decode_partitions(data: bytes, path: str) -> list[tuple[str, int]]:
    """Return the (topic, partition) pairs of such a znode, in its order."""
    znode = JsonZnode(path, data)
    return [one.partition() for one in znode.documents("partitions")]


def encode_reassignment(replicas: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    """Return the content of ``/admin/reassign_partitions``."""
    return _json(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": partition, "replicas": list(ids)}
                for (topic, partition), ids in replicas.items()
            ],
        }
    )


def decode_reassignment(
    data: bytes, path: str = REASSIGN_PARTITIONS
) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return the wanted replicas of each (topic, partition)."""
    znode = JsonZnode(path, data)
    return {one.partition(): one.integers("replicas") for one in znode.documents("partitions")}


def encode_log_dir_event(broker_id: int) -> bytes:
    """Return the notification that a log directory of a broker failed."""
    return _json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes, path: str) -> int:
    """Return the broker whose log directory failed."""
    return JsonZnode(path, data).integer("broker")


def decode_cluster_id(data: bytes, path: str = CLUSTER_ID) -> str:
    """Return the cluster's id."""
    return JsonZnode(path, data).text("id")


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the content of ``/cluster/id``."""
    return _json({"version": "1", "id": cluster_id})


# -- JSON


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _shown(data: bytes) -> str:
    return repr(data[:60]) + ("…" if len(data) > 60 else "")


_REQUIRED = object()


class JsonZnode:
    """The JSON object of a znode; its methods return a field or raise CorruptZnodeError."""

    __slots__ = ("_fields", "_path")

    def __init__(self, path: str, data: bytes | None, fields: dict[str, Any] | None = None) -> None:
        self._path = path
        if fields is None:
            try:
                fields = json.loads(data or b"")
            except (ValueError, RecursionError) as error:
                raise CorruptZnodeError(
                    f"{path} holds {_shown(data or b'')}, which is not JSON: {error}"
                ) from None
            if not isinstance(fields, dict):
                raise CorruptZnodeError(f"{path} holds {_shown(data or b'')}, not a JSON object")
        self._fields = fields

    def error(self, message: str) -> CorruptZnodeError:
        return CorruptZnodeError(f"{self._path}: {message}")

    def has(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def integer(self, name: str, default: Any = _REQUIRED) -> int:
        value = self._get(name, default)
        if type(value) is not int:
            raise self.error(f"{name} is {value!r}, not an integer")
        return value

    def number_in_text(self, name: str, default: int) -> int:
        """Return a number that Kafka writes as text; some tools write it as a number."""
        value = self._get(name, default)
        try:
            return int(value)
        except (TypeError, ValueError):
            raise self.error(f"{name} is {value!r}, not a number") from None

    def text(self, name: str) -> str:
        return self.as_text(name, self._get(name, _REQUIRED))

    def as_text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.error(f"{name} is {value!r}, not a text")
        return value

    def texts(self, name: str) -> list[str]:
        return [self.as_text(name, one) for one in self._list(name)]

    def integers(self, name: str) -> tuple[int, ...]:
        return self._as_integers(name, self._list(name))

    def mapping(self, name: str, default: Any = _REQUIRED) -> dict[str, Any]:
        value = self._get(name, default)
        if not isinstance(value, dict):
            raise self.error(f"{name} is {value!r}, not an object")
        return value

    def documents(self, name: str) -> list[JsonZnode]:
        found = self._list(name)
        if not all(isinstance(one, dict) for one in found):
            raise self.error(f"{name} is not a list of objects")
        return [JsonZnode(self._path, None, one) for one in found]

    def partition(self) -> tuple[str, int]:
        return self.text("topic"), self.integer("partition")

    def replicas(self, name: str, *, required: bool = True) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for text, ids in self.mapping(name, _REQUIRED if required else {}).items():
            if not (text.isascii() and text.isdigit()):
                raise self.error(f"{name} has the partition {text!r}, not a number")
            if not isinstance(ids, list):
                raise self.error(f"{name} has {ids!r} for partition {text}, not a list")
            found[int(text)] = self._as_integers(name, ids)
        return found

    def _as_integers(self, name: str, values: list[Any]) -> tuple[int, ...]:
        for value in values:
            if type(value) is not int:
                raise self.error(f"{name} contains {value!r}, not an integer")
        return tuple(values)

    def _list(self, name: str) -> list[Any]:
        value = self._get(name, _REQUIRED)
        if not isinstance(value, list):
            raise self.error(f"{name} is {value!r}, not a list")
        return value

    def _get(self, name: str, default: Any) -> Any:
        value = self._fields.get(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.error(f"{name} is missing")
        return default
