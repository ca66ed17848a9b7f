"""Create, extend and delete topics (KIP-4, KIP-195, KIP-516, KIP-599)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.admin.calls import ControllerCalls
from kraft.admin.results import ItemResult, ItemResults, in_order, result_of
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.errors import THROTTLING_QUOTA_EXCEEDED
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsAssignment,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
    CreatePartitionsTopic,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableAssignment,
    CreatableConfig,
    CreatableTopic,
    CreatedTopicConfig,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.protocol.headers import Api
from kraft.records import Uuid

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Message)

#: How often a topic that a quota delays is sent again, and the shortest pause before, in s.
_QUOTA_ATTEMPTS = 30
_QUOTA_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create (Kafka's ``NewTopic``).

    -1 as ``num_partitions`` or ``replication_factor`` is the controller's default.
    ``assignments`` (partition -> broker ids) places the replicas; then both numbers are -1.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A created topic (Kafka's ``TopicMetadataAndConfig``); the zero id and -1 are unknown.

    ``configs`` are the effective settings by name; None where the client may not describe them.
    """

    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, CreatedTopicConfig] | None


def create_topics(
    calls: ControllerCalls,
    topics: Iterable[TopicSpec],
    *,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
) -> ItemResults[str, TopicCreated]:
    """Create topics; return the outcome of each by its name.

    The topics are one request: the controller creates each of them completely or not at all.
    ``validate_only`` checks the request and changes nothing. A topic that a quota of the controller
    delays is sent again, unless ``retry_on_quota_violation`` is false. Items fail with
    TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG and others. Raises
    QuorumUnreachableError. Source: ``KafkaAdminClient.createTopics``.
    """
    wanted = {
        topic.name: CreatableTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [
                CreatableAssignment(partition, list(brokers))
                for partition, brokers in topic.assignments.items()
            ],
            [CreatableConfig(name, value) for name, value in topic.configs.items()],
        )
        for topic in topics
    }

    def results(response: CreateTopicsResponseData) -> Iterable[tuple[str, Any, TopicCreated]]:
        for each in response.topics:
            configs = each.configs
            created = TopicCreated(
                each.topic_id,
                each.num_partitions,
                each.replication_factor,
                None if configs is None else {config.name: config for config in configs},
            )
            yield each.name, each, created

    return _with_quota_retries(
        calls,
        CREATE_TOPICS,
        wanted,
        lambda entries: CreateTopicsRequestData(
            entries, calls.controller_timeout_ms, validate_only
        ),
        CreateTopicsResponseData,
        results,
        lambda name: f"creating topic {name!r}",
        retry_on_quota_violation,
    )


def create_partitions(
    calls: ControllerCalls,
    topics: Iterable[NewPartitions],
    *,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
) -> ItemResults[str, None]:
    """Raise the number of partitions of topics; return the outcome of each by its name.

    ``count`` of an entry is the number of partitions afterwards. Otherwise as `create_topics`.
    Source: ``KafkaAdminClient.createPartitions``.
    """
    wanted = {
        topic.name: CreatePartitionsTopic(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else [CreatePartitionsAssignment(list(brokers)) for brokers in topic.assignments],
        )
        for topic in topics
    }
    return _with_quota_retries(
        calls,
        CREATE_PARTITIONS,
        wanted,
        lambda entries: CreatePartitionsRequestData(
            entries, calls.controller_timeout_ms, validate_only
        ),
        CreatePartitionsResponseData,
        lambda response: ((each.name, each, None) for each in response.results),
        lambda name: f"extending topic {name!r}",
        retry_on_quota_violation,
    )


def delete_topics(
    calls: ControllerCalls,
    topics: Iterable[str | Uuid],
    *,
    retry_on_quota_violation: bool = True,
) -> ItemResults[str | Uuid, Uuid]:
    """Delete topics by name or by topic id; return the id of each deleted topic.

    The zero id stands for an unknown one. Source: ``KafkaAdminClient.deleteTopics``.
    """
    wanted: dict[str | Uuid, DeleteTopicState] = {
        topic: DeleteTopicState(None, topic) if isinstance(topic, Uuid) else DeleteTopicState(topic)
        for topic in topics
    }

    def results(
        response: DeleteTopicsResponseData,
    ) -> Iterable[tuple[str | Uuid, Any, Uuid]]:
        for each in response.responses:
            item: str | Uuid = each.topic_id
            if each.name is not None and each.name in wanted:
                item = each.name
            yield item, each, each.topic_id

    return _with_quota_retries(
        calls,
        DELETE_TOPICS,
        wanted,
        lambda entries: DeleteTopicsRequestData(entries, timeout_ms=calls.controller_timeout_ms),
        DeleteTopicsResponseData,
        results,
        lambda topic: f"deleting topic {topic!s}",
        retry_on_quota_violation,
    )


def _with_quota_retries(
    calls: ControllerCalls,
    api: Api,
    wanted: Mapping[K, Any],
    request: Callable[[list[Any]], Message],
    response_type: type[M],
    results_of: Callable[[M], Iterable[tuple[K, Any, V]]],
    asked: Callable[[K], str],
    retry_on_quota_violation: bool,
) -> ItemResults[K, V]:
    """Send a request, and again for the topics that a quota delays; return the outcomes."""
    results: dict[K, ItemResult[V]] = {}
    left = dict(wanted)
    attempts = _QUOTA_ATTEMPTS if retry_on_quota_violation else 1
    end = time.monotonic() + calls.client.timeout_s
    while left:
        attempts -= 1
        answered = calls.call(
            api,
            request(list(left.values())),
            response_type,
            lambda response: [each.error_code for _, each, _ in results_of(response)],
        )
        is_last = attempts <= 0 or time.monotonic() + _QUOTA_PAUSE_S >= end
        delayed: list[K] = []
        for item, each, value in results_of(answered.response):
            if each.error_code == THROTTLING_QUOTA_EXCEEDED and not is_last:
                delayed.append(item)
                continue
            results[item] = result_of(
                each.error_code, each.error_message, asked(item), value, answered.is_repeated
            )
        left = {item: left[item] for item in delayed}
        if left:
            time.sleep(_QUOTA_PAUSE_S)
    return in_order(wanted, results, asked)
