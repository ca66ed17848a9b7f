"""APIs of the committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete.

Topics that do not exist, or that the client may not read (OffsetFetch: describe), get an error in
the response; the group coordinator sees the others. In the versions with topic ids the coordinator
gets the names too. Source: ``KafkaApis``, ``OffsetCommitResponse.Builder``,
``OffsetDeleteResponse.Builder``, ``OffsetFetchResponse`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from kraft._core.codec.message_schema import ZERO_UUID, Uuid
from kraft._core.table.images import TableImage
from kraft.broker.group_driver import GroupDriver
from kraft.broker.groups import ClientContext
from kraft.broker.groups.error_responses import error_response
from kraft.broker.groups.requests import NO_OFFSET
from kraft.errors import (
    GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
)
from kraft.image.publishing import Image
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequestData,
    OffsetCommitRequestTopic,
    OffsetCommitResponseData,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraft.protocol.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequestData,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponseData,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kraft.protocol.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequestData,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseData,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi

#: The first version of OffsetCommit and of OffsetFetch with topic ids in place of names.
_FIRST_WITH_IDS = 10
#: The first version of OffsetFetch with several groups.
_FIRST_WITH_GROUPS = 8
#: The first version of OffsetFetch with an error of the group; before, each partition has it.
_FIRST_WITH_GROUP_ERROR = 2


class GroupServices(Protocol):
    """What the APIs of groups need of a broker."""

    @property
    def groups(self) -> GroupDriver: ...

    @property
    def image(self) -> Callable[[], Image]:
        """Returns the published metadata."""


def client_of(context: CallContext) -> ClientContext:
    """Return the sender of a request as coordinators keep it: the host is Java's text of it."""
    return ClientContext(context.client_id, f"/{context.host}", context.version)


def offset_apis(broker: GroupServices) -> Iterator[AnyApi]:
    """Yield the APIs of committed offsets."""
    yield _offset_commit(broker)
    yield _offset_fetch(broker)
    yield _offset_delete(broker)


def _allowed_topics(
    context: CallContext, operation: AclOperation, names: Iterable[str]
) -> frozenset[str]:
    """Return the topics on which the client may do the operation; each is checked once."""
    return frozenset(
        name
        for name in dict.fromkeys(names)
        if name and context.allows(operation, ResourceType.TOPIC, name)
    )


def _name_of(table: TableImage, topic_id: Uuid) -> str:
    """Return the name of a topic, empty for an unknown id."""
    number = -1 if topic_id == ZERO_UUID else table.topic_number_by_id(topic_id)
    return table.topic_name(number) if number >= 0 else ""


def _missing_partitions(table: TableImage, topic: str, partitions: Iterable[int]) -> set[int]:
    """Return the partitions that do not exist, of a topic that may not exist."""
    number = table.topic_number(topic)
    return {one for one in partitions if number < 0 or table.row_of(number, one) < 0}


# -- OffsetCommit


class _CommitResults:
    """The topics of an OffsetCommit response: first those with errors of the listener."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, Uuid], OffsetCommitResponseTopic] = {}

    def add(self, name: str, topic_id: Uuid, partitions: Iterable[int], code: int) -> None:
        results = [OffsetCommitResponsePartition(one, code) for one in partitions]
        if results:
            self._of(name, topic_id).partitions += results

    def _of(self, name: str, topic_id: Uuid) -> OffsetCommitResponseTopic:
        topic = OffsetCommitResponseTopic(name, topic_id, [])
        return self._topics.setdefault((name, topic_id), topic)

    def merged(self, response: OffsetCommitResponseData) -> OffsetCommitResponseData:
        """Return the coordinator's response with the errors before it."""
        if not self._topics:
            return response
        for topic in response.topics:
            self._of(topic.name, topic.topic_id).partitions += topic.partitions
        return self.response()

    def response(self) -> OffsetCommitResponseData:
        return OffsetCommitResponseData(topics=list(self._topics.values()))


def _offset_commit(broker: GroupServices) -> AnyApi:
    async def answer(
        request: OffsetCommitRequestData, context: CallContext
    ) -> OffsetCommitResponseData:
        if not context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
            return _failed_commit(request, GROUP_AUTHORIZATION_FAILED)
        table = broker.image().table
        uses_ids = context.version >= _FIRST_WITH_IDS
        if uses_ids:
            for topic in request.topics:
                topic.name = _name_of(table, topic.topic_id)
        allowed = _allowed_topics(
            context, AclOperation.READ, (topic.name for topic in request.topics)
        )
        results = _CommitResults()
        valid: list[OffsetCommitRequestTopic] = []
        for topic in request.topics:
            indexes = [one.partition_index for one in topic.partitions]
            if uses_ids and not topic.name:
                results.add(topic.name, topic.topic_id, indexes, UNKNOWN_TOPIC_ID)
            elif topic.name not in allowed:
                results.add(topic.name, topic.topic_id, indexes, TOPIC_AUTHORIZATION_FAILED)
            else:
                missing = _missing_partitions(table, topic.name, indexes)
                results.add(
                    *(topic.name, topic.topic_id),
                    [one for one in indexes if one in missing],
                    UNKNOWN_TOPIC_OR_PARTITION,
                )
                topic.partitions = [
                    one for one in topic.partitions if one.partition_index not in missing
                ]
                if topic.partitions:
                    valid.append(topic)
        if not valid:
            return results.response()
        request.topics = valid
        response = await broker.groups.handle(client_of(context), request)
        assert isinstance(response, OffsetCommitResponseData)
        return results.merged(response)

    return ListenerApi(
        OFFSET_COMMIT,
        OffsetCommitRequestData.decode,
        answer,
        lambda request, error: _failed_commit(request, error.kafka_code),
    )


def _failed_commit(request: OffsetCommitRequestData, code: int) -> OffsetCommitResponseData:
    response = error_response(request, code)
    assert isinstance(response, OffsetCommitResponseData)
    return response


# -- OffsetFetch


def _offset_fetch(broker: GroupServices) -> AnyApi:
    async def answer(
        request: OffsetFetchRequestData, context: CallContext
    ) -> OffsetFetchResponseData:
        fetches = [
            _GroupFetch(broker, group, context, require_stable=request.require_stable)
            for group in _groups_of(request, context.version)
        ]
        groups = [await fetch.response() for fetch in fetches]
        if context.version >= _FIRST_WITH_GROUPS:
            return OffsetFetchResponseData(groups=groups)
        (group,) = groups
        return OffsetFetchResponseData(topics=group.topics, error_code=group.error_code)

    return ListenerApi(OFFSET_FETCH, OffsetFetchRequestData.decode, answer, _failed_fetch)


def _groups_of(request: OffsetFetchRequestData, version: int) -> Sequence[OffsetFetchRequestGroup]:
    if version >= _FIRST_WITH_GROUPS:
        return request.groups
    return [OffsetFetchRequestGroup(request.group_id, topics=request.topics)]


class _GroupFetch:
    """The fetch of one group's offsets, which begins at once."""

    def __init__(
        self,
        broker: GroupServices,
        group: OffsetFetchRequestGroup,
        context: CallContext,
        *,
        require_stable: bool,
    ) -> None:
        self._broker = broker
        self._group = group
        self._context = context
        self._errors: list[OffsetFetchResponseTopic] = []
        self._call = None
        if context.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            if group.topics is not None:
                group.topics = self._allowed(group.topics)
            self._call = broker.groups.fetch_offsets(group, require_stable=require_stable)

    def _allowed(self, topics: list[OffsetFetchRequestTopic]) -> list[OffsetFetchRequestTopic]:
        """Return the topics that the client may see; keep the errors of the others."""
        context = self._context
        uses_ids = context.version >= _FIRST_WITH_IDS
        if uses_ids:
            table = self._broker.image().table
            for topic in topics:
                topic.name = _name_of(table, topic.topic_id)
        allowed = _allowed_topics(context, AclOperation.DESCRIBE, (topic.name for topic in topics))
        kept = []
        for topic in topics:
            if uses_ids and not topic.name:
                self._errors.append(_unfetched(topic, UNKNOWN_TOPIC_ID))
            elif topic.name not in allowed:
                self._errors.append(_unfetched(topic, TOPIC_AUTHORIZATION_FAILED))
            else:
                kept.append(topic)
        return kept

    async def response(self) -> OffsetFetchResponseGroup:
        """Return the offsets that the client may see."""
        context, requested = self._context, self._group.topics
        if self._call is None:
            return _failed_group(self._group, GROUP_AUTHORIZATION_FAILED, context.version)
        group = await self._call
        if group.error_code:
            group = _failed_group(self._group, group.error_code, context.version)
        if not group.error_code:
            if requested is None:
                group.topics = self._visible(group.topics)
            else:
                group.topics = group.topics + self._errors
        return group

    def _visible(self, topics: list[OffsetFetchResponseTopic]) -> list[OffsetFetchResponseTopic]:
        """Return the topics that the client may see, in versions with ids those that have one."""
        context = self._context
        allowed = _allowed_topics(context, AclOperation.DESCRIBE, (topic.name for topic in topics))
        topics = [topic for topic in topics if topic.name in allowed]
        if context.version < _FIRST_WITH_IDS:
            return topics
        table = self._broker.image().table
        for topic in topics:
            number = table.topic_number(topic.name)
            if number >= 0:
                topic.topic_id = Uuid(table.topic_id_of(number))
        return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _unfetched(topic: OffsetFetchRequestTopic, code: int) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        topic.name,
        topic.topic_id,
        [
            OffsetFetchResponsePartition(one, NO_OFFSET, metadata="", error_code=code)
            for one in topic.partition_indexes
        ],
    )


def _failed_group(
    group: OffsetFetchRequestGroup, code: int, version: int
) -> OffsetFetchResponseGroup:
    """Return the error of a group; the first versions have it at each partition."""
    if version >= _FIRST_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group.group_id, error_code=code)
    return OffsetFetchResponseGroup(
        group.group_id, [_unfetched(topic, code) for topic in group.topics or []]
    )


def _failed_fetch(request: OffsetFetchRequestData, error: KraftError) -> OffsetFetchResponseData:
    code = error.kafka_code
    if request.groups:
        return OffsetFetchResponseData(
            groups=[
                OffsetFetchResponseGroup(group.group_id, error_code=code)
                for group in request.groups
            ]
        )
    topics = [_unfetched(topic, code) for topic in request.topics or []]
    return OffsetFetchResponseData(topics=topics, error_code=code)


# -- OffsetDelete


def _offset_delete(broker: GroupServices) -> AnyApi:
    async def answer(
        request: OffsetDeleteRequestData, context: CallContext
    ) -> OffsetDeleteResponseData:
        if not context.allows(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
            return OffsetDeleteResponseData(error_code=GROUP_AUTHORIZATION_FAILED)
        table = broker.image().table
        allowed = _allowed_topics(
            context, AclOperation.READ, (topic.name for topic in request.topics)
        )
        errors: dict[str, list[OffsetDeleteResponsePartition]] = {}
        valid: list[OffsetDeleteRequestTopic] = []
        for topic in request.topics:
            indexes = [one.partition_index for one in topic.partitions]
            if topic.name in allowed:
                code = UNKNOWN_TOPIC_OR_PARTITION
                rejected = _missing_partitions(table, topic.name, indexes)
            else:
                code = TOPIC_AUTHORIZATION_FAILED
                rejected = set(indexes)
            if rejected:
                errors.setdefault(topic.name, []).extend(
                    OffsetDeleteResponsePartition(one, code) for one in indexes if one in rejected
                )
            topic.partitions = [
                one for one in topic.partitions if one.partition_index not in rejected
            ]
            if topic.partitions:
                valid.append(topic)
        request.topics = valid
        response = await broker.groups.handle(client_of(context), request)
        assert isinstance(response, OffsetDeleteResponseData)
        if not response.error_code:
            for found in response.topics:
                errors.setdefault(found.name, []).extend(found.partitions)
            response.topics = [
                OffsetDeleteResponseTopic(name, partitions) for name, partitions in errors.items()
            ]
        return response

    return ListenerApi(
        OFFSET_DELETE,
        OffsetDeleteRequestData.decode,
        answer,
        lambda _, error: OffsetDeleteResponseData(error_code=error.kafka_code),
    )
