"""The settings of group coordinators, as Kafka defines them.

The class body is the table of names, kinds, defaults and ranges, as in
``kraft.server.config.settings``; ``tests/interop`` compares it with Kafka's ``ConfigDef``. Settings
of what kraft does not have (KIP-848, share and streams groups) are not here. Called when a broker
starts. Source: ``GroupCoordinatorConfig``, ``ServerLogConfigs`` (4.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from kraft.broker.groups.config import GroupCoordinatorConfig
from kraft.broker.groups.partitioning import OFFSETS_TOPIC
from kraft.configdef import ConfigType
from kraft.errors import InvalidConfigError
from kraft.protocol.create_topics import CreatableConfig, CreatableTopic
from kraft.server.config.loading import ServerConfig
from kraft.server.config.values import Setting, read_setting, setting

_MIB = 1024 * 1024
_MINUTE_MS = 60_000
#: The codecs of record batches by number: none, gzip, snappy, lz4, zstd.
_CODECS = range(5)
#: Groups that one timer looks through for expired offsets: a few milliseconds.
_CLEANUP_SLICE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The values; a field's name is the setting's, with underscores for dots."""

    # Groups (GroupCoordinatorConfig).
    group_min_session_timeout_ms: int = setting(ConfigType.INT, 6_000)
    group_max_session_timeout_ms: int = setting(ConfigType.INT, 1_800_000)
    group_initial_rebalance_delay_ms: int = setting(ConfigType.INT, 3_000)
    group_max_size: int = setting(ConfigType.INT, 2**31 - 1, lowest=1)

    # Offsets and their topic (GroupCoordinatorConfig).
    offset_metadata_max_bytes: int = setting(ConfigType.INT, 4_096)
    offsets_commit_timeout_ms: int = setting(ConfigType.INT, 5_000, lowest=1)
    offsets_load_buffer_size: int = setting(ConfigType.INT, 5 * _MIB, lowest=1)
    offsets_retention_check_interval_ms: int = setting(ConfigType.LONG, 600_000, lowest=1)
    offsets_retention_minutes: int = setting(ConfigType.INT, 7 * 24 * 60, lowest=1)
    offsets_topic_compression_codec: int = setting(ConfigType.INT, 0)
    offsets_topic_num_partitions: int = setting(ConfigType.INT, 50, lowest=1)
    offsets_topic_replication_factor: int = setting(ConfigType.SHORT, 3, lowest=1)
    offsets_topic_segment_bytes: int = setting(ConfigType.INT, 100 * _MIB, lowest=1)

    # The largest batch that a topic without a setting of its own takes (ServerLogConfigs).
    message_max_bytes: int = setting(ConfigType.INT, _MIB + 12, lowest=0)

    # Threads and protocols that kraft does not have (GroupCoordinatorConfig).
    group_coordinator_threads: int = setting(ConfigType.INT, 4, lowest=1, has_effect=False)
    group_coordinator_background_threads: int = setting(
        ConfigType.INT, 2, lowest=1, has_effect=False
    )
    group_coordinator_append_linger_ms: int = setting(
        ConfigType.INT, -1, lowest=-1, has_effect=False
    )
    group_coordinator_cached_buffer_max_bytes: int = setting(
        ConfigType.INT, _MIB + 12, lowest=512 * 1024, has_effect=False
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("classic", "consumer", "streams"),
        is_set=True,
        allowed=("classic", "consumer", "streams", "share"),
        has_effect=False,
    )

    @classmethod
    def of(cls, config: ServerConfig) -> Self:
        """Return the settings that a node's configuration gives. Raises InvalidConfigError."""
        where = str(config.path)
        values: dict[str, Any] = {
            name.replace(".", "_"): read_setting(rule, config.given[name], where)
            for name, rule in GROUP_SETTINGS.items()
            if name in config.given
        }
        settings = cls(**values)
        if settings.offsets_topic_compression_codec not in _CODECS:
            raise InvalidConfigError(
                f"{where}: offsets.topic.compression.codec is "
                f"{settings.offsets_topic_compression_codec}; expected 0 (none), 1 (gzip), "
                "2 (snappy), 3 (lz4) or 4 (zstd)"
            )
        return settings

    @property
    def coordinator_config(self) -> GroupCoordinatorConfig:
        """The configurations of the coordinators."""
        return GroupCoordinatorConfig(
            group_min_session_timeout_ms=self.group_min_session_timeout_ms,
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_max_size=self.group_max_size,
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * _MINUTE_MS,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            offsets_commit_timeout_ms=self.offsets_commit_timeout_ms,
            offsets_topic_compression_codec=self.offsets_topic_compression_codec,
            max_batch_bytes=self.message_max_bytes,
            cleanup_slice=_CLEANUP_SLICE,
        )

    @property
    def offsets_topic(self) -> CreatableTopic:
        """``__consumer_offsets`` as a broker asks the controller to create it.

        Source: ``GroupCoordinatorService.groupMetadataTopicConfigs``,
        ``DefaultAutoTopicCreationManager.creatableTopic``.
        """
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.offsets_topic_segment_bytes),
        }
        return CreatableTopic(
            OFFSETS_TOPIC,
            self.offsets_topic_num_partitions,
            self.offsets_topic_replication_factor,
            configs=[CreatableConfig(name, value) for name, value in configs.items()],
        )


#: The settings of group coordinators, by name.
GROUP_SETTINGS: dict[str, Setting] = {
    (name := each.name.replace("_", ".")): each.metadata["setting"]._replace(name=name)
    for each in fields(GroupSettings)
}
