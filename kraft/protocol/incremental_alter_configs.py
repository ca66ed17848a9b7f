"""IncrementalAlterConfigs: change single keys of configurations (KIP-339)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.alter_configs import AlteredResource
from kraft.protocol.headers import Api

INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1, 1)


class IncrementalConfig(Struct):
    name: str = field("string")
    # 0 set, 1 delete, 2 append to a list, 3 subtract from a list.
    config_operation: int = field("int8")
    value: str | None = field("string", None, nullable=True)


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: list[IncrementalConfig] = field("[]struct", of=IncrementalConfig)


class IncrementalAlterConfigsRequestData(Message, versions=(0, 1), flexible_since=1):
    resources: list[IncrementalAlterConfigsResource] = field(
        "[]struct", of=IncrementalAlterConfigsResource
    )
    validate_only: bool = field("bool")


class IncrementalAlterConfigsResponseData(Message, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = field("int32")
    responses: list[AlteredResource] = field("[]struct", of=AlteredResource)
