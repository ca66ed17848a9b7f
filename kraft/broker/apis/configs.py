"""DescribeConfigs and ListConfigResources of a broker, from its last image.

DescribeConfigs is that of every node (``kraft.server.apis.config_descriptions``), with the settings
of the broker's properties file. Called by a broker's node. Source: Kafka's ``KafkaApis``,
``ConfigHelper`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kraft.errors import KraftError, UnsupportedVersionError
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraft.image.publishing import Image
from kraft.protocol.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequestData,
    ListConfigResourcesResponseData,
    ListedConfigResource,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.config_descriptions import describe_configs_api

#: The types that a request may ask for, by version.
_LISTED_TYPES = ((CLIENT_METRICS,), (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC))


def config_apis(
    node_id: int, static: Mapping[str, str], image: Callable[[], Image]
) -> Iterator[AnyApi]:
    """Yield the APIs of broker ``node_id``; ``static`` are the settings of its properties file."""
    yield describe_configs_api(node_id, static, image)
    yield _list_config_resources(image)


def _list_config_resources(image: Callable[[], Image]) -> AnyApi:
    async def answer(
        data: ListConfigResourcesRequestData, context: CallContext
    ) -> ListConfigResourcesResponseData:
        listed = _LISTED_TYPES[context.version]
        if unknown := set(data.resource_types).difference(listed):
            raise UnsupportedVersionError(
                f"resources of type {min(unknown)} cannot be listed; the types are {listed}"
            )
        asked = data.resource_types or listed
        return ListConfigResourcesResponseData(
            config_resources=[
                ListedConfigResource(name, kind)
                for kind in listed
                if kind in asked
                for name in _names(image(), kind, context.listener)
            ]
        )

    return ListenerApi(
        LIST_CONFIG_RESOURCES, ListConfigResourcesRequestData.decode, answer, _failed
    )


def _failed(
    data: ListConfigResourcesRequestData, error: KraftError
) -> ListConfigResourcesResponseData:
    return ListConfigResourcesResponseData(error_code=error.kafka_code)


def _names(image: Image, kind: int, listener: str) -> Iterator[str]:
    """Yield the names of all resources of a type: topics and brokers without a configuration too.

    Of the brokers, those that have the client's listener, fenced ones too.
    """
    if kind == TOPIC:
        yield from map(image.table.topic_name, image.table.topic_numbers())
    elif kind in (BROKER, BROKER_LOGGER):
        for broker in image.state.brokers.values():
            if listener in broker.endpoints:
                yield str(broker.id)
    else:
        for resource_type, name in image.state.configs:
            if resource_type == kind:
                yield name
