"""AlterConfigs: replace the whole configuration of resources (KIP-133).

Kafka 2.3 deprecated it for ``incremental_alter_configs``, which has the same response.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ALTER_CONFIGS = Api(33, "AlterConfigs", 0, 2, 2)


class AlterableConfig(Struct):
    name: str = field("string")
    value: str | None = field("string", None, nullable=True)


class AlterConfigsResource(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: list[AlterableConfig] = field("[]struct", of=AlterableConfig)


class AlterConfigsRequestData(Message, versions=(0, 2), flexible_since=2):
    resources: list[AlterConfigsResource] = field("[]struct", of=AlterConfigsResource)
    validate_only: bool = field("bool")


class AlteredResource(Struct):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    resource_type: int = field("int8")
    resource_name: str = field("string")


class AlterConfigsResponseData(Message, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = field("int32")
    responses: list[AlteredResource] = field("[]struct", of=AlteredResource)
