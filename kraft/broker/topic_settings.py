"""Effective settings of topics: a topic's own configs over the defaults of this broker.

The defaults come from the properties file, the dynamic settings of all brokers and those of this
one. `EffectiveTopicSettings` is a publisher; it is registered before the replica manager, so that
the logs of a new topic begin with its settings. Names, defaults and synonyms are those of
``kraft.controller``. Rules: Kafka's ``LogConfig``, ``DynamicLogConfig``, ``TopicConfigHandler``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, cast

from kraft._core.table.images import TableImage
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.settings import LogSettings
from kraft.broker.produce_validation import ProduceRules
from kraft.configdef import text_of
from kraft.controller.config_schema import ConfigRules
from kraft.controller.configs.config_description import NodeConfigs
from kraft.errors import InvalidConfigError
from kraft.image.configs import BROKER, TOPIC
from kraft.image.publishing import Image, ImageDelta

_log = logging.getLogger(__name__)


class NodeProperties(Protocol):
    """The properties file of a node; ``kraft.server.config`` reads it."""

    @property
    def node_id(self) -> int: ...

    @property
    def given(self) -> Mapping[str, str]: ...


class SettingsOfTopic(NamedTuple):
    """The effective settings of one topic, as the parts of a broker need them."""

    log: LogSettings
    produce: ProduceRules
    min_insync_replicas: int


class EffectiveTopicSettings:
    """The settings of topics by name; topics without own configs share one object.

    Raises `InvalidConfigError` for an invalid property. Before the first metadata every topic has
    the properties' defaults.
    """

    name = "TopicSettings"

    def __init__(self, config: NodeProperties) -> None:
        self._node_id = config.node_id
        self._static = dict(config.given)
        #: Dynamic settings of all brokers (``""``) and of this one, by resource.
        self._broker: dict[str, dict[str, str]] = {"": {}, str(self._node_id): {}}
        self._own: dict[str, dict[str, str]] = {}
        self._of: dict[str, SettingsOfTopic] = {}
        self._logs: LogManager | None = None
        self._defaults = self._default_texts()
        self._default = _settings_of(self._defaults)

    def attach(self, logs: LogManager) -> None:
        """Give these logs the settings of their topics whenever they change."""
        self._logs = logs

    def of(self, topic: str) -> SettingsOfTopic:
        """Return the settings of a topic."""
        if topic not in self._own:
            return self._default
        found = self._of.get(topic)
        if found is None:
            found = self._of[topic] = self._settings(topic)
        return found

    def log_settings(self, topic: str) -> LogSettings:
        return self.of(topic).log

    def min_insync_replicas(self, topic: str) -> int:
        return self.of(topic).min_insync_replicas

    def is_deleting(self, topic: str) -> bool:
        return self.of(topic).log.deletes

    def _settings(self, topic: str) -> SettingsOfTopic:
        try:
            return _settings_of(self._defaults | self._own[topic])
        except InvalidConfigError as error:
            _log.error("topic %s has the broker's default settings: %s", topic, error)
            return self._default

    def _default_texts(self) -> dict[str, str]:
        """Return the text of every topic config that has a default."""
        for_all, for_node = self._broker[""], self._broker[str(self._node_id)]
        effective = NodeConfigs(self._node_id, self._static, for_all, for_node).effective
        defaults = ConfigRules(effective).topic_defaults
        texts = {name: text_of(value) for name, value in defaults.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Apply changed configs of topics, of all brokers and of this one."""
        changed = delta.changes.get("config", {})
        if delta.is_full:
            self._own.clear()
            self._of.clear()
            for configs in self._broker.values():
                configs.clear()
        elif not changed:
            return
        topics: dict[str, None] = {}
        is_broker_changed = delta.is_full
        for key, (_, value) in changed.items():
            (kind, resource), setting = cast(tuple[tuple[int, str], str], key)
            if kind == TOPIC:
                topics[resource] = None
                _change(self._own.setdefault(resource, {}), setting, value)
            elif kind == BROKER and resource in self._broker:
                is_broker_changed = True
                _change(self._broker[resource], setting, value)
        for topic in topics:
            self._of.pop(topic, None)
            if not self._own[topic]:
                del self._own[topic]
        if is_broker_changed and self._change_defaults():
            self._change_all_logs()
        elif delta.is_full:
            self._change_logs(self._own, image.table)
        else:
            self._change_logs(topics, image.table)

    def _change_defaults(self) -> bool:
        """Compute the defaults again; return whether they are others."""
        try:
            defaults = self._default_texts()
            default = _settings_of(defaults)
        except InvalidConfigError as error:
            _log.error("a change of dynamic settings has no effect: %s", error)
            return False
        if defaults == self._defaults:
            return False
        self._defaults, self._default = defaults, default
        self._of.clear()
        return True

    def _change_all_logs(self) -> None:
        for log in () if self._logs is None else self._logs.with_future_logs():
            settings = self.log_settings(log.topic)
            if log.settings is not settings:
                log.change_settings(settings)

    def _change_logs(self, topics: Iterable[str], table: TableImage) -> None:
        if self._logs is None:
            return
        for topic in topics:
            number = table.topic_number(topic)
            settings = self.log_settings(topic)
            for partition in range(0 if number < 0 else len(table.topic_rows(number))):
                for log in (
                    self._logs.get(topic, partition),
                    self._logs.future(topic, partition),
                ):
                    if log is not None and log.settings != settings:
                        log.change_settings(settings)


def _change(configs: dict[str, str], setting: str, value: str | None) -> None:
    if value is None:
        configs.pop(setting, None)
    else:
        configs[setting] = value


def _settings_of(configs: Mapping[str, str]) -> SettingsOfTopic:
    """Return the settings of effective configs. Raises `InvalidConfigError`."""
    # A test's setting of Kafka, in place of the other (``LogConfig.segmentSize``).
    size = configs.get("internal.segment.bytes")
    if size is not None:
        configs = {**configs, "segment.bytes": size}
    try:
        least = int(configs["min.insync.replicas"])
    except ValueError as error:
        raise InvalidConfigError(
            f"min.insync.replicas is {configs['min.insync.replicas']!r}, not a number"
        ) from error
    return SettingsOfTopic(
        LogSettings.from_configs(configs), ProduceRules.from_configs(configs), least
    )
