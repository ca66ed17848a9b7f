"""Descriptions of configurations: values with their sources, as DescribeConfigs returns them.

`NodeConfigs` combines the node's properties file with the dynamic settings of all brokers and of
this node, and describes the node, topics and groups by it. Dynamic settings that a node ignores
(fixed ones, and values of a wrong type) are left out, as in Kafka. Only the first DescribeConfigs
imports this module. Sources: Kafka's ``ConfigHelper``, ``DynamicBrokerConfig`` (4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from kraft.configdef import ConfigType, ConfigValueError, read, text_of
from kraft.controller.config_schema import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigRules,
    Definition,
)
from kraft.controller.configs.config_sources import (
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    GROUP_CONFIG,
    INTERNAL_TOPIC_CONFIGS,
    STATIC_BROKER_CONFIG,
)
from kraft.controller.configs.node_settings import FIXED, NODE_SETTINGS, NodeSetting, UpdateMode
from kraft.errors import InvalidConfigError

_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
} | {
    name: group
    for group in (
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    for name in group
}
_OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
#: Settings of a listener whose names contain a SASL mechanism.
_OF_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
#: Settings that may have the prefix of a listener in the default of all brokers.
_OF_ALL_LISTENERS = ("max.connections", "max.connection.creation.rate", "num.network.threads")


class SourcedValue(NamedTuple):
    """A value with the setting and the source that it comes from."""

    name: str
    value: str | None
    source: int


class ConfigDescription(NamedTuple):
    """The description of one configuration; ``kind`` is None if it is unknown.

    ``synonyms`` are all sources that set it, the effective one first. A sensitive configuration has
    no value.
    """

    name: str
    value: str | None
    kind: ConfigType | None
    synonyms: tuple[SourcedValue, ...]
    is_read_only: bool = False

    @property
    def source(self) -> int:
        return self.synonyms[0].source if self.synonyms else DEFAULT_CONFIG

    @property
    def is_sensitive(self) -> bool:
        return _is_sensitive(self.kind)


def describe_client_metrics(configs: Mapping[str, str]) -> list[ConfigDescription]:
    """Describe a client metrics subscription. Raises InvalidConfigError for an invalid value."""
    described = []
    for name, definition in CLIENT_METRICS_CONFIGS.items():
        value, synonyms = text_of(definition.default), list[SourcedValue]()
        if name in configs:
            value = _stored(name, definition, configs[name])
            synonyms.append(SourcedValue(name, value, CLIENT_METRICS_CONFIG))
        described.append(ConfigDescription(name, value, definition.kind, tuple(synonyms)))
    return described


class NodeConfigs:
    """The settings of node ``node_id``: of its properties file and the dynamic ones.

    ``for_all`` are the dynamic settings of all brokers, ``for_node`` those of this node.
    """

    def __init__(
        self,
        node_id: int,
        static: Mapping[str, str],
        for_all: Mapping[str, str],
        for_node: Mapping[str, str],
    ) -> None:
        # Kafka sets whichever of the two ids is missing.
        self._static = {"broker.id": str(node_id), "node.id": str(node_id)} | dict(static)
        self._for_all = dict(_applicable(for_all, is_for_all=True))
        self._for_node = dict(_applicable(for_node, is_for_all=False))
        self._effective = dict(self._static)
        for dynamic in (self._for_all, self._for_node):
            for name, value in dynamic.items():
                # Otherwise log.roll.ms of the file would hide a dynamic log.roll.hours.
                for synonym in _SYNONYMS.get(name, (name,)):
                    self._effective.pop(synonym, None)
                self._effective[name] = value

    @cached_property
    def _rules(self) -> ConfigRules:
        return ConfigRules(self._effective)

    @cached_property
    def node(self) -> list[ConfigDescription]:
        """The descriptions of all settings of this node; the first access takes some ms."""
        shown = [name for name, one in NODE_SETTINGS.items() if _is_shown(one)]
        given = [name for name in self._effective if name not in set(shown)]
        return [
            ConfigDescription(
                name,
                self._value(name, kind),
                kind,
                tuple(self._sources(name, _is_sensitive(kind))),
                _is_read_only(name),
            )
            for name in (*shown, *given)
            for kind in (_kind_of(name),)
        ]

    def describe_default(self) -> list[ConfigDescription]:
        """Describe the dynamic settings of all brokers."""
        described = []
        for name, value in self._for_all.items():
            kind = _kind_of(name)
            sources = self._sources(name, _is_sensitive(kind))
            synonyms = tuple(one for one in sources if one.source == DYNAMIC_DEFAULT_BROKER_CONFIG)
            shown = None if _is_sensitive(kind) else value
            described.append(ConfigDescription(name, shown, kind, synonyms, _is_read_only(name)))
        return described

    def describe_topic(self, configs: Mapping[str, str]) -> list[ConfigDescription]:
        """Describe a topic. Raises InvalidConfigError for an invalid value."""
        described = self._topic_defaults
        if configs:
            described = [
                _set_by(one, TOPIC_CONFIGS[one.name], configs[one.name], DYNAMIC_TOPIC_CONFIG)
                if one.name in configs
                else one
                for one in described
            ]
        return [
            one
            for one in described
            if one.name not in INTERNAL_TOPIC_CONFIGS or one.name in configs
        ]

    def describe_group(self, configs: Mapping[str, str]) -> list[ConfigDescription]:
        """Describe a group. Raises InvalidConfigError for an invalid value."""
        return [
            _set_by(one, GROUP_CONFIGS[one.name], configs[one.name], GROUP_CONFIG)
            if one.name in configs
            else one
            for one in self._group_defaults
        ]

    @cached_property
    def _topic_defaults(self) -> list[ConfigDescription]:
        values = self._rules.topic_defaults
        return [
            ConfigDescription(
                name,
                text_of(values[name]),
                definition.kind,
                tuple(self._sources(definition.synonyms[0].name)) if definition.synonyms else (),
            )
            for name, definition in TOPIC_CONFIGS.items()
        ]

    @property
    def effective(self) -> Mapping[str, str]:
        """The texts of all settings that are set, by name: the strongest source of each."""
        return self._effective

    @cached_property
    def _group_defaults(self) -> list[ConfigDescription]:
        values = self._rules.group_defaults
        described = []
        for name, definition in GROUP_CONFIGS.items():
            synonym, value = f"group.{name}", text_of(values[name])
            if synonym in NODE_SETTINGS:
                synonyms = tuple(self._sources(synonym))
            else:
                synonyms = (SourcedValue(name, text_of(definition.default), DEFAULT_CONFIG),)
            described.append(ConfigDescription(name, value, definition.kind, synonyms))
        return described

    def value_of(self, name: str) -> str | None:
        """Return the text of a setting that applies, its default where no source sets it."""
        return self._value(name, _kind_of(name))

    def _value(self, name: str, kind: ConfigType | None) -> str | None:
        if _is_sensitive(kind):
            return None
        setting, text = NODE_SETTINGS.get(name), self._effective.get(name)
        if setting is None or not _is_shown(setting):
            return text
        if text is None:
            return setting.default
        try:
            value = read(setting.kind, text)
        except ConfigValueError:
            # The node starts with any value of a setting that only Kafka uses.
            return text
        return text_of(tuple(dict.fromkeys(value)) if setting.is_set else value)

    def _sources(self, name: str, is_sensitive: bool = False) -> Iterator[SourcedValue]:
        """Yield the sources of a setting, the strongest first, from the first of its own name on.

        Source: ``ConfigHelper.configSynonyms``.
        """
        is_own = False
        for values, source in (
            (self._for_node, DYNAMIC_BROKER_CONFIG),
            (self._for_all, DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, STATIC_BROKER_CONFIG),
            (None, DEFAULT_CONFIG),
        ):
            for synonym in synonyms_of(name):
                value = _default_of(synonym) if values is None else values.get(synonym)
                is_own = is_own or (synonym == name and value is not None)
                if is_own and value is not None:
                    yield SourcedValue(synonym, None if is_sensitive else value, source)


def _set_by(
    described: ConfigDescription, definition: Definition, text: str, source: int
) -> ConfigDescription:
    """Return the description with a value of the resource itself in front."""
    value = _stored(described.name, definition, text)
    own = SourcedValue(described.name, value, source)
    return described._replace(value=value, synonyms=(own, *described.synonyms))


def _stored(name: str, definition: Definition, text: str) -> str | None:
    try:
        return text_of(definition.read(text))
    except ConfigValueError as error:
        raise InvalidConfigError(error.message(name, text)) from None


def _applicable(configs: Mapping[str, str], *, is_for_all: bool) -> Iterable[tuple[str, str]]:
    """Yield the dynamic settings that a node applies (``fromPersistentProps``)."""
    return (
        (name, value)
        for name, value in configs.items()
        if dynamic_refusal(name, value, is_for_all=is_for_all) is None
    )


def dynamic_refusal(name: str, text: str, *, is_for_all: bool) -> str | None:
    """Return why a node does not apply a dynamic setting; None if it does.

    ``is_for_all``: the setting is one of all brokers. An unknown setting is applied: it may be one
    of a plugin.
    """
    of_listener = _OF_LISTENER.fullmatch(name)
    own = NODE_SETTINGS.get(name)
    if own is not None and own.mode in FIXED:
        return f"Cannot update these configs dynamically: {name}"
    if own is not None and own.mode is UpdateMode.PER_LISTENER:
        return (
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: {name}"
        )
    is_per_broker = (own is not None and own.mode is UpdateMode.PER_BROKER) or (
        of_listener is not None and of_listener[1] not in _OF_ALL_LISTENERS
    )
    if is_for_all and is_per_broker:
        return (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{name}"
        )
    setting = NODE_SETTINGS.get(of_listener[1]) if of_listener else own
    if setting is None or setting.mode in FIXED:
        # Kafka reads no value of a fixed setting that has the prefix of a listener.
        return None
    try:
        read(setting.kind, text)
    except ConfigValueError as error:
        return error.message(name, text)
    return None


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the settings that set ``name``, the strongest first."""
    if found := _OF_LISTENER.fullmatch(name):
        of_mechanism = (one for one in _OF_MECHANISM if found[1].endswith(one))
        return name, next(of_mechanism, found[1])
    return _SYNONYMS.get(name, (name,))


def _kind_of(name: str) -> ConfigType | None:
    names = (name, *synonyms_of(name))
    return next((NODE_SETTINGS[one].kind for one in names if one in NODE_SETTINGS), None)


def _default_of(name: str) -> str | None:
    setting = NODE_SETTINGS.get(name)
    return None if setting is None else setting.default


def _is_shown(setting: NodeSetting) -> bool:
    """Return whether a node shows the setting with its default where nothing sets it."""
    return setting.mode not in (UpdateMode.INTERNAL, UpdateMode.DYNAMIC_ONLY)


def _is_read_only(name: str) -> bool:
    setting = NODE_SETTINGS.get(name)
    return setting is None or setting.mode in FIXED


def _is_sensitive(kind: Any) -> bool:
    # An unknown setting may be a secret.
    return kind is None or kind is ConfigType.PASSWORD
