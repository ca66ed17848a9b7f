"""CreateTopics: create topics, by partition counts or manual assignments (KIP-4, 525, 599).

An assignment costs about 200 bytes as an object, ten times its size on the wire. The frame of a
request bounds both.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

CREATE_TOPICS = Api(19, "CreateTopics", 2, 7, 5)


class CreatableAssignment(Struct):
    partition_index: int = field("int32")
    broker_ids: list[int] = field("[]int32")


class CreatableConfig(Struct):
    name: str = field("string")
    value: str | None = field("string", None, nullable=True)


class CreatableTopic(Struct):
    """A topic to create.

    -1 as a number is the controller's default, and the only value beside ``assignments``.
    """

    name: str = field("string")
    num_partitions: int = field("int32")
    replication_factor: int = field("int16")
    assignments: list[CreatableAssignment] = field("[]struct", of=CreatableAssignment)
    configs: list[CreatableConfig] = field("[]struct", of=CreatableConfig)


class CreateTopicsRequestData(Message, versions=(2, 7), flexible_since=5):
    topics: list[CreatableTopic] = field("[]struct", of=CreatableTopic)
    timeout_ms: int = field("int32", 60000)
    validate_only: bool = field("bool")


class CreatedTopicConfig(Struct):
    name: str = field("string", since=5)
    value: str | None = field("string", None, since=5, nullable=True)
    read_only: bool = field("bool", since=5)
    # The source of the value, see ``describe_configs``.
    config_source: int = field("int8", -1, since=5, ignorable=True)
    is_sensitive: bool = field("bool", since=5)


class CreatedTopicData(Struct):
    name: str = field("string")
    topic_id: Uuid = field("uuid", since=7, ignorable=True)
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    # Why ``configs`` is null: the client may not describe the topic's configuration.
    topic_config_error_code: int = field("int16", since=5, tag=0, ignorable=True)
    num_partitions: int = field("int32", -1, since=5, ignorable=True)
    replication_factor: int = field("int16", -1, since=5, ignorable=True)
    configs: list[CreatedTopicConfig] | None = field(
        "[]struct", None, since=5, nullable=True, ignorable=True, of=CreatedTopicConfig
    )


class CreateTopicsResponseData(Message, versions=(2, 7), flexible_since=5):
    throttle_time_ms: int = field("int32")
    topics: list[CreatedTopicData] = field("[]struct", of=CreatedTopicData)
