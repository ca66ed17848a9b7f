"""The settings that a node understands, as Kafka defines them.

The class body is the table of names, kinds, defaults and ranges; ``tests/interop`` compares it with
the ``ConfigDef`` of the released jars. ``kraft.server.config.checks`` checks the settings that
depend on each other. A setting that the node does not use has ``has_effect=False``; the node
reports it when a configuration contains it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from kraft.configdef import ConfigType
from kraft.server.config.values import Setting, setting

_MIB = 1024 * 1024
_HOUR_MS = 60 * 60 * 1000
#: Kafka's default for "unlimited".
NO_LIMIT = (1 << 31) - 1
_EVERY_PROTOCOL = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The values of the settings; a field's name is the setting's, with underscores for dots."""

    # Identity (KRaftConfigs).
    process_roles: tuple[str, ...] = setting(
        ConfigType.LIST, is_set=True, allowed=("broker", "controller")
    )
    node_id: int = setting(ConfigType.INT, lowest=0)
    broker_id: int = setting(ConfigType.INT, -1)

    # Listeners (SocketServerConfigs, ReplicationConfigs).
    controller_listener_names: tuple[str, ...] = setting(ConfigType.LIST, is_set=True)
    listeners: tuple[str, ...] = setting(ConfigType.LIST, ("PLAINTEXT://:9092",), is_set=True)
    advertised_listeners: tuple[str, ...] | None = setting(ConfigType.LIST, None, is_set=True)
    listener_security_protocol_map: str = setting(ConfigType.STRING, _EVERY_PROTOCOL)
    inter_broker_listener_name: str | None = setting(ConfigType.STRING, None)
    security_inter_broker_protocol: str = setting(
        ConfigType.STRING, "PLAINTEXT", allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    socket_request_max_bytes: int = setting(ConfigType.INT, 100 * _MIB, lowest=1)
    max_connections: int = setting(ConfigType.INT, NO_LIMIT, lowest=0)
    max_connections_per_ip: int = setting(ConfigType.INT, NO_LIMIT, lowest=0)
    max_connections_per_ip_overrides: str = setting(ConfigType.STRING, "")
    max_connection_creation_rate: int = setting(ConfigType.INT, NO_LIMIT, lowest=0)
    connections_max_idle_ms: int = setting(ConfigType.LONG, 600_000)

    # Directories and the metadata log (ServerLogConfigs, MetadataLogConfig).
    log_dir: tuple[str, ...] = setting(ConfigType.LIST, ("/tmp/kafka-logs",), is_set=True)
    log_dirs: tuple[str, ...] | None = setting(ConfigType.LIST, None, is_set=True)
    metadata_log_dir: str | None = setting(ConfigType.STRING, None)
    metadata_log_segment_bytes: int = setting(ConfigType.INT, 1024 * _MIB, lowest=8 * _MIB)
    metadata_log_segment_ms: int = setting(ConfigType.LONG, 7 * 24 * _HOUR_MS)
    metadata_max_retention_bytes: int = setting(ConfigType.LONG, 100 * _MIB)
    metadata_max_retention_ms: int = setting(ConfigType.LONG, 7 * 24 * _HOUR_MS)
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        ConfigType.LONG, 20 * _MIB, lowest=1
    )
    metadata_log_max_snapshot_interval_ms: int = setting(ConfigType.LONG, _HOUR_MS, lowest=0)
    metadata_max_idle_interval_ms: int = setting(ConfigType.INT, 500, lowest=0)
    internal_metadata_log_segment_bytes: int | None = setting(ConfigType.INT, None)
    internal_metadata_max_batch_size_in_bytes: int = setting(ConfigType.INT, 8 * _MIB)
    internal_metadata_delete_delay_millis: int = setting(ConfigType.LONG, 60_000, has_effect=False)

    # The quorum (QuorumConfig).
    controller_quorum_voters: tuple[str, ...] = setting(ConfigType.LIST, ())
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(ConfigType.LIST, ())
    controller_quorum_election_timeout_ms: int = setting(ConfigType.INT, 1000, lowest=0)
    controller_quorum_fetch_timeout_ms: int = setting(ConfigType.INT, 2000, lowest=0)
    controller_quorum_election_backoff_max_ms: int = setting(ConfigType.INT, 1000, lowest=0)
    controller_quorum_append_linger_ms: int = setting(ConfigType.INT, 25, lowest=0)
    controller_quorum_request_timeout_ms: int = setting(ConfigType.INT, 2000, lowest=0)
    controller_quorum_retry_backoff_ms: int = setting(ConfigType.INT, 20, lowest=0)
    controller_quorum_fetch_max_bytes: int = setting(ConfigType.INT, _MIB, lowest=1)
    controller_quorum_fetch_snapshot_max_bytes: int = setting(ConfigType.INT, _MIB, lowest=1)
    controller_quorum_auto_join_enable: bool = setting(ConfigType.BOOLEAN, False)

    # The controller (KRaftConfigs, ReplicationConfigs, ServerLogConfigs).
    broker_session_timeout_ms: int = setting(ConfigType.INT, 9_000)
    auto_leader_rebalance_enable: bool = setting(ConfigType.BOOLEAN, True)
    leader_imbalance_check_interval_seconds: int = setting(ConfigType.LONG, 300, lowest=1)
    unclean_leader_election_enable: bool = setting(ConfigType.BOOLEAN, False)
    unclean_leader_election_interval_ms: int = setting(ConfigType.LONG, 300_000, lowest=1)
    default_replication_factor: int = setting(ConfigType.INT, 1)
    num_partitions: int = setting(ConfigType.INT, 1, lowest=1)
    min_insync_replicas: int = setting(ConfigType.INT, 1, lowest=1)
    delete_topic_enable: bool = setting(ConfigType.BOOLEAN, True)
    delegation_token_expiry_check_interval_ms: int = setting(ConfigType.LONG, _HOUR_MS, lowest=1)
    delegation_token_max_lifetime_ms: int = setting(ConfigType.LONG, 7 * 24 * _HOUR_MS, lowest=1)
    delegation_token_expiry_time_ms: int = setting(ConfigType.LONG, 24 * _HOUR_MS, lowest=1)
    authorizer_class_name: str = setting(ConfigType.STRING, "")

    # Quotas (QuotaConfig).
    quota_window_num: int = setting(ConfigType.INT, 11, lowest=1)
    quota_window_size_seconds: int = setting(ConfigType.INT, 1, lowest=1)
    controller_quota_window_num: int = setting(ConfigType.INT, 11, lowest=1)
    controller_quota_window_size_seconds: int = setting(ConfigType.INT, 1, lowest=1)


#: With this setting the controller issues delegation tokens and removes expired ones. It is a
#: secret: it stays in `ServerConfig.given`, and `NodeSettings` has no field for it.
TOKEN_SECRET = "delegation.token.secret.key"
#: kraft's own: the address of metrics and health checks over HTTP, ``host:port`` or ``:port`` on
#: loopback; without it there is no HTTP server.
HTTP_LISTENER = "kraft.http.listener"
#: Settings of the authorizer, which have no definition in Kafka's configuration.
SUPER_USERS = "super.users"
ALLOW_WITHOUT_ACLS = "allow.everyone.if.no.acl.found"
#: Settings that name Python objects, which ``kraft.server.plugins`` loads at the start of a node.
#: Kafka parses them by loading Java classes, so that `NodeSettings` has no field for them.
CREATE_TOPIC_POLICY = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY = "alter.config.policy.class.name"
QUOTA_CALLBACK = "client.quota.callback.class"
#: Also with the prefix of a listener.
PRINCIPAL_BUILDER = "principal.builder.class"
#: The settings that stay in `ServerConfig.given` and have an effect.
READ_AS_TEXT = frozenset(
    (
        *(TOKEN_SECRET, SUPER_USERS, ALLOW_WITHOUT_ACLS),
        *(CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY, QUOTA_CALLBACK, HTTP_LISTENER),
    )
)
#: Settings that may have the prefix of a listener, ``listener.name.<name>.``, and have an effect.
OF_LISTENERS = ("max.connections", "max.connection.creation.rate")
#: The classes that authorizer.class.name may name: Kafka's, whose decisions kraft makes.
AUTHORIZERS = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer",)
#: The class of principal.builder.class whose principals kraft builds without a plugin.
DEFAULT_PRINCIPAL_BUILDER = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)

#: Every setting that is understood, by name.
SETTINGS: dict[str, Setting] = {
    (name := each.name.replace("_", ".")): each.metadata["setting"]._replace(name=name)
    for each in fields(NodeSettings)
}
