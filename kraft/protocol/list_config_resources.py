"""ListConfigResources: the resources that have a configuration (KIP-1142). Brokers only.

Version 0 is ListClientMetricsResources (KIP-714), and lists only those.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", 0, 1, 0)


class ListConfigResourcesRequestData(Message, versions=(0, 1), flexible_since=0):
    # An empty list asks for all types.
    resource_types: list[int] = field("[]int8", since=1)


class ListedConfigResource(Struct):
    resource_name: str = field("string")
    resource_type: int = field("int8", 16, since=1, ignorable=True)


class ListConfigResourcesResponseData(Message, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    config_resources: list[ListedConfigResource] = field("[]struct", of=ListedConfigResource)
