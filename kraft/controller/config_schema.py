"""The dynamic configurations: names, types, defaults, ranges and synonyms.

Holds the tables of topic, group and client metrics configurations, the list-valued ones of brokers,
and `ConfigRules`: defaults and limits from the controller's own properties file.
``tests/interop/test_config_schema.py`` compares the tables with Kafka's definitions.
``config_validation`` checks which values may be combined. Sources: Kafka's ``LogConfig``,
``GroupConfig``, ``ClientMetricsConfigs``, ``ServerTopicConfigSynonyms``, ``KafkaConfigSchema``,
``KafkaConfig.extractLogConfigMap``, ``DefaultSupportedConfigChecker`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kraft.configdef import (
    Between,
    ConfigType,
    ConfigValueError,
    OneOf,
    SetOfEntries,
    Validator,
    check_share_offset_reset,
    check_throttled_replicas,
    read,
)
from kraft.errors import InvalidConfigError
from kraft.image.configs import BROKER, CLIENT_METRICS, GROUP, TOPIC

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_LONGEST = (1 << 63) - 1
_MIB = 1 << 20

REMOTE_STORAGE_SYSTEM: Final = "remote.log.storage.system.enable"


class Synonym(NamedTuple):
    """A broker setting that sets a topic's default, times ``factor``."""

    name: str
    factor: int = 1


class Definition(NamedTuple):
    """One configuration; the first of its ``synonyms`` that the broker sets is the default."""

    kind: ConfigType
    default: Any
    check: Validator | None = None
    synonyms: tuple[Synonym, ...] = ()

    def read(self, text: str) -> Any:
        """Return the value of ``text``. Raises ConfigValueError."""
        value = read(self.kind, text)
        if isinstance(self.check, SetOfEntries):
            value = tuple(dict.fromkeys(value))
        if self.check is not None:
            self.check(value)
        return value


def _like(*names: str) -> tuple[Synonym, ...]:
    return tuple(map(Synonym, names))


_POSITIVE = Between(1)
_NOT_NEGATIVE = Between(0)

TOPIC_CONFIGS: Final[Mapping[str, Definition]] = MappingProxyType(
    {
        "cleanup.policy": Definition(
            ConfigType.LIST,
            ("delete",),
            SetOfEntries(("compact", "delete")),
            _like("log.cleanup.policy"),
        ),
        "compression.gzip.level": Definition(
            ConfigType.INT, -1, Between(1, 9, also=-1), _like("compression.gzip.level")
        ),
        "compression.lz4.level": Definition(
            ConfigType.INT, 9, Between(1, 17), _like("compression.lz4.level")
        ),
        "compression.type": Definition(
            ConfigType.STRING,
            "producer",
            OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
            _like("compression.type"),
        ),
        "compression.zstd.level": Definition(
            ConfigType.INT, 3, Between(-131072, 22), _like("compression.zstd.level")
        ),
        "delete.retention.ms": Definition(
            ConfigType.LONG, _DAY_MS, _NOT_NEGATIVE, _like("log.cleaner.delete.retention.ms")
        ),
        "file.delete.delay.ms": Definition(
            ConfigType.LONG, _MINUTE_MS, _NOT_NEGATIVE, _like("log.segment.delete.delay.ms")
        ),
        "flush.messages": Definition(
            ConfigType.LONG, _LONGEST, _POSITIVE, _like("log.flush.interval.messages")
        ),
        "flush.ms": Definition(
            ConfigType.LONG,
            _LONGEST,
            _NOT_NEGATIVE,
            _like("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        ),
        "follower.replication.throttled.replicas": Definition(
            ConfigType.LIST, (), check_throttled_replicas
        ),
        "index.interval.bytes": Definition(
            ConfigType.INT, 4096, _NOT_NEGATIVE, _like("log.index.interval.bytes")
        ),
        "internal.segment.bytes": Definition(ConfigType.INT, None),
        "leader.replication.throttled.replicas": Definition(
            ConfigType.LIST, (), check_throttled_replicas
        ),
        "local.retention.bytes": Definition(
            ConfigType.LONG, -2, Between(-2), _like("log.local.retention.bytes")
        ),
        "local.retention.ms": Definition(
            ConfigType.LONG, -2, Between(-2), _like("log.local.retention.ms")
        ),
        "max.compaction.lag.ms": Definition(
            ConfigType.LONG, _LONGEST, _POSITIVE, _like("log.cleaner.max.compaction.lag.ms")
        ),
        "max.message.bytes": Definition(
            ConfigType.INT, _MIB + 12, _NOT_NEGATIVE, _like("message.max.bytes")
        ),
        "message.timestamp.after.max.ms": Definition(
            ConfigType.LONG, _HOUR_MS, _NOT_NEGATIVE, _like("log.message.timestamp.after.max.ms")
        ),
        "message.timestamp.before.max.ms": Definition(
            ConfigType.LONG, _LONGEST, _NOT_NEGATIVE, _like("log.message.timestamp.before.max.ms")
        ),
        "message.timestamp.type": Definition(
            ConfigType.STRING,
            "CreateTime",
            OneOf(("CreateTime", "LogAppendTime")),
            _like("log.message.timestamp.type"),
        ),
        "min.cleanable.dirty.ratio": Definition(
            ConfigType.DOUBLE, 0.5, Between(0, 1), _like("log.cleaner.min.cleanable.ratio")
        ),
        "min.compaction.lag.ms": Definition(
            ConfigType.LONG, 0, _NOT_NEGATIVE, _like("log.cleaner.min.compaction.lag.ms")
        ),
        "min.insync.replicas": Definition(
            ConfigType.INT, 1, _POSITIVE, _like("min.insync.replicas")
        ),
        "preallocate": Definition(ConfigType.BOOLEAN, False, None, _like("log.preallocate")),
        "remote.log.copy.disable": Definition(ConfigType.BOOLEAN, False),
        "remote.log.delete.on.disable": Definition(ConfigType.BOOLEAN, False),
        "remote.storage.enable": Definition(ConfigType.BOOLEAN, False),
        "retention.bytes": Definition(ConfigType.LONG, -1, None, _like("log.retention.bytes")),
        "retention.ms": Definition(
            ConfigType.LONG,
            7 * _DAY_MS,
            Between(-1),
            (
                Synonym("log.retention.ms"),
                Synonym("log.retention.minutes", _MINUTE_MS),
                Synonym("log.retention.hours", _HOUR_MS),
            ),
        ),
        "segment.bytes": Definition(
            ConfigType.INT, 1024 * _MIB, Between(_MIB), _like("log.segment.bytes")
        ),
        "segment.index.bytes": Definition(
            ConfigType.INT, 10 * _MIB, Between(4), _like("log.index.size.max.bytes")
        ),
        "segment.jitter.ms": Definition(
            ConfigType.LONG,
            0,
            _NOT_NEGATIVE,
            (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        ),
        "segment.ms": Definition(
            ConfigType.LONG,
            7 * _DAY_MS,
            _POSITIVE,
            (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
        "unclean.leader.election.enable": Definition(
            ConfigType.BOOLEAN, False, None, _like("unclean.leader.election.enable")
        ),
    }
)

GROUP_CONFIGS: Final[Mapping[str, Definition]] = MappingProxyType(
    {
        "consumer.assignment.interval.ms": Definition(ConfigType.INT, 1000, _NOT_NEGATIVE),
        "consumer.heartbeat.interval.ms": Definition(
            ConfigType.INT, 5000, _POSITIVE, _like("group.consumer.heartbeat.interval.ms")
        ),
        "consumer.session.timeout.ms": Definition(
            ConfigType.INT, 45_000, _POSITIVE, _like("group.consumer.session.timeout.ms")
        ),
        "share.assignment.interval.ms": Definition(ConfigType.INT, 1000, _NOT_NEGATIVE),
        "share.auto.offset.reset": Definition(
            ConfigType.STRING, "latest", check_share_offset_reset
        ),
        "share.delivery.count.limit": Definition(
            ConfigType.INT, 5, Between(2), _like("group.share.delivery.count.limit")
        ),
        "share.heartbeat.interval.ms": Definition(
            ConfigType.INT, 5000, _POSITIVE, _like("group.share.heartbeat.interval.ms")
        ),
        "share.isolation.level": Definition(
            ConfigType.STRING, "read_uncommitted", OneOf(("read_committed", "read_uncommitted"))
        ),
        "share.partition.max.record.locks": Definition(
            ConfigType.INT, 2000, Between(100), _like("group.share.partition.max.record.locks")
        ),
        "share.record.lock.duration.ms": Definition(
            ConfigType.INT, 30_000, Between(1000), _like("group.share.record.lock.duration.ms")
        ),
        "share.renew.acknowledge.enable": Definition(ConfigType.BOOLEAN, True),
        "share.session.timeout.ms": Definition(
            ConfigType.INT, 45_000, _POSITIVE, _like("group.share.session.timeout.ms")
        ),
        "streams.assignment.interval.ms": Definition(ConfigType.INT, 1000, _NOT_NEGATIVE),
        "streams.heartbeat.interval.ms": Definition(
            ConfigType.INT, 5000, _POSITIVE, _like("group.streams.heartbeat.interval.ms")
        ),
        "streams.initial.rebalance.delay.ms": Definition(
            ConfigType.INT, 3000, _NOT_NEGATIVE, _like("group.streams.initial.rebalance.delay.ms")
        ),
        "streams.num.standby.replicas": Definition(
            ConfigType.INT, 0, _NOT_NEGATIVE, _like("group.streams.num.standby.replicas")
        ),
        "streams.session.timeout.ms": Definition(
            ConfigType.INT, 45_000, _POSITIVE, _like("group.streams.session.timeout.ms")
        ),
    }
)

CLIENT_METRICS_CONFIGS: Final[Mapping[str, Definition]] = MappingProxyType(
    {
        "interval.ms": Definition(ConfigType.INT, 5 * _MINUTE_MS),
        "match": Definition(ConfigType.LIST, (), SetOfEntries()),
        "metrics": Definition(ConfigType.LIST, (), SetOfEntries()),
    }
)

#: The list-valued settings of brokers, with their default entries.
BROKER_LISTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "advertised.listeners": (),
        "config.providers": (),
        "controller.listener.names": (),
        "controller.quorum.bootstrap.servers": (),
        "controller.quorum.voters": (),
        "cordoned.log.dirs": (),
        "early.start.listeners": (),
        "group.consumer.assignors": ("uniform", "range"),
        "group.coordinator.rebalance.protocols": ("classic", "consumer", "streams"),
        "group.share.assignors": ("simple",),
        "kafka.metrics.reporters": (),
        "listeners": ("PLAINTEXT://:9092",),
        "log.cleanup.policy": ("delete",),
        "log.dir": ("/tmp/kafka-logs",),
        "log.dirs": (),
        "metric.reporters": ("org.apache.kafka.common.metrics.JmxReporter",),
        "process.roles": (),
        "sasl.enabled.mechanisms": ("GSSAPI",),
        "sasl.kerberos.principal.to.local.rules": ("DEFAULT",),
        "sasl.oauthbearer.expected.audience": (),
        "ssl.cipher.suites": (),
        "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    }
)

DEFINITIONS: Final[Mapping[int, Mapping[str, Definition]]] = MappingProxyType(
    {TOPIC: TOPIC_CONFIGS, GROUP: GROUP_CONFIGS, CLIENT_METRICS: CLIENT_METRICS_CONFIGS}
)

#: The broker settings that bound those of a group: lowest, highest, and their defaults.
GROUP_LIMITS: Final[Mapping[str, tuple[tuple[str, int] | None, tuple[str, int]]]] = (
    MappingProxyType(
        {
            f"{kind}.{name}": (
                (f"group.{kind}.min.{name}", lowest),
                (f"group.{kind}.max.{name}", highest),
            )
            for kind, name, lowest, highest in (
                ("consumer", "heartbeat.interval.ms", 5000, 15_000),
                ("consumer", "session.timeout.ms", 45_000, 60_000),
                ("consumer", "assignment.interval.ms", 0, 15_000),
                ("share", "heartbeat.interval.ms", 5000, 15_000),
                ("share", "session.timeout.ms", 45_000, 60_000),
                ("share", "record.lock.duration.ms", 15_000, 60_000),
                ("share", "delivery.count.limit", 2, 10),
                ("share", "partition.max.record.locks", 100, 4000),
                ("share", "assignment.interval.ms", 0, 15_000),
                ("streams", "heartbeat.interval.ms", 5000, 15_000),
                ("streams", "session.timeout.ms", 45_000, 60_000),
                ("streams", "assignment.interval.ms", 0, 15_000),
            )
        }
        | {"streams.num.standby.replicas": (None, ("group.streams.max.standby.replicas", 2))}
    )
)

#: Defaults of groups only where the node sets them, in DescribeConfigs. Validation compares only a
#: group's own values, because Kafka leaves them out of ``extractGroupConfigMap``.
_ASSIGNMENT_INTERVALS: Final = tuple(
    name for name in GROUP_CONFIGS if name.endswith(".assignment.interval.ms")
)

#: The broker settings that `ConfigRules` reads, although no broker runs here.
USED_BROKER_SETTINGS: Final = frozenset(
    {
        REMOTE_STORAGE_SYSTEM,
        *(f"group.{name}" for name in _ASSIGNMENT_INTERVALS),
        *(
            synonym.name
            for definitions in (TOPIC_CONFIGS, GROUP_CONFIGS)
            for definition in definitions.values()
            for synonym in definition.synonyms
        ),
        *(limit[0] for limits in GROUP_LIMITS.values() for limit in limits if limit is not None),
    }
)


def is_supported_config(resource_type: int, name: str) -> bool:
    """Return whether Kafka has such a configuration; records of all others are ignored.

    For a broker every name counts (``DefaultSupportedConfigChecker``).
    """
    if resource_type == BROKER:
        return True
    return name in DEFINITIONS.get(resource_type, ())


def default_entries(resource_type: int, name: str) -> tuple[str, ...] | None:
    """Return the default entries of a list; None for a configuration that cannot be appended to.

    Only lists of topics and brokers can (``KafkaConfigSchema.isSplittable`` of the controller).
    """
    if resource_type == BROKER:
        return BROKER_LISTS.get(name)
    definition = TOPIC_CONFIGS.get(name) if resource_type == TOPIC else None
    if definition is None or definition.kind is not ConfigType.LIST:
        return None
    entries: tuple[str, ...] = definition.default
    return entries


class ConfigRules:
    """Defaults and limits from the controller's own settings.

    ``topic_defaults`` and ``group_defaults`` are values by name, ``group_limits`` the lowest (or
    None) and highest values. ``static`` are the properties as text; raises InvalidConfigError if
    one that is needed here cannot be parsed.
    """

    __slots__ = (
        "group_defaults",
        "group_limits",
        "is_remote_storage_enabled",
        "static",
        "topic_defaults",
    )

    def __init__(self, static: Mapping[str, str] = MappingProxyType({})) -> None:
        self.static: Mapping[str, str] = MappingProxyType(dict(static))
        self.topic_defaults = self._defaults(TOPIC_CONFIGS)
        self.topic_defaults["retention.ms"] = max(self.topic_defaults["retention.ms"], -1)
        self.group_defaults = self._defaults(GROUP_CONFIGS) | {
            name: self._setting(f"group.{name}", GROUP_CONFIGS[name].kind, None)
            for name in _ASSIGNMENT_INTERVALS
            if f"group.{name}" in self.static
        }
        self.group_limits: dict[str, tuple[int | None, int]] = {
            name: (
                None if lowest is None else self._setting(lowest[0], ConfigType.INT, lowest[1]),
                self._setting(highest[0], ConfigType.INT, highest[1]),
            )
            for name, (lowest, highest) in GROUP_LIMITS.items()
        }
        self.is_remote_storage_enabled: bool = self._setting(
            REMOTE_STORAGE_SYSTEM, ConfigType.BOOLEAN, False
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigRules) and self.static == other.static

    def __hash__(self) -> int:
        return hash(frozenset(self.static.items()))

    def _defaults(self, definitions: Mapping[str, Definition]) -> dict[str, Any]:
        return {
            name: next(
                (
                    self._setting(synonym.name, definition.kind, None, synonym.factor)
                    for synonym in definition.synonyms
                    if synonym.name in self.static
                ),
                definition.default,
            )
            for name, definition in definitions.items()
        }

    def _setting(self, name: str, kind: ConfigType, default: Any, factor: int = 1) -> Any:
        text = self.static.get(name)
        if text is None:
            return default
        try:
            value = read(kind, text)
        except ConfigValueError as refused:
            raise InvalidConfigError(refused.message(name, text)) from None
        return value if factor == 1 else value * factor


DEFAULT_RULES = ConfigRules()
