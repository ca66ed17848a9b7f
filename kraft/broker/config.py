"""The settings of a broker, beside those of every node, as Kafka defines them.

The class body is the table of names, kinds, defaults and ranges, as in
``kraft.server.config.settings``; ``tests/interop`` compares it with Kafka's ``ConfigDef``. Settings
that are defaults of topics are not here: ``topic_settings`` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from kraft.configdef import ConfigType
from kraft.server.config.loading import ServerConfig
from kraft.server.config.values import Setting, read_setting, setting

_MIB = 1024 * 1024
#: The entry of cordoned.log.dirs that means every directory.
ALL_DIRECTORIES = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The values; a field's name is the setting's, with underscores for dots."""

    # Registration (KRaftConfigs, ServerConfigs).
    broker_rack: str | None = setting(ConfigType.STRING, None)
    broker_heartbeat_interval_ms: int = setting(ConfigType.INT, 2000)
    initial_broker_registration_timeout_ms: int = setting(ConfigType.INT, 60_000)
    cordoned_log_dirs: tuple[str, ...] = setting(
        ConfigType.LIST, (), is_set=True, may_be_empty=True
    )

    # Replication (ReplicationConfigs).
    replica_lag_time_max_ms: int = setting(ConfigType.LONG, 30_000)
    replica_fetch_wait_max_ms: int = setting(ConfigType.INT, 500)
    replica_fetch_min_bytes: int = setting(ConfigType.INT, 1)
    replica_fetch_max_bytes: int = setting(ConfigType.INT, _MIB, lowest=0)
    replica_fetch_response_max_bytes: int = setting(ConfigType.INT, 10 * _MIB, lowest=0)
    replica_fetch_backoff_ms: int = setting(ConfigType.INT, 1000, lowest=0)
    replica_socket_timeout_ms: int = setting(ConfigType.INT, 30_000)
    replica_high_watermark_checkpoint_interval_ms: int = setting(ConfigType.LONG, 5000)
    replica_selector_class: str | None = setting(ConfigType.STRING, None)
    request_timeout_ms: int = setting(ConfigType.INT, 30_000)

    # Requests of clients (ServerConfigs, ServerLogConfigs).
    auto_create_topics_enable: bool = setting(ConfigType.BOOLEAN, True)
    fetch_max_bytes: int = setting(ConfigType.INT, 55 * _MIB, lowest=1024)
    max_incremental_fetch_session_cache_slots: int = setting(ConfigType.INT, 1000, lowest=0)
    max_request_partition_size_limit: int = setting(ConfigType.INT, 2000, lowest=1)

    # Logs (ServerLogConfigs, TransactionLogConfig).
    log_retention_check_interval_ms: int = setting(ConfigType.LONG, 300_000, lowest=1)
    log_flush_scheduler_interval_ms: int = setting(ConfigType.LONG, 2**63 - 1)
    log_flush_offset_checkpoint_interval_ms: int = setting(ConfigType.INT, 60_000, lowest=0)
    log_cleaner_enable: bool = setting(ConfigType.BOOLEAN, True)
    log_cleaner_backoff_ms: int = setting(ConfigType.LONG, 15_000, lowest=0)
    log_cleaner_dedupe_buffer_size: int = setting(ConfigType.LONG, 128 * _MIB)
    producer_id_expiration_ms: int = setting(ConfigType.INT, 86_400_000, lowest=1)

    # The windows of the rates of the replication (ReplicationQuotaManagerConfig, QuotaConfig).
    replication_quota_window_num: int = setting(ConfigType.INT, 11, lowest=1)
    replication_quota_window_size_seconds: int = setting(ConfigType.INT, 1, lowest=1)
    alter_log_dirs_replication_quota_window_num: int = setting(ConfigType.INT, 11, lowest=1)
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(ConfigType.INT, 1, lowest=1)

    @classmethod
    def of(cls, config: ServerConfig) -> Self:
        """Return the settings that a node's configuration gives. Raises InvalidConfigError."""
        values: dict[str, Any] = {
            name.replace(".", "_"): read_setting(rule, config.given[name], str(config.path))
            for name, rule in BROKER_SETTINGS.items()
            if name in config.given
        }
        return cls(**values)


#: The broker's settings, by name.
BROKER_SETTINGS: dict[str, Setting] = {
    (name := each.name.replace("_", ".")): each.metadata["setting"]._replace(name=name)
    for each in fields(BrokerSettings)
}
