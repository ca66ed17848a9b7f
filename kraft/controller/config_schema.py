"""Which configurations can be changed at run time: names, kinds, defaults, ranges, synonyms.

Owns the tables of topic, group and client metrics configurations, the list-valued ones of brokers,
and `ConfigRules`: what the controller's own properties file makes of the defaults and limits. The
tables are held against Kafka's definitions by ``tests/interop/test_config_schema.py``. Which values
a resource may have together is the matter of ``config_validation``. Sources: Kafka's ``LogConfig``,
``GroupConfig``, ``ClientMetricsConfigs``, ``ServerTopicConfigSynonyms``, ``KafkaConfigSchema``,
``KafkaConfig.extractLogConfigMap``, ``DefaultSupportedConfigChecker`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kraft.configdef import (
    Between,
    Check,
    Kind,
    OneOf,
    RefusedError,
    SetOfEntries,
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
    """A broker's setting that gives a topic's default, times ``factor``."""

    name: str
    factor: int = 1


class Definition(NamedTuple):
    """One configuration; of its ``synonyms`` the first that a broker sets gives the default."""

    kind: Kind
    default: Any
    check: Check | None = None
    synonyms: tuple[Synonym, ...] = ()

    def read(self, text: str) -> Any:
        """The value that ``text`` says. Raises RefusedError."""
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
            Kind.LIST,
            ("delete",),
            SetOfEntries(("compact", "delete")),
            _like("log.cleanup.policy"),
        ),
        "compression.gzip.level": Definition(
            Kind.INT, -1, Between(1, 9, also=-1), _like("compression.gzip.level")
        ),
        "compression.lz4.level": Definition(
            Kind.INT, 9, Between(1, 17), _like("compression.lz4.level")
        ),
        "compression.type": Definition(
            Kind.STRING,
            "producer",
            OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
            _like("compression.type"),
        ),
        "compression.zstd.level": Definition(
            Kind.INT, 3, Between(-131072, 22), _like("compression.zstd.level")
        ),
        "delete.retention.ms": Definition(
            Kind.LONG, _DAY_MS, _NOT_NEGATIVE, _like("log.cleaner.delete.retention.ms")
        ),
        "file.delete.delay.ms": Definition(
            Kind.LONG, _MINUTE_MS, _NOT_NEGATIVE, _like("log.segment.delete.delay.ms")
        ),
        "flush.messages": Definition(
            Kind.LONG, _LONGEST, _POSITIVE, _like("log.flush.interval.messages")
        ),
        "flush.ms": Definition(
            Kind.LONG,
            _LONGEST,
            _NOT_NEGATIVE,
            _like("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        ),
        "follower.replication.throttled.replicas": Definition(
            Kind.LIST, (), check_throttled_replicas
        ),
        "index.interval.bytes": Definition(
            Kind.INT, 4096, _NOT_NEGATIVE, _like("log.index.interval.bytes")
        ),
        "internal.segment.bytes": Definition(Kind.INT, None),
        "leader.replication.throttled.replicas": Definition(
            Kind.LIST, (), check_throttled_replicas
        ),
        "local.retention.bytes": Definition(
            Kind.LONG, -2, Between(-2), _like("log.local.retention.bytes")
        ),
        "local.retention.ms": Definition(
            Kind.LONG, -2, Between(-2), _like("log.local.retention.ms")
        ),
        "max.compaction.lag.ms": Definition(
            Kind.LONG, _LONGEST, _POSITIVE, _like("log.cleaner.max.compaction.lag.ms")
        ),
        "max.message.bytes": Definition(
            Kind.INT, _MIB + 12, _NOT_NEGATIVE, _like("message.max.bytes")
        ),
        "message.timestamp.after.max.ms": Definition(
            Kind.LONG, _HOUR_MS, _NOT_NEGATIVE, _like("log.message.timestamp.after.max.ms")
        ),
        "message.timestamp.before.max.ms": Definition(
            Kind.LONG, _LONGEST, _NOT_NEGATIVE, _like("log.message.timestamp.before.max.ms")
        ),
        "message.timestamp.type": Definition(
            Kind.STRING,
            "CreateTime",
            OneOf(("CreateTime", "LogAppendTime")),
            _like("log.message.timestamp.type"),
        ),
        "min.cleanable.dirty.ratio": Definition(
            Kind.DOUBLE, 0.5, Between(0, 1), _like("log.cleaner.min.cleanable.ratio")
        ),
        "min.compaction.lag.ms": Definition(
            Kind.LONG, 0, _NOT_NEGATIVE, _like("log.cleaner.min.compaction.lag.ms")
        ),
        "min.insync.replicas": Definition(Kind.INT, 1, _POSITIVE, _like("min.insync.replicas")),
        "preallocate": Definition(Kind.BOOLEAN, False, None, _like("log.preallocate")),
        "remote.log.copy.disable": Definition(Kind.BOOLEAN, False),
        "remote.log.delete.on.disable": Definition(Kind.BOOLEAN, False),
        "remote.storage.enable": Definition(Kind.BOOLEAN, False),
        "retention.bytes": Definition(Kind.LONG, -1, None, _like("log.retention.bytes")),
        "retention.ms": Definition(
            Kind.LONG,
            7 * _DAY_MS,
            Between(-1),
            (
                Synonym("log.retention.ms"),
                Synonym("log.retention.minutes", _MINUTE_MS),
                Synonym("log.retention.hours", _HOUR_MS),
            ),
        ),
        "segment.bytes": Definition(
            Kind.INT, 1024 * _MIB, Between(_MIB), _like("log.segment.bytes")
        ),
        "segment.index.bytes": Definition(
            Kind.INT, 10 * _MIB, Between(4), _like("log.index.size.max.bytes")
        ),
        "segment.jitter.ms": Definition(
            Kind.LONG,
            0,
            _NOT_NEGATIVE,
            (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        ),
        "segment.ms": Definition(
            Kind.LONG,
            7 * _DAY_MS,
            _POSITIVE,
            (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
        "unclean.leader.election.enable": Definition(
            Kind.BOOLEAN, False, None, _like("unclean.leader.election.enable")
        ),
    }
)

GROUP_CONFIGS: Final[Mapping[str, Definition]] = MappingProxyType(
    {
        "consumer.assignment.interval.ms": Definition(Kind.INT, 1000, _NOT_NEGATIVE),
        "consumer.heartbeat.interval.ms": Definition(
            Kind.INT, 5000, _POSITIVE, _like("group.consumer.heartbeat.interval.ms")
        ),
        "consumer.session.timeout.ms": Definition(
            Kind.INT, 45_000, _POSITIVE, _like("group.consumer.session.timeout.ms")
        ),
        "share.assignment.interval.ms": Definition(Kind.INT, 1000, _NOT_NEGATIVE),
        "share.auto.offset.reset": Definition(Kind.STRING, "latest", check_share_offset_reset),
        "share.delivery.count.limit": Definition(
            Kind.INT, 5, Between(2), _like("group.share.delivery.count.limit")
        ),
        "share.heartbeat.interval.ms": Definition(
            Kind.INT, 5000, _POSITIVE, _like("group.share.heartbeat.interval.ms")
        ),
        "share.isolation.level": Definition(
            Kind.STRING, "read_uncommitted", OneOf(("read_committed", "read_uncommitted"))
        ),
        "share.partition.max.record.locks": Definition(
            Kind.INT, 2000, Between(100), _like("group.share.partition.max.record.locks")
        ),
        "share.record.lock.duration.ms": Definition(
            Kind.INT, 30_000, Between(1000), _like("group.share.record.lock.duration.ms")
        ),
        "share.renew.acknowledge.enable": Definition(Kind.BOOLEAN, True),
        "share.session.timeout.ms": Definition(
            Kind.INT, 45_000, _POSITIVE, _like("group.share.session.timeout.ms")
        ),
        "streams.assignment.interval.ms": Definition(Kind.INT, 1000, _NOT_NEGATIVE),
        "streams.heartbeat.interval.ms": Definition(
            Kind.INT, 5000, _POSITIVE, _like("group.streams.heartbeat.interval.ms")
        ),
        "streams.initial.rebalance.delay.ms": Definition(
            Kind.INT, 3000, _NOT_NEGATIVE, _like("group.streams.initial.rebalance.delay.ms")
        ),
        "streams.num.standby.replicas": Definition(
            Kind.INT, 0, _NOT_NEGATIVE, _like("group.streams.num.standby.replicas")
        ),
        "streams.session.timeout.ms": Definition(
            Kind.INT, 45_000, _POSITIVE, _like("group.streams.session.timeout.ms")
        ),
    }
)

CLIENT_METRICS_CONFIGS: Final[Mapping[str, Definition]] = MappingProxyType(
    {
        "interval.ms": Definition(Kind.INT, 5 * _MINUTE_MS),
        "match": Definition(Kind.LIST, (), SetOfEntries()),
        "metrics": Definition(Kind.LIST, (), SetOfEntries()),
    }
)

#: The list-valued settings of brokers, with the entries that they have by default.
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

#: The broker's settings that bound those of a group: the lowest, the highest, and their defaults.
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


#: The broker's settings that `ConfigRules` reads: they are heeded although no broker runs here.
HEEDED_SETTINGS: Final = frozenset(
    {
        REMOTE_STORAGE_SYSTEM,
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
    """Whether Kafka knows such a configuration; a record of any other is passed over.

    Of a broker every name is taken (``DefaultSupportedConfigChecker``).
    """
    if resource_type == BROKER:
        return True
    return name in DEFINITIONS.get(resource_type, ())


def default_entries(resource_type: int, name: str) -> tuple[str, ...] | None:
    """The entries that a list has by default; None where it is no list that can be added to.

    Only lists of topics and brokers are (``KafkaConfigSchema.isSplittable`` of the controller).
    """
    if resource_type == BROKER:
        return BROKER_LISTS.get(name)
    definition = TOPIC_CONFIGS.get(name) if resource_type == TOPIC else None
    if definition is None or definition.kind is not Kind.LIST:
        return None
    entries: tuple[str, ...] = definition.default
    return entries


class ConfigRules:
    """What the controller's own settings make of defaults and limits.

    ``topic_defaults`` and ``group_defaults`` are values by name, ``group_limits`` the lowest (None
    without one) and the highest. ``static`` are the properties as they are written; raises
    InvalidConfigError where one of those that matter here cannot be read.
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
        self.group_defaults = self._defaults(GROUP_CONFIGS)
        self.group_limits: dict[str, tuple[int | None, int]] = {
            name: (
                None if lowest is None else self._setting(lowest[0], Kind.INT, lowest[1]),
                self._setting(highest[0], Kind.INT, highest[1]),
            )
            for name, (lowest, highest) in GROUP_LIMITS.items()
        }
        self.is_remote_storage_enabled: bool = self._setting(
            REMOTE_STORAGE_SYSTEM, Kind.BOOLEAN, False
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

    def _setting(self, name: str, kind: Kind, default: Any, factor: int = 1) -> Any:
        text = self.static.get(name)
        if text is None:
            return default
        try:
            value = read(kind, text)
        except RefusedError as refused:
            raise InvalidConfigError(f"{name} is {text!r:.80}, allowed is {refused}") from None
        return value if factor == 1 else value * factor


DEFAULT_RULES = ConfigRules()
