"""DeleteTopics: delete topics by name, from version 6 on by name or id (KIP-4, 516)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DELETE_TOPICS = Api(20, "DeleteTopics", 1, 6, 4)


class DeleteTopicState(Struct):
    """A topic to delete: its name, or null and its id."""

    name: str | None = field("string", None, since=6, nullable=True)
    topic_id: Uuid = field("uuid", since=6)


class DeleteTopicsRequestData(Message, versions=(1, 6), flexible_since=4):
    topics: list[DeleteTopicState] = field("[]struct", since=6, of=DeleteTopicState)
    topic_names: list[str] = field("[]string", until=5, ignorable=True)
    timeout_ms: int = field("int32")


class DeletedTopicData(Struct):
    name: str | None = field("string", nullable=True, nullable_since=6)
    topic_id: Uuid = field("uuid", since=6, ignorable=True)
    error_code: int = field("int16")
    error_message: str | None = field("string", None, since=5, nullable=True, ignorable=True)


class DeleteTopicsResponseData(Message, versions=(1, 6), flexible_since=4):
    throttle_time_ms: int = field("int32")
    responses: list[DeletedTopicData] = field("[]struct", of=DeletedTopicData)
