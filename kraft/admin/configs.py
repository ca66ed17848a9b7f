"""Describe and alter dynamic configurations (KIP-133, 226, 339, 412, 714, 848).

A resource is ``(type, name)``, as everywhere in the package; the default of all brokers is
``(ConfigResourceType.BROKER, "")``.

Most resources are the active controller's to answer. The loggers and the effective settings of one
controller are known to that controller only, and go to it; a controller rejects those of a broker
(``ConfigHelper``). Source: ``KafkaAdminClient`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.admin.calls import ControllerCalls
from kraft.admin.results import ItemResult, ItemResults, in_order, result_of
from kraft.configdef import ConfigType
from kraft.controller.configs.config_changes import ConfigChange
from kraft.image import configs
from kraft.network.controller_connection import Address
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequestData,
    AlterConfigsResource,
    AlterConfigsResponseData,
    AlteredResource,
)
from kraft.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequestData,
    DescribeConfigsResource,
    DescribeConfigsResponseData,
    DescribeConfigsResult,
    DescribedConfig,
)
from kraft.protocol.headers import Api
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)

V = TypeVar("V")
M = TypeVar("M", bound=Message)


class ConfigResourceType(IntEnum):
    """The type of a resource with configurations (``ConfigResource.Type``)."""

    TOPIC = configs.TOPIC
    BROKER = configs.BROKER
    BROKER_LOGGER = configs.BROKER_LOGGER
    CLIENT_METRICS = configs.CLIENT_METRICS
    GROUP = configs.GROUP


class ConfigSource(IntEnum):
    """Where a value comes from (``ConfigEntry.ConfigSource``)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class SourcedEntry:
    """A value, the setting that it is of, and its source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configuration of a resource, as the controller describes it.

    A sensitive value is None. ``synonyms`` are all values that apply, the effective one first;
    empty unless they were asked for. ``type`` and ``documentation`` are None where unknown.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[SourcedEntry, ...] = ()
    type: ConfigType | None = None
    documentation: str | None = None


#: ``DescribeConfigsResponse.ConfigType``.
_TYPES = {
    1: ConfigType.BOOLEAN,
    2: ConfigType.STRING,
    3: ConfigType.INT,
    4: ConfigType.SHORT,
    5: ConfigType.LONG,
    6: ConfigType.DOUBLE,
    7: ConfigType.LIST,
    8: ConfigType.CLASS,
    9: ConfigType.PASSWORD,
}


def describe_configs(
    calls: ControllerCalls,
    resources: Iterable[configs.ConfigResource],
    *,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> ItemResults[configs.ConfigResource, dict[str, ConfigEntry]]:
    """Return the effective configurations of each resource, by name.

    Items fail with UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (a broker, which only that broker
    can describe) and others. Raises QuorumUnreachableError. Source:
    ``KafkaAdminClient.describeConfigs``.
    """

    def request(run: list[configs.ConfigResource]) -> DescribeConfigsRequestData:
        return DescribeConfigsRequestData(
            [DescribeConfigsResource(type, name) for type, name in run],
            include_synonyms,
            include_documentation,
        )

    def results(
        response: DescribeConfigsResponseData,
    ) -> Iterable[tuple[DescribeConfigsResult, dict[str, ConfigEntry]]]:
        for each in response.results:
            yield each, {config.name: _entry(config) for config in each.configs}

    return _at_nodes(
        calls,
        list(resources),
        (configs.BROKER, configs.BROKER_LOGGER),
        DESCRIBE_CONFIGS,
        request,
        DescribeConfigsResponseData,
        results,
        "describing the configs of",
    )


def incremental_alter_configs(
    calls: ControllerCalls,
    changes: Mapping[configs.ConfigResource, Iterable[ConfigChange]],
    *,
    validate_only: bool = False,
) -> ItemResults[configs.ConfigResource, None]:
    """Set, delete, append to or subtract from single configurations (KIP-339).

    Each resource is changed completely or not at all. Items fail with INVALID_CONFIG and others.
    Raises QuorumUnreachableError. Source: ``KafkaAdminClient.incrementalAlterConfigs``.
    """
    given = {resource: list(each) for resource, each in changes.items()}

    def request(run: list[configs.ConfigResource]) -> IncrementalAlterConfigsRequestData:
        return IncrementalAlterConfigsRequestData(
            [
                IncrementalAlterConfigsResource(
                    *resource,
                    [
                        IncrementalConfig(change.name, change.operation, change.value)
                        for change in given[resource]
                    ],
                )
                for resource in run
            ],
            validate_only,
        )

    return _at_nodes(
        calls,
        list(given),
        (configs.BROKER_LOGGER,),
        INCREMENTAL_ALTER_CONFIGS,
        request,
        IncrementalAlterConfigsResponseData,
        _altered,
        "altering the configs of",
    )


def alter_configs(
    calls: ControllerCalls,
    replacements: Mapping[configs.ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
) -> ItemResults[configs.ConfigResource, None]:
    """Replace all dynamic configurations of each resource; those that are not named are deleted.

    Kafka's Admin had this call until 3.9; `incremental_alter_configs` needs no reading before the
    change, and is safe beside other clients. Errors as there.
    """

    def request(run: list[configs.ConfigResource]) -> AlterConfigsRequestData:
        return AlterConfigsRequestData(
            [
                AlterConfigsResource(
                    *resource,
                    [AlterableConfig(*each) for each in replacements[resource].items()],
                )
                for resource in run
            ],
            validate_only,
        )

    return _at_nodes(
        calls,
        list(replacements),
        (),
        ALTER_CONFIGS,
        request,
        AlterConfigsResponseData,
        _altered,
        "altering the configs of",
    )


def _altered(
    response: IncrementalAlterConfigsResponseData | AlterConfigsResponseData,
) -> Iterable[tuple[AlteredResource, None]]:
    return ((each, None) for each in response.responses)


def _at_nodes(
    calls: ControllerCalls,
    resources: list[configs.ConfigResource],
    node_types: tuple[int, ...],
    api: Api,
    request: Callable[[list[configs.ConfigResource]], Message],
    response_type: type[M],
    results_of: Callable[[M], Iterable[tuple[DescribeConfigsResult | AlteredResource, V]]],
    doing: str,
) -> ItemResults[configs.ConfigResource, V]:
    """Send the resources to the controllers that answer for them; return the outcomes.

    A resource whose type is in ``node_types`` goes to the controller whose id is its name, if it is
    one, all others to the active controller.
    """
    controllers: dict[str, Address] = {}
    if any(type in node_types and name for type, name in resources):
        known = calls.client.describe_cluster().controllers
        controllers = {str(id): address for id, address in known.items()}
    runs: dict[Address | None, list[configs.ConfigResource]] = {}
    for resource in resources:
        address = controllers.get(resource[1]) if resource[0] in node_types else None
        runs.setdefault(address, []).append(resource)

    def asked(resource: configs.ConfigResource) -> str:
        type, name = resource
        kind = configs.RESOURCE_TYPES.get(type, f"resource type {type}").replace("_", " ")
        return f"{doing} {kind} {name!r}" if name else f"{doing} all {kind}s"

    results: dict[configs.ConfigResource, ItemResult[V]] = {}
    for address, run in runs.items():
        is_repeated = False
        if address is None:
            answered = calls.call(
                api,
                request(run),
                response_type,
                lambda response: [each.error_code for each, _ in results_of(response)],
            )
            response, is_repeated = answered
        else:
            response = calls.call_at(address, api, request(run), response_type)
        for each, value in results_of(response):
            resource = (each.resource_type, each.resource_name)
            results[resource] = result_of(
                each.error_code, each.error_message, asked(resource), value, is_repeated
            )
    return in_order(resources, results, asked)


def _entry(config: DescribedConfig) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _source(config.config_source),
        config.is_sensitive,
        config.read_only,
        tuple(
            SourcedEntry(each.name, each.value, _source(each.source)) for each in config.synonyms
        ),
        _TYPES.get(config.config_type),
        config.documentation,
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        # A newer Kafka's.
        return ConfigSource.UNKNOWN
