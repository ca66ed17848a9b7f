"""Check changes of a broker's dynamic settings, which only that broker can check.

The controller stores what a broker has accepted: it knows neither the broker's properties file nor
its log directories. `DynamicSettingsCheck` makes the checks of Kafka's ``DynamicBrokerConfig``: a
setting that cannot change while a broker runs, one that is not for all brokers, a wrong value, a
pool of threads that changes too much, a cordoned directory that the broker does not have. Called by
``kraft.broker.apis.config_changes``. Sources: ``DynamicBrokerConfig``, ``DynamicThreadPool``,
``DynamicLogConfig`` (4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.config import ALL_DIRECTORIES
from kraft.configdef import Between, ConfigType, ConfigValueError, OneOf, Validator, read
from kraft.controller.config_schema import TOPIC_CONFIGS, Definition
from kraft.errors import InvalidConfigError, InvalidRequestError
from kraft.server.config.values import Setting

if TYPE_CHECKING:
    from kraft.controller.configs.config_description import NodeConfigs

#: Settings of pools of threads, which a change may at most halve or double.
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
_RETENTION_MS = "log.retention.ms"


def _not_zero(value: int) -> None:
    """Check a time that is unlimited if it is negative. Raises ConfigValueError for 0."""
    if value == 0:
        raise ConfigValueError("a number of milliseconds, or -1 for no limit, but not 0")


#: Ranges of the dynamic settings that are no defaults of topics (``KafkaConfig.configDef``).
_RANGES: Mapping[str, Validator] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "group.consumer.assignment.interval.ms",
                "group.share.assignment.interval.ms",
                "group.streams.assignment.interval.ms",
                "log.cleaner.backoff.ms",
                "log.cleaner.io.buffer.size",
            ),
            Between(0),
        ),
        **dict.fromkeys(
            (
                *_THREADS,
                "num.replica.alter.log.dirs.threads",
                "producer.id.expiration.ms",
                "remote.fetch.max.wait.ms",
                "remote.list.offsets.request.timeout.ms",
                "remote.log.index.file.cache.total.size.bytes",
                "remote.log.manager.copier.thread.pool.size",
                "remote.log.manager.copy.max.bytes.per.second",
                "remote.log.manager.expiration.thread.pool.size",
                "remote.log.manager.fetch.max.bytes.per.second",
                "remote.log.manager.follower.thread.pool.size",
                "remote.log.reader.threads",
            ),
            Between(1),
        ),
        "group.coordinator.cached.buffer.max.bytes": Between(512 * 1024),
        "share.coordinator.cached.buffer.max.bytes": Between(512 * 1024),
        _RETENTION_MS: _not_zero,
        "ssl.client.auth": OneOf(("required", "requested", "none")),
    }
)
#: The definitions of topics' configurations, by the settings that are their defaults.
_TOPIC_DEFAULTS: Mapping[str, Definition] = MappingProxyType(
    {
        synonym.name: definition
        for definition in TOPIC_CONFIGS.values()
        for synonym in definition.synonyms
        # Kafka checks less than the range of topics for these.
        if synonym.factor == 1 and synonym.name not in ("log.flush.interval.ms", _RETENTION_MS)
    }
)
#: A setting with the prefix of a listener.
_OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_DEDUPE_BUFFER, _CLEANERS = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
#: A thread of the log cleaner needs more bytes of the buffer than these.
_DEDUPE_BUFFER_OF_THREAD = 1024 * 1024
_CORDONED = "cordoned.log.dirs"


class DynamicSettingsCheck:
    """The checks of broker ``node_id``, whose properties file has the settings ``static``.

    ``settings`` are the types and ranges of the settings that the broker reads, by name.
    ``check_effective`` raises InvalidConfigError for settings that do not go together; it gets all
    settings of the broker as text.
    """

    def __init__(
        self,
        node_id: int,
        static: Mapping[str, str],
        settings: Mapping[str, Setting],
        log_directories: frozenset[str],
        check_effective: Callable[[Mapping[str, str]], object],
    ) -> None:
        self._node_id = node_id
        self._static = static
        self._settings = settings
        self._log_directories = log_directories
        self._check_effective = check_effective

    def applied(self, configs: Mapping[str, str], *, is_for_all: bool) -> dict[str, str]:
        """Return those of the stored settings that a broker applies."""
        from kraft.controller.configs.config_description import dynamic_refusal

        return {
            name: text
            for name, text in configs.items()
            if dynamic_refusal(name, text, is_for_all=is_for_all) is None
        }

    def check(
        self,
        changed: Mapping[str, str],
        for_all: Mapping[str, str],
        for_node: Mapping[str, str],
        *,
        is_for_all: bool,
    ) -> None:
        """Check the settings ``changed`` that all brokers (``is_for_all``) or this one would have.

        ``for_all`` and ``for_node`` are the present ones. Raises InvalidRequestError, as Kafka
        (KAFKA-13609).
        """
        # Imported here: a node's start does not pay for the table of all settings.
        from kraft.controller.configs.config_description import NodeConfigs, dynamic_refusal

        for name, text in changed.items():
            refusal = dynamic_refusal(name, text, is_for_all=is_for_all)
            if refusal is not None:
                raise InvalidRequestError(refusal)
            self._check_range(name, text)
        present = NodeConfigs(self._node_id, self._static, for_all, for_node)
        after = NodeConfigs(
            self._node_id,
            self._static,
            changed if is_for_all else for_all,
            for_node if is_for_all else changed,
        )
        for name in _THREADS:
            _check_threads(name, _number(present, name), _number(after, name))
        buffer, cleaners = _number(after, _DEDUPE_BUFFER), _number(after, _CLEANERS)
        if buffer is not None and cleaners and buffer // cleaners <= _DEDUPE_BUFFER_OF_THREAD:
            raise InvalidRequestError(f"{_DEDUPE_BUFFER} must be at least 1MB per cleaner thread.")
        self._check_cordoned(after.effective.get(_CORDONED, ""))
        try:
            self._check_effective(after.effective)
        except InvalidConfigError as error:
            raise InvalidRequestError(str(error)) from error

    def _check_range(self, name: str, text: str) -> None:
        of_listener = _OF_LISTENER.fullmatch(name)
        base = of_listener[1] if of_listener else name
        if not _is_dynamic(base):
            return
        setting = self._settings.get(base)
        try:
            if setting is not None:
                setting.read(text)
            _check_range(base, text)
        except ConfigValueError as error:
            raise InvalidRequestError(error.message(name, text)) from None

    def _check_cordoned(self, text: str) -> None:
        cordoned = set(read(ConfigType.LIST, text))
        if ALL_DIRECTORIES in cordoned:
            return
        if unknown := cordoned - self._log_directories:
            raise InvalidRequestError(
                f"{_CORDONED} has {min(unknown)!r:.200}, which is not one of log.dirs: "
                f"{', '.join(sorted(self._log_directories))}"
            )


def _is_dynamic(name: str) -> bool:
    """Return whether Kafka reads the value: not of a fixed setting with a listener's prefix."""
    from kraft.controller.configs.node_settings import FIXED, NODE_SETTINGS

    return name in NODE_SETTINGS and NODE_SETTINGS[name].mode not in FIXED


def _check_range(name: str, text: str) -> None:
    """Raise ConfigValueError for a value that the setting does not allow."""
    from kraft.controller.configs.node_settings import NODE_SETTINGS

    definition = _TOPIC_DEFAULTS.get(name)
    if definition is not None:
        definition.read(text)
    if name in _RANGES:
        _RANGES[name](read(NODE_SETTINGS[name].kind, text))


def _number(configs: NodeConfigs, name: str) -> int | None:
    """Return a number that applies; None for a text of the properties file that is none."""
    try:
        return int(configs.value_of(name) or "")
    except ValueError:
        return None


def _check_threads(name: str, old: int | None, new: int | None) -> None:
    if old == new or old is None or new is None:
        return
    failed = f"Dynamic thread count update validation failed for {name}={new}"
    if new < old // 2:
        raise InvalidRequestError(
            f"{failed}, value should be at least half the current value {old}"
        )
    if new > 2 * old:
        raise InvalidRequestError(
            f"{failed}, value should not be greater than double the current value {old}"
        )
