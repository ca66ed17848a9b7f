"""The settings that a node understands, as Kafka defines them.

Owns their names, kinds, defaults and ranges; the class body is the table. Held against the
``ConfigDef`` of the released jars by ``tests/interop``. What hangs together among them is checked
by ``kraft.server.config.checks``. What nothing of the node heeds says so (``has_effect``), and is
named when a configuration gives it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from kraft.configdef import Kind
from kraft.server.config.values import Setting, setting

_MIB = 1024 * 1024
_HOUR_MS = 60 * 60 * 1000
#: What Kafka's own defaults say where nothing is to end.
NO_LIMIT = (1 << 31) - 1
_EVERY_PROTOCOL = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value each; a field's name is the setting's, with underscores for dots."""

    # Who the node is (KRaftConfigs).
    process_roles: tuple[str, ...] = setting(
        Kind.LIST, is_set=True, allowed=("broker", "controller")
    )
    node_id: int = setting(Kind.INT, lowest=0)
    broker_id: int = setting(Kind.INT, -1)

    # Where it listens (SocketServerConfigs, ReplicationConfigs).
    controller_listener_names: tuple[str, ...] = setting(Kind.LIST, is_set=True)
    listeners: tuple[str, ...] = setting(Kind.LIST, ("PLAINTEXT://:9092",), is_set=True)
    advertised_listeners: tuple[str, ...] | None = setting(Kind.LIST, None, is_set=True)
    listener_security_protocol_map: str = setting(Kind.STRING, _EVERY_PROTOCOL)
    inter_broker_listener_name: str | None = setting(Kind.STRING, None)
    security_inter_broker_protocol: str = setting(
        Kind.STRING, "PLAINTEXT", allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    socket_request_max_bytes: int = setting(Kind.INT, 100 * _MIB, lowest=1)
    max_connections: int = setting(Kind.INT, NO_LIMIT, lowest=0)
    max_connections_per_ip: int = setting(Kind.INT, NO_LIMIT, lowest=0)
    connections_max_idle_ms: int = setting(Kind.LONG, 600_000)

    # Where it writes (ServerLogConfigs, MetadataLogConfig).
    log_dir: tuple[str, ...] = setting(Kind.LIST, ("/tmp/kafka-logs",), is_set=True)
    log_dirs: tuple[str, ...] | None = setting(Kind.LIST, None, is_set=True)
    metadata_log_dir: str | None = setting(Kind.STRING, None)
    metadata_log_segment_bytes: int = setting(Kind.INT, 1024 * _MIB, lowest=8 * _MIB)
    metadata_log_segment_ms: int = setting(Kind.LONG, 7 * 24 * _HOUR_MS)
    metadata_max_retention_bytes: int = setting(Kind.LONG, 100 * _MIB)
    metadata_max_retention_ms: int = setting(Kind.LONG, 7 * 24 * _HOUR_MS)
    metadata_log_max_record_bytes_between_snapshots: int = setting(Kind.LONG, 20 * _MIB, lowest=1)
    metadata_log_max_snapshot_interval_ms: int = setting(Kind.LONG, _HOUR_MS, lowest=0)
    metadata_max_idle_interval_ms: int = setting(Kind.INT, 500, lowest=0)
    internal_metadata_log_segment_bytes: int | None = setting(Kind.INT, None)
    internal_metadata_max_batch_size_in_bytes: int = setting(Kind.INT, 8 * _MIB)
    internal_metadata_delete_delay_millis: int = setting(Kind.LONG, 60_000, has_effect=False)

    # The quorum (QuorumConfig).
    controller_quorum_voters: tuple[str, ...] = setting(Kind.LIST, ())
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(Kind.LIST, ())
    controller_quorum_election_timeout_ms: int = setting(Kind.INT, 1000, lowest=0)
    controller_quorum_fetch_timeout_ms: int = setting(Kind.INT, 2000, lowest=0)
    controller_quorum_election_backoff_max_ms: int = setting(Kind.INT, 1000, lowest=0)
    controller_quorum_append_linger_ms: int = setting(Kind.INT, 25, lowest=0)
    controller_quorum_request_timeout_ms: int = setting(Kind.INT, 2000, lowest=0)
    controller_quorum_retry_backoff_ms: int = setting(Kind.INT, 20, lowest=0)
    controller_quorum_fetch_max_bytes: int = setting(Kind.INT, _MIB, lowest=1)
    controller_quorum_fetch_snapshot_max_bytes: int = setting(Kind.INT, _MIB, lowest=1)
    controller_quorum_auto_join_enable: bool = setting(Kind.BOOLEAN, False)

    # What the controller decides by (KRaftConfigs, ReplicationConfigs, ServerLogConfigs).
    broker_session_timeout_ms: int = setting(Kind.INT, 9_000)
    auto_leader_rebalance_enable: bool = setting(Kind.BOOLEAN, True)
    leader_imbalance_check_interval_seconds: int = setting(Kind.LONG, 300, lowest=1)
    unclean_leader_election_enable: bool = setting(Kind.BOOLEAN, False)
    unclean_leader_election_interval_ms: int = setting(Kind.LONG, 300_000, lowest=1)
    default_replication_factor: int = setting(Kind.INT, 1)
    num_partitions: int = setting(Kind.INT, 1, lowest=1)
    min_insync_replicas: int = setting(Kind.INT, 1, lowest=1)
    delete_topic_enable: bool = setting(Kind.BOOLEAN, True)
    delegation_token_expiry_check_interval_ms: int = setting(Kind.LONG, _HOUR_MS, lowest=1)


#: Where it is given, tokens are issued, and those whose time is over are removed. A secret: it is
#: kept as it is written, and no value of `Settings`.
TOKEN_SECRET = "delegation.token.secret.key"

#: Every setting that is understood, by name.
SETTINGS: dict[str, Setting] = {
    (name := each.name.replace("_", ".")): each.metadata["setting"]._replace(name=name)
    for each in fields(Settings)
}
