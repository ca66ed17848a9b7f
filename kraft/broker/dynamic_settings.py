"""Check changes of a broker's dynamic settings, which only that broker can check.

The controller stores what a broker has accepted: it knows neither the broker's properties file nor
its log directories. `DynamicSettingsCheck` makes the checks of Kafka's ``DynamicBrokerConfig``: a
setting that cannot change while a broker runs, one that is not for all brokers, a wrong value, a
pool of threads that changes too much, a cordoned directory that the broker does not have. Called by
``kraft.broker.apis.config_changes``. Sources: ``DynamicBrokerConfig``, ``DynamicThreadPool``,
``DynamicLogConfig`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraft.configdef import ConfigType, ConfigValueError, read
from kraft.errors import InvalidConfigError, InvalidRequestError
from kraft.server.config.values import Setting

#: Settings of pools of threads, which a change may at most halve or double.
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
_CORDONED = "cordoned.log.dirs"
_ALL_DIRECTORIES = "*"


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
            _check_threads(name, present.value_of(name), after.value_of(name))
        self._check_cordoned(after.effective.get(_CORDONED, ""))
        try:
            self._check_effective(after.effective)
        except InvalidConfigError as error:
            raise InvalidRequestError(str(error)) from error

    def _check_range(self, name: str, text: str) -> None:
        setting = self._settings.get(name)
        if setting is None:
            return
        try:
            setting.read(text)
        except ConfigValueError as error:
            raise InvalidRequestError(error.message(name, text)) from None

    def _check_cordoned(self, text: str) -> None:
        cordoned = set(read(ConfigType.LIST, text))
        if _ALL_DIRECTORIES in cordoned:
            return
        if unknown := cordoned - self._log_directories:
            raise InvalidRequestError(
                f"{_CORDONED} has {min(unknown)!r:.200}, which is not one of log.dirs: "
                f"{', '.join(sorted(self._log_directories))}"
            )


def _check_threads(name: str, before: str | None, after: str | None) -> None:
    if before == after or before is None or after is None:
        return
    old, new = int(before), int(after)
    failed = f"Dynamic thread count update validation failed for {name}={new}"
    if new <= 0:
        raise InvalidRequestError(f"{failed}, value should be at least 1")
    if new < old // 2:
        raise InvalidRequestError(
            f"{failed}, value should be at least half the current value {old}"
        )
    if new > 2 * old:
        raise InvalidRequestError(
            f"{failed}, value should not be greater than double the current value {old}"
        )
