"""Every metadata record of Kafka 4.3, and UnregisterController of 4.4, in all its versions.

The only definition of the records: each class body is the schema of one record, its fields in the
order of the wire, and also the typed class for callers. Names are Kafka's without the suffix
``Record``, fields in snake_case; a field that is not given has the schema's default.
``tests/unit/records/test_corpus.py`` compares the classes with the schemas of Kafka's own classes.

``since`` is the first version that has the field; ``tag`` makes it a tagged field; ``nullable``
allows None.
Source: the JSON schemas in ``common/metadata`` of the ``kafka-metadata`` jar.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Record, Struct


class EndpointData(Struct):
    """An address of a broker or controller (BrokerEndpoint, ControllerEndpoint)."""

    name: str = field("string")
    host: str = field("string")
    port: int = field("uint16")
    security_protocol: int = field("int16")


class Feature(Struct):
    """The levels of one feature that a node supports (BrokerFeature, ControllerFeature)."""

    name: str = field("string")
    min_supported_version: int = field("int16")
    max_supported_version: int = field("int16")


class EntityData(Struct):
    """One part of a quota's entity; ``entity_name`` None is the default entity of that type."""

    entity_type: str = field("string")
    entity_name: str | None = field("string", nullable=True)


class RegisterBroker(Record, api_key=0, versions=(0, 4)):
    """A broker registered; ``broker_epoch`` is its epoch until it registers again.

    ``cordoned_log_dirs`` is None until the broker sends it with its heartbeats (KIP-1066).
    """

    broker_id: int = field("int32")
    is_migrating_zk_broker: bool = field("bool", since=2)
    incarnation_id: Uuid = field("uuid")
    broker_epoch: int = field("int64")
    end_points: list[EndpointData] = field("[]struct", of=EndpointData)
    features: list[Feature] = field("[]struct", of=Feature)
    rack: str | None = field("string", nullable=True)
    fenced: bool = field("bool", True)
    in_controlled_shutdown: bool = field("bool", since=1)
    log_dirs: list[Uuid] = field("[]uuid", since=3, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("[]uuid", None, since=4, tag=1, nullable=True)


class UnregisterBroker(Record, api_key=1, versions=(0, 0)):
    """A broker was removed from the cluster."""

    broker_id: int = field("int32")
    broker_epoch: int = field("int64")


class Topic(Record, api_key=2, versions=(0, 0)):
    """A topic was created; its partitions follow as ``Partition`` records."""

    name: str = field("string")
    topic_id: Uuid = field("uuid")


class Partition(Record, api_key=3, versions=(0, 2)):
    """The whole state of one partition.

    ``directories`` has one entry per replica, in the order of ``replicas``. The ELR fields
    (KIP-966) are None while that feature is off.
    """

    partition_id: int = field("int32", -1)
    topic_id: Uuid = field("uuid")
    replicas: list[int] = field("[]int32")
    isr: list[int] = field("[]int32")
    removing_replicas: list[int] = field("[]int32")
    adding_replicas: list[int] = field("[]int32")
    leader: int = field("int32", -1)
    leader_recovery_state: int = field("int8", tag=0)
    leader_epoch: int = field("int32", -1)
    partition_epoch: int = field("int32", -1)
    directories: list[Uuid] = field("[]uuid", since=1)
    eligible_leader_replicas: list[int] | None = field(
        "[]int32", None, since=2, tag=1, nullable=True
    )
    last_known_elr: list[int] | None = field("[]int32", None, since=2, tag=2, nullable=True)


class Config(Record, api_key=4, versions=(0, 0)):
    """One configuration key of one resource was set, or with ``value`` None deleted."""

    resource_type: int = field("int8")
    resource_name: str = field("string")
    name: str = field("string")
    value: str | None = field("string", nullable=True)


class PartitionChange(Record, api_key=5, versions=(0, 2)):
    """The changed fields of one partition.

    An unchanged field is None; ``leader`` -2; ``leader_recovery_state`` -1.
    """

    partition_id: int = field("int32", -1)
    topic_id: Uuid = field("uuid")
    isr: list[int] | None = field("[]int32", None, tag=0, nullable=True)
    leader: int = field("int32", -2, tag=1)
    replicas: list[int] | None = field("[]int32", None, tag=2, nullable=True)
    removing_replicas: list[int] | None = field("[]int32", None, tag=3, nullable=True)
    adding_replicas: list[int] | None = field("[]int32", None, tag=4, nullable=True)
    leader_recovery_state: int = field("int8", -1, tag=5)
    directories: list[Uuid] | None = field("[]uuid", None, since=1, tag=8, nullable=True)
    eligible_leader_replicas: list[int] | None = field(
        "[]int32", None, since=2, tag=6, nullable=True
    )
    last_known_elr: list[int] | None = field("[]int32", None, since=2, tag=7, nullable=True)


class FenceBroker(Record, api_key=7, versions=(0, 0)):
    """A broker was fenced; before metadata.version 3.3-IV2 only."""

    id: int = field("int32")
    epoch: int = field("int64")


class UnfenceBroker(Record, api_key=8, versions=(0, 0)):
    """A broker was unfenced; before metadata.version 3.3-IV2 only."""

    id: int = field("int32")
    epoch: int = field("int64")


class RemoveTopic(Record, api_key=9, versions=(0, 0)):
    """A topic was deleted, with its partitions and its configuration."""

    topic_id: Uuid = field("uuid")


class DelegationToken(Record, api_key=10, versions=(0, 0)):
    """A delegation token was created or renewed; principals are ``Type:name``, times in ms."""

    owner: str = field("string")
    requester: str = field("string")
    renewers: list[str] = field("[]string")
    issue_timestamp: int = field("int64")
    max_timestamp: int = field("int64")
    expiration_timestamp: int = field("int64")
    token_id: str = field("string")


class UserScramCredential(Record, api_key=11, versions=(0, 0)):
    """A user's SCRAM credential was set."""

    name: str = field("string")
    mechanism: int = field("int8")
    salt: bytes = field("bytes")
    stored_key: bytes = field("bytes")
    server_key: bytes = field("bytes")
    iterations: int = field("int32")

    def __repr__(self) -> str:
        # As Kafka's RecordRedactor: no message holds data from which to guess the password.
        return (
            f"UserScramCredential(name={self.name!r}, mechanism={self.mechanism}, salt=[hidden], "
            f"stored_key=[hidden], server_key=[hidden], iterations={self.iterations})"
        )


class FeatureLevel(Record, api_key=12, versions=(0, 0)):
    """A feature was finalized at a level; 0 removes a feature other than metadata.version."""

    name: str = field("string")
    feature_level: int = field("int16")


class ClientQuota(Record, api_key=14, versions=(0, 0)):
    """One quota of one entity was set or removed."""

    entity: list[EntityData] = field("[]struct", of=EntityData)
    key: str = field("string")
    value: float = field("float64")
    remove: bool = field("bool")


class ProducerIds(Record, api_key=15, versions=(0, 0)):
    """A block of producer ids was allocated; the next one begins at ``next_producer_id``."""

    broker_id: int = field("int32")
    broker_epoch: int = field("int64", -1)
    next_producer_id: int = field("int64")


class BrokerRegistrationChange(Record, api_key=17, versions=(0, 3)):
    """The changed fields of a broker's registration.

    ``fenced``: 1 fenced, -1 unfenced, 0 no change. ``in_controlled_shutdown``: 1 true, 0 no change.
    Empty ``log_dirs`` and ``cordoned_log_dirs`` None mean no change.
    """

    broker_id: int = field("int32")
    broker_epoch: int = field("int64")
    fenced: int = field("int8", tag=0)
    in_controlled_shutdown: int = field("int8", since=1, tag=1)
    log_dirs: list[Uuid] = field("[]uuid", since=2, tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("[]uuid", None, since=3, tag=3, nullable=True)


class AccessControlEntry(Record, api_key=18, versions=(0, 0)):
    """An ACL was added."""

    id: Uuid = field("uuid")
    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8")
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


class RemoveAccessControlEntry(Record, api_key=19, versions=(0, 0)):
    """An ACL was removed."""

    id: Uuid = field("uuid")


class NoOp(Record, api_key=20, versions=(0, 0)):
    """No change; the active controller writes it so that the high watermark keeps advancing."""


class ZkMigrationState(Record, api_key=21, versions=(0, 0)):
    """The state of a migration from ZooKeeper; 4.x never writes it and ignores it on replay."""

    zk_migration_state: int = field("int8")


class RemoveUserScramCredential(Record, api_key=22, versions=(0, 0)):
    """A user's SCRAM credential was removed."""

    name: str = field("string")
    mechanism: int = field("int8")


class BeginTransaction(Record, api_key=23, versions=(0, 0)):
    """A metadata transaction begins: its records apply together at ``EndTransaction`` (KIP-868)."""

    name: str | None = field("string", None, tag=0, nullable=True)


class EndTransaction(Record, api_key=24, versions=(0, 0)):
    """The metadata transaction ends; its records apply."""


class AbortTransaction(Record, api_key=25, versions=(0, 0)):
    """The metadata transaction was aborted; its records do not apply."""

    reason: str | None = field("string", None, tag=0, nullable=True)


class RemoveDelegationToken(Record, api_key=26, versions=(0, 0)):
    """A delegation token was removed."""

    token_id: str = field("string")


class RegisterController(Record, api_key=27, versions=(0, 0)):
    """A controller started and registered its endpoints and features (KIP-919)."""

    controller_id: int = field("int32")
    incarnation_id: Uuid = field("uuid")
    zk_migration_ready: bool = field("bool")
    end_points: list[EndpointData] = field("[]struct", of=EndpointData)
    features: list[Feature] = field("[]struct", of=Feature)


class ClearElr(Record, api_key=28, versions=(0, 0)):
    """The ELRs of a topic were cleared, or with an empty name those of all topics (KIP-966)."""

    topic_name: str = field("string")


class UnregisterController(Record, api_key=29, versions=(0, 0)):
    """A controller's registration was removed; Kafka 4.4 and later."""

    controller_id: int = field("int32")
