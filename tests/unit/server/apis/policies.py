"""Policies for the tests of `kraft.server.plugins`."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.controller.topics.topic_creation import TopicMetadata
from kraft.errors import InvalidTopicError
from kraft.image.configs import TOPIC, ConfigResource

NOT_CALLABLE = 5


class Names:
    """A policy that requires topic names with the prefix in the node's settings."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._prefix = settings["example.prefix"]

    def validate(self, topic: TopicMetadata) -> None:
        if topic.name == "broken":
            raise KeyError(topic.name)
        if topic.name == "invalid":
            raise InvalidTopicError("the policy's own error")
        if not topic.name.startswith(self._prefix):
            raise ValueError(f"the name {topic.name} does not begin with {self._prefix}")


class ShortRetention:
    """A policy that forbids retention.ms above a day."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        pass

    def validate(self, resource: ConfigResource, configs: Mapping[str, str | None]) -> None:
        retention_ms = configs.get("retention.ms")
        if resource[0] == TOPIC and retention_ms and int(retention_ms) > 86_400_000:
            raise ValueError("retention.ms is above a day")


def without_method(settings: Mapping[str, str]) -> object:
    """Return an object that has no ``validate`` and so is no policy."""
    return object()


def failing(settings: Mapping[str, str]) -> object:
    raise RuntimeError("no such server")
