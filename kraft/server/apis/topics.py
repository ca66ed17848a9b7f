"""APIs of topics: CreateTopics, DeleteTopics, CreatePartitions.

The controller checks names, duplicates and counts. A request that is rejected as a whole has the
error at each of its topics. Source: ``ControllerApis`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kraft.controller.configs.config_sources import EffectiveConfig, TopicDefaults
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import DecisionContext
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.controller.topics.topic_creation import CreatedTopic, CreationRules, NewTopic
from kraft.controller.topics.topic_deletion import DeletedTopic, DeletionRules, TopicToDelete
from kraft.errors import (
    InvalidRequestError,
    KraftError,
    TopicAuthorizationError,
    TopicDeletionDisabledError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.metadata.identifiers import random_uuid
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
    CreatePartitionsResult,
    CreatePartitionsTopic,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatedTopicConfig,
    CreatedTopicData,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeletedTopicData,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.records import ZERO_UUID
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.error_responses import (
    extended_topic,
    reject_create_partitions,
    reject_create_topics,
    reject_delete_topics,
    rejected_deletion,
    rejected_topic,
)
from kraft.server.apis.slices import in_slices
from kraft.server.controller import ControllerRunner
from kraft.server.plugins import Policies

#: The first version of CreateTopics that returns configurations.
_FIRST_WITH_CONFIGS = 5
#: The first version of DeleteTopics whose clients know TOPIC_DELETION_DISABLED.
_FIRST_WITH_DELETION_DISABLED = 3
#: The first versions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_CREATION_STRICT_SINCE = 6
_DELETION_STRICT_SINCE = 5
_EXTENSION_STRICT_SINCE = 3


def topic_apis(runner: ControllerRunner, policies: Policies) -> Iterator[AnyApi]:
    """Yield the APIs of topics."""
    yield _create_topics(runner, policies)
    yield _delete_topics(runner)
    yield _create_partitions(runner)


def _create_topics(runner: ControllerRunner, policies: Policies) -> AnyApi:
    new_configs = _NewTopicConfigs()

    async def answer(
        data: CreateTopicsRequestData, context: CallContext
    ) -> CreateTopicsResponseData:
        operation = requests.create_topics(
            await in_slices(_new_topic, data.topics),
            CreationRules(
                is_authorized=_topic_check(context, AclOperation.CREATE),
                policy=policies.create_topic,
                config_policy=policies.alter_config,
                quota=context.mutations,
            ),
            validate_only=data.validate_only,
        )
        configs_of: dict[str, list[CreatedTopicConfig]] = {}
        if context.version >= _FIRST_WITH_CONFIGS:
            # As of the decision: the configurations may change before the records are committed.
            operation.applied = lambda decided, _: configs_of.update(new_configs.of(decided, data))
        results = await runner.submit(operation, timeout_ms=data.timeout_ms)

        def described(entry: tuple[str, CreatedTopic | KraftError]) -> CreatedTopicData:
            name, result = entry
            if isinstance(result, KraftError) or _is_described(context, name):
                return _created(name, result, configs_of.get(name, []))
            return _undescribed(result)

        return CreateTopicsResponseData(topics=await in_slices(described, results.items()))

    return ListenerApi(
        CREATE_TOPICS,
        CreateTopicsRequestData.decode,
        answer,
        reject_create_topics,
        _CREATION_STRICT_SINCE,
    )


def _topic_check(context: CallContext, operation: AclOperation) -> Callable[[str], bool] | None:
    """Return a function that checks one topic; None if the client may access all topics."""
    if context.allows_on_cluster(operation):
        return None
    return partial(_is_allowed, context, operation)


def _is_allowed(context: CallContext, operation: AclOperation, topic: str) -> bool:
    return context.allows(operation, ResourceType.TOPIC, topic)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        random_uuid(),
        topic.num_partitions,
        topic.replication_factor,
        _taken_assignments(topic),
        {config.name: config.value for config in topic.configs},
    )


def _taken_assignments(topic: CreatableTopic) -> list[tuple[int, list[int]]]:
    """Return the manual placement as pairs, and remove it from the request.

    A pair replaces its decoded object at once: both together take 340 bytes a partition, and a
    request may place a million.
    """
    given: list[Any] = topic.assignments
    topic.assignments = []
    for place, each in enumerate(given):
        given[place] = each.partition_index, each.broker_ids
    return given


class _NewTopicConfigs:
    """The effective configurations of new topics.

    The defaults are kept until a setting that they depend on changes: computing them would take a
    sixth of the time of a request with one topic.
    """

    def __init__(self) -> None:
        self._sources: tuple[Mapping[str, str], ...] = ()
        self._defaults = TopicDefaults({}, {}, {})
        #: The configurations of a topic without any of its own.
        self._shared: list[CreatedTopicConfig] = []

    def of(
        self, context: DecisionContext, data: CreateTopicsRequestData
    ) -> dict[str, list[CreatedTopicConfig]]:
        """Return the effective configurations of the topics of a request, by name."""
        settings = context.settings
        configs = context.cluster.state.configs
        assert settings.node_id is not None
        sources = (
            settings.config_rules.static,
            configs.cluster_default(),
            configs.broker(settings.node_id),
        )
        if sources != self._sources:
            # Copies: the mappings of the state may change in place.
            self._sources = tuple(dict(source) for source in sources)
            self._defaults = TopicDefaults(*sources)
            self._shared = [_effective(one) for one in self._defaults.of_topic({})]
        return {
            topic.name: [
                _effective(one)
                for one in self._defaults.of_topic(
                    {config.name: config.value for config in topic.configs}
                )
            ]
            if topic.configs
            else self._shared
            for topic in data.topics
        }


def _is_described(context: CallContext, topic: str) -> bool:
    return context.allows(
        AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic, log_if_denied=False
    )


def _undescribed(result: CreatedTopic) -> CreatedTopicData:
    """Return the result for a client that may not describe the topic's configuration."""
    return CreatedTopicData(
        result.name,
        result.topic_id,
        topic_config_error_code=TopicAuthorizationError.kafka_code,
        configs=[],
    )


def _effective(config: EffectiveConfig) -> CreatedTopicConfig:
    return CreatedTopicConfig(config.name, config.value, config_source=config.source)


def _created(
    name: str,
    result: CreatedTopic | KraftError,
    configs: Sequence[CreatedTopicConfig] = (),
) -> CreatedTopicData:
    if isinstance(result, KraftError):
        return rejected_topic(name, result)
    return CreatedTopicData(
        name,
        result.topic_id,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=list(configs),
    )


def _delete_topics(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: DeleteTopicsRequestData, context: CallContext
    ) -> DeleteTopicsResponseData:
        is_deletable = _topic_check(context, AclOperation.DELETE)
        is_describable = None
        if is_deletable is not None:
            is_describable = partial(_is_allowed, context, AclOperation.DESCRIBE)
        topics = await in_slices(lambda name: TopicToDelete(name), data.topic_names)
        topics += await in_slices(_topic_to_delete, data.topics)
        operation = requests.delete_topics(
            topics,
            DeletionRules(is_describable, is_deletable, context.mutations),
        )
        try:
            results = await runner.submit(operation, timeout_ms=data.timeout_ms)
        except TopicDeletionDisabledError as error:
            if context.version < _FIRST_WITH_DELETION_DISABLED:
                raise InvalidRequestError(str(error)) from error
            raise
        return DeleteTopicsResponseData(responses=await in_slices(_deleted, results))

    return ListenerApi(
        DELETE_TOPICS,
        DeleteTopicsRequestData.decode,
        answer,
        reject_delete_topics,
        _DELETION_STRICT_SINCE,
    )


def _topic_to_delete(topic: DeleteTopicState) -> TopicToDelete:
    return TopicToDelete(topic.name, topic.topic_id)


def _deleted(result: DeletedTopic) -> DeletedTopicData:
    topic_id = ZERO_UUID if result.topic_id is None else result.topic_id
    if result.error is None:
        return DeletedTopicData(result.name, topic_id)
    return rejected_deletion(result.name, topic_id, result.error)


def _create_partitions(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: CreatePartitionsRequestData, context: CallContext
    ) -> CreatePartitionsResponseData:
        context.check_acls_loaded()
        operation = requests.create_partitions(
            await in_slices(_new_partitions, data.topics),
            is_authorized=partial(_is_allowed, context, AclOperation.ALTER),
            quota=context.mutations,
            validate_only=data.validate_only,
        )
        results = await runner.submit(operation, timeout_ms=data.timeout_ms)
        return CreatePartitionsResponseData(
            results=await in_slices(lambda entry: _extended(*entry), results.items())
        )

    return ListenerApi(
        CREATE_PARTITIONS,
        CreatePartitionsRequestData.decode,
        answer,
        reject_create_partitions,
        _EXTENSION_STRICT_SINCE,
    )


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _extended(name: str, result: int | KraftError) -> CreatePartitionsResult:
    return extended_topic(name, result if isinstance(result, KraftError) else None)
