"""Validation of a resource's configuration: names, values and their combinations.

Makes the checks of Kafka's ``ControllerConfigurationValidator`` with ``LogConfig.validate``,
``GroupConfig.validate`` and ``ClientMetricsConfigs.validate`` (4.3.1). They check the whole
configuration that the resource would have, not only the changes. Broker settings are not checked
here: as in Kafka, the broker checks them. Called by ``config_changes`` and ``topic_creation``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kraft.configdef import BLANKS, ConfigValueError
from kraft.controller.config_schema import (
    CLIENT_METRICS_CONFIGS,
    DEFINITIONS,
    GROUP_CONFIGS,
    GROUP_LIMITS,
    TOPIC_CONFIGS,
    ConfigRules,
    Definition,
)
from kraft.errors import InvalidConfigError, InvalidRequestError, InvalidTopicError
from kraft.image.configs import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    RESOURCE_TYPES,
    TOPIC,
    ConfigResource,
)

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC_NAME = 249
_BROKER_ID = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_HIGHEST_ID = (1 << 31) - 1
_SHORTEST_PUSH_MS, _LONGEST_PUSH_MS = 100, 3_600_000
_MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
# Comparing two names takes time proportional to the product of their lengths.
_LONGEST_NAME = 100


def check_configs(
    rules: ConfigRules,
    resource: ConfigResource,
    configs: Mapping[str, str],
    existing: Mapping[str, str],
) -> None:
    """Check the configuration ``configs`` that ``resource`` would have instead of ``existing``.

    Raises InvalidConfigError for an invalid name or value, InvalidRequestError for an invalid
    resource (and, as in Kafka, for some errors of client metrics), InvalidTopicError for an invalid
    topic name.
    """
    resource_type, name = resource
    if resource_type == TOPIC:
        if not name:
            raise InvalidRequestError(
                "the name of the topic is missing: topics have no default resource"
            )
        check_topic_name(name)
        _check_topic(rules, configs, existing)
    elif resource_type == BROKER:
        check_broker_name(name)
    elif resource_type == CLIENT_METRICS:
        if not name:
            raise InvalidRequestError("the name of the client metrics subscription is missing")
        _check_client_metrics(configs)
    elif resource_type == GROUP:
        if not name:
            raise InvalidRequestError(
                "the id of the group is missing: groups have no default resource"
            )
        _check_group(rules, configs)
    else:
        raise InvalidRequestError(
            f"resources of type {RESOURCE_TYPES.get(resource_type, resource_type)} have no "
            "configuration in the metadata"
        )


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError for an invalid topic name (``Topic.validate``)."""
    if not isinstance(name, str):
        raise InvalidTopicError(f"a topic's name is a string, not {name!r:.80}")
    if not name or name in (".", "..") or len(name) > _LONGEST_TOPIC_NAME:
        raise InvalidTopicError(
            f"a topic's name has 1 to {_LONGEST_TOPIC_NAME} characters and is not '.' or '..': "
            f"{name!r:.300}"
        )
    if not _LEGAL_TOPIC_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"a topic's name consists of ASCII letters, digits, '.', '_' and '-': {name!r}"
        )


def check_broker_name(name: str) -> None:
    """Raise InvalidRequestError unless ``name`` is an id, or "" for the default of all brokers."""
    if not name:
        return
    if not _BROKER_ID.fullmatch(name) or not -_HIGHEST_ID - 1 <= int(name) <= _HIGHEST_ID:
        raise InvalidRequestError(f"a broker is named by its id, not {name!r:.80}")
    if int(name) < 0:
        raise InvalidRequestError(f"a broker's id is not negative: {name}")


def check_value(resource_type: int, name: str, text: str) -> None:
    """Raise InvalidConfigError for a text that this known configuration does not allow."""
    _read(DEFINITIONS[resource_type], {name: text})


def _read(definitions: Mapping[str, Definition], configs: Mapping[str, str]) -> dict[str, Any]:
    """Parse the values of known configurations."""
    values: dict[str, Any] = {}
    for name, text in configs.items():
        try:
            values[name] = definitions[name].read(text)
        except ConfigValueError as refused:
            raise InvalidConfigError(refused.message(name, text)) from None
    return values


def _unknown(kind: str, name: str, definitions: Mapping[str, Definition]) -> str:
    # Imported for a wrong name only: a node should start fast.
    from difflib import get_close_matches

    meant = get_close_matches(name[:_LONGEST_NAME], definitions, 1, 0.8)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return f"Unknown {kind}: {name:.120}{hint}"


def _check_topic(
    rules: ConfigRules, configs: Mapping[str, str], existing: Mapping[str, str]
) -> None:
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise InvalidConfigError(_unknown("topic config name", name, TOPIC_CONFIGS))
    values = rules.topic_defaults | _read(TOPIC_CONFIGS, configs)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise InvalidConfigError(
            f"min.compaction.lag.ms {values['min.compaction.lag.ms']} is larger than "
            f"max.compaction.lag.ms {values['max.compaction.lag.ms']}"
        )
    if values["remote.storage.enable"]:
        _check_remote_storage(rules, values)
    elif (
        existing.get("remote.storage.enable", "").lower() == "true"
        and not values["remote.log.delete.on.disable"]
    ):
        raise InvalidConfigError(
            "It is invalid to disable remote storage without deleting remote data. If you want to "
            "keep the remote data and turn to read only, please set "
            "`remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
            "remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def _check_remote_storage(rules: ConfigRules, values: Mapping[str, Any]) -> None:
    """Check a topic in tiered storage, with Kafka's messages in Kafka's order."""
    if not rules.is_remote_storage_enabled:
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage. To enable it, set remote.log.storage.system.enable"
        )
    if values["cleanup.policy"] not in ((), ("delete",)):
        raise InvalidConfigError(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy "
            "being an empty list."
        )
    for unit in ("bytes", "ms"):
        local_name, name = f"local.retention.{unit}", f"retention.{unit}"
        local, whole = values[local_name], values[name]
        if local == -2 or whole == -1:
            continue
        refused = f"Invalid value {local} for configuration {local_name}: Value must not be"
        if local == -1:
            raise InvalidConfigError(f"{refused} -1 as {name} value is set as {whole}.")
        if local > whole:
            raise InvalidConfigError(f"{refused} more than {name} property value: {whole}")
    if not values["remote.log.copy.disable"]:
        return
    for unit in ("bytes", "ms"):
        local_name, name = f"local.retention.{unit}", f"retention.{unit}"
        if values[local_name] not in (-2, values[name]):
            raise InvalidConfigError(
                f"When `remote.log.copy.disable` is set to true, the `{local_name}` and `{name}` "
                "must be set to the identical value because there will be no more logs copied to "
                "the remote storage."
            )


def _check_group(rules: ConfigRules, configs: Mapping[str, str]) -> None:
    for name in configs:
        if name not in GROUP_CONFIGS:
            raise InvalidConfigError(_unknown("group config name", name, GROUP_CONFIGS))
    values = rules.group_defaults | _read(GROUP_CONFIGS, configs)
    for name, (lowest, highest) in rules.group_limits.items():
        # For limits that brokers do not define, only explicit values are compared.
        if not GROUP_CONFIGS[name].synonyms and name not in configs:
            continue
        value = values[name]
        lower, upper = GROUP_LIMITS[name]
        if lower is not None and lowest is not None and value < lowest:
            # Kafka's message: its tests compare the whole.
            raise InvalidConfigError(f"{name} must be greater than or equal to {lower[0]}")
        if value > highest:
            raise InvalidConfigError(f"{name} must be less than or equal to {upper[0]}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values[session] <= values[heartbeat]:
            raise InvalidConfigError(
                f"{session} must be greater than {heartbeat} ({values[heartbeat]}), "
                f"not {values[session]}"
            )


def _check_client_metrics(configs: Mapping[str, str]) -> None:
    for name in configs:
        if name not in CLIENT_METRICS_CONFIGS:
            raise InvalidRequestError(
                _unknown("client metrics configuration", name, CLIENT_METRICS_CONFIGS)
            )
    values = _read(CLIENT_METRICS_CONFIGS, configs)
    interval_ms = values.get("interval.ms", _SHORTEST_PUSH_MS)
    if not _SHORTEST_PUSH_MS <= interval_ms <= _LONGEST_PUSH_MS:
        raise InvalidRequestError(
            f"interval.ms is {interval_ms}, allowed is {_SHORTEST_PUSH_MS} to {_LONGEST_PUSH_MS} "
            "(1 hour)"
        )
    if "match" not in values:
        return
    # Imported for a match only: a node should start fast.
    from kraft.controller.configs.java_pattern import is_java_pattern

    for entry in values["match"]:
        # As Java's String.split: without empty strings at the end.
        parts = entry.split("=")
        while len(parts) > 1 and not parts[-1]:
            del parts[-1]
        if len(parts) != 2 or parts[0].strip(BLANKS) not in _MATCHED:
            raise InvalidConfigError(
                f"match has {entry!r:.80}, allowed is name=pattern; the names are "
                f"{', '.join(_MATCHED)}"
            )
        if not is_java_pattern(parts[1].strip(BLANKS)):
            raise InvalidConfigError(f"match has {entry!r:.80}, which is not a regular expression")
