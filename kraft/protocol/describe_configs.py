"""DescribeConfigs: the effective configuration of topics, brokers, groups (KIP-133, 226, 569)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4, 4)


class DescribeConfigsResource(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    # Null asks for all keys.
    configuration_keys: list[str] | None = field("[]string", None, nullable=True)


class DescribeConfigsRequestData(Message, versions=(1, 4), flexible_since=4):
    resources: list[DescribeConfigsResource] = field("[]struct", of=DescribeConfigsResource)
    include_synonyms: bool = field("bool")
    include_documentation: bool = field("bool", since=3)


class ConfigSynonym(Struct):
    """A source of the value, the effective one first."""

    name: str = field("string")
    value: str | None = field("string", None, nullable=True)
    source: int = field("int8")


class DescribedConfig(Struct):
    name: str = field("string")
    value: str | None = field("string", None, nullable=True)
    read_only: bool = field("bool")
    # 1 topic, 2 broker, 3 all brokers, 4 properties file, 5 default, 6 logger, 7 metrics, 8 group.
    config_source: int = field("int8", -1)
    is_sensitive: bool = field("bool")
    synonyms: list[ConfigSynonym] = field("[]struct", of=ConfigSynonym)
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    config_type: int = field("int8", since=3, ignorable=True)
    documentation: str | None = field("string", None, since=3, nullable=True, ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: list[DescribedConfig] = field("[]struct", of=DescribedConfig)


class DescribeConfigsResponseData(Message, versions=(1, 4), flexible_since=4):
    throttle_time_ms: int = field("int32")
    results: list[DescribeConfigsResult] = field("[]struct", of=DescribeConfigsResult)
