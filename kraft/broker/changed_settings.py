"""Apply dynamic settings of this broker while it runs, beside those that are defaults of topics.

`ChangedSettings` is a publisher: it follows the settings of all brokers, those of this one, and the
throttled replicas of topics. An invalid value is logged, and the setting keeps its previous one.
Settings that are dynamic in Kafka and have no effect here are named once, at the start or when they
are set.

    cordoned.log.dirs                              heartbeats, DescribeLogDirs, AlterReplicaLogDirs
    leader.replication.throttled.rate, follower.…  the quotas of the replication
    replica.alter.log.dirs.io.max.bytes.per.second the quota of moves between log directories
    log.cleaner.backoff.ms, log.cleaner.dedupe.buffer.size, producer.id.expiration.ms

``topic_settings`` applies the defaults of topics, ``kraft.server.dynamic_config`` the limits of
connections. Used by ``node``. Sources: Kafka's ``BrokerConfigHandler``, ``TopicConfigHandler``,
``DynamicLogConfig``, ``LogCleaner.reconfigure`` (4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kraft.broker.config import BROKER_SETTINGS, BrokerSettings
from kraft.broker.replication.quotas import ReplicationQuotas, throttled_partitions
from kraft.configdef import ConfigType
from kraft.errors import InvalidConfigError
from kraft.image.configs import BROKER, TOPIC
from kraft.image.publishing import Image, ImageDelta
from kraft.records.versions import METADATA_VERSION, MetadataVersion
from kraft.server.config.loading import ServerConfig
from kraft.server.config.values import Setting, read_setting

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
#: The rates, for `ReplicationQuotas` in its order.
_RATES = tuple(
    Setting(name, ConfigType.LONG, None, lowest=0)
    for name in (LEADER_RATE, FOLLOWER_RATE, MOVES_RATE)
)
#: The settings of `BrokerSettings` that a running broker changes. A cleaner needs more than 1 MiB.
APPLIED: Mapping[str, Setting] = {
    name: BROKER_SETTINGS[name]._replace(lowest=lowest)
    for name, lowest in (
        ("cordoned.log.dirs", None),
        ("log.cleaner.backoff.ms", 0),
        ("log.cleaner.dedupe.buffer.size", (1 << 20) + 1),
        ("producer.id.expiration.ms", 1),
    )
}
#: Those that are applied elsewhere, beside the defaults of topics.
_ELSEWHERE = frozenset(
    (
        LEADER_RATE,
        FOLLOWER_RATE,
        MOVES_RATE,
        "max.connections",
        "max.connection.creation.rate",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    )
)
#: Defaults of topics that have no effect on a log of this broker.
_UNUSED_DEFAULTS = frozenset(
    ("log.preallocate", "log.local.retention.bytes", "log.local.retention.ms")
)

logger = logging.getLogger(__name__)


def has_effect(name: str) -> bool:
    """Return whether a change of a dynamic setting has an effect on a running broker.

    A setting that Kafka does not know is one of a plugin: it counts as having one.
    """
    # Imported here: only nodes with dynamic settings need the table of all settings.
    from kraft.controller.config_schema import TOPIC_CONFIGS
    from kraft.controller.configs.node_settings import NODE_SETTINGS

    if name.startswith("listener.name."):
        return name.split(".", 3)[-1] in ("max.connections", "max.connection.creation.rate")
    if name in APPLIED or name in _ELSEWHERE or name not in NODE_SETTINGS:
        return True
    is_default = any(
        synonym.name == name
        for definition in TOPIC_CONFIGS.values()
        for synonym in definition.synonyms
    )
    return is_default and name not in _UNUSED_DEFAULTS


def _value(rule: Setting, dynamic: Mapping[str, str], previous: Any) -> Any:
    """Return the value of a setting, None if it is not set; the previous one if it is invalid."""
    text = dynamic.get(rule.name)
    if text is None:
        return None
    try:
        return read_setting(rule, text, "the dynamic settings")
    except InvalidConfigError as error:
        logger.error("a change of a dynamic setting has no effect: %s", error)
        return previous


class ChangedSettings:
    """The dynamic settings of a running broker; ``apply`` gets its settings when they change, and
    when `knows_cordoned` does.

    ``settings`` are those of its properties file.
    """

    name = "ChangedSettings"

    def __init__(
        self,
        config: ServerConfig,
        settings: BrokerSettings,
        quotas: ReplicationQuotas,
        apply: Callable[[BrokerSettings], None],
    ) -> None:
        self._config = config
        self._static = settings
        self._quotas = quotas
        self._apply = apply
        self._reported: set[str] = set()
        #: The settings that apply now.
        self.settings = settings
        #: Whether the metadata.version lets the controller know cordoned directories (KIP-1066).
        self.knows_cordoned = False

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Apply the settings of a published image that concern this broker."""
        changed: Iterable[Any] = delta.changes.get("config", ())
        resources = {key[0] for key in changed}
        configs = image.state.configs
        if delta.is_full:
            for quota in (self._quotas.leader, self._quotas.follower):
                quota.clear_topics()
            resources = set(configs)
        for kind, topic in resources:
            if kind == TOPIC:
                self._throttle(topic, configs.topic(topic))
        level = image.state.features.get(METADATA_VERSION)
        knew, self.knows_cordoned = (
            self.knows_cordoned,
            level is not None and MetadataVersion(level).is_cordoned_log_dirs_supported,
        )
        if knew is not self.knows_cordoned:
            self._apply(self.settings)
        id = self._config.node_id
        if delta.is_full or resources & {(BROKER, ""), (BROKER, str(id))}:
            self._change(configs.cluster_default(), configs.broker(id))

    def _throttle(self, topic: str, configs: Mapping[str, str]) -> None:
        id = self._config.node_id
        for name, quota in zip(
            _THROTTLED, (self._quotas.leader, self._quotas.follower), strict=True
        ):
            quota.throttle(topic, throttled_partitions(configs.get(name, ""), id))

    def _change(self, for_all: Mapping[str, str], for_node: Mapping[str, str]) -> None:
        dynamic = {**for_all, **for_node}
        quotas = self._quotas
        for rule, quota in zip(_RATES, (quotas.leader, quotas.follower, quotas.moves), strict=True):
            quota.limit = _value(rule, dynamic, quota.limit)
        self._report(name for name in dynamic if not has_effect(name))
        changed: dict[str, Any] = {}
        for name, rule in APPLIED.items():
            if name in dynamic:
                field = name.replace(".", "_")
                changed[field] = _value(rule, dynamic, getattr(self.settings, field))
        settings = replace(self._static, **changed)
        if settings != self.settings:
            self.settings = settings
            logger.info("dynamic settings changed: %s", ", ".join(sorted(changed)) or "none is set")
            self._apply(settings)

    def _report(self, names: Iterable[str]) -> None:
        new = sorted(set(names) - self._reported)
        if new:
            self._reported.update(new)
            logger.warning(
                "these dynamic settings of Kafka have no effect here: %s", ", ".join(new)
            )
