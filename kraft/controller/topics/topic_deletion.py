"""DeleteTopics: delete topics by name or by id.

Makes the checks of Kafka's ``ControllerApis.deleteTopics`` and
``ReplicationControlManager.deleteTopics`` in their order. Each topic is one RemoveTopic record,
which also removes its partitions and its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.creation import topic_size
from kraft._core.table.table import PartitionTable
from kraft.controller.arguments import check_uuid, find_topic
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
    decide_whole,
)
from kraft.controller.state import DEFAULTS, ClusterMetadata, DecisionSettings
from kraft.controller.topics.chunked_planning import ENTRIES_PER_CHUNK
from kraft.controller.topics.topic_creation import MutationQuota, atomic
from kraft.errors import (
    InvalidRequestError,
    KraftError,
    TopicAuthorizationError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kraft.records import Uuid

_NO_ID = Uuid(bytes(16))
_TOPICS_PER_CHUNK = 1_000


class TopicToDelete(NamedTuple):
    """One entry of a request: a name or an id; an absent id is None or zeros."""

    name: str | None = None
    topic_id: Uuid | None = None


class DeletedTopic(NamedTuple):
    """The result of one entry; name and id only as far as the client may see them."""

    name: str | None
    topic_id: Uuid | None
    error: KraftError | None = None


class DeletionRules(NamedTuple):
    """Topics that the client may see and delete (None: all), and the mutation quota."""

    is_describable: Callable[[str], bool] | None = None
    is_deletable: Callable[[str], bool] | None = None
    quota: MutationQuota | None = None


_NO_RULES = DeletionRules()


def delete_topic(
    cluster: ClusterMetadata, name: str | None = None, topic_id: Uuid | None = None
) -> Decision[str]:
    """Decide one topic; the response is its name. Raises the error that `delete_topics` would
    respond.
    """
    decision = decide_whole(
        "delete topic",
        delete_topics(cluster, [TopicToDelete(name, topic_id)]),
        cluster.state.metadata_version,
    )
    result = decision.response[0]
    if result.error is not None:
        raise result.error
    assert result.name is not None
    return Decision(decision.records, result.name, is_atomic=True)


def delete_topics(
    cluster: ClusterMetadata,
    topics: Sequence[TopicToDelete],
    *,
    settings: DecisionSettings = DEFAULTS,
    rules: DeletionRules = _NO_RULES,
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[list[DeletedTopic]]:
    """Decide the topics of one request; the response has an entry for each, errors first.

    More than ``at_once`` partitions are deleted in chunks, because applying takes time. Raises
    TopicDeletionDisabledError if delete.topic.enable is false, and PolicyViolationError for more
    than 10,000 topics at once.
    """
    table = cluster.table
    deletion = _TopicDeletion(cluster, settings, rules)
    most = len(topics)
    for start in range(0, len(topics), ENTRIES_PER_CHUNK):
        if start:
            yield NO_RECORDS
        entries = topics[start : start + ENTRIES_PER_CHUNK]
        most += _partitions(table, entries)
        deletion.count(entries)
    is_large = most > at_once
    if is_large:
        yield NO_RECORDS
    for lookup_count in deletion.look_up():
        if lookup_count % _TOPICS_PER_CHUNK == 0:
            yield NO_RECORDS
    builder = BatchBuilder()
    partitions = 0
    for place, number in enumerate(deletion.topic_numbers(), 1):
        if place % _TOPICS_PER_CHUNK == 0 and not is_large:
            yield NO_RECORDS
        if not deletion.accepts(number):
            continue
        partitions += topic_size(table, number)[0]
        table.encode_topic_removal(builder, number)
        # Applying a RemoveTopic costs time in proportion to the topic's partitions.
        if is_large and (
            builder.record_count >= _TOPICS_PER_CHUNK or partitions > MAX_RECORDS_PER_BATCH
        ):
            yield Records.finished(builder)
            builder = BatchBuilder()
            partitions = 0
    return Decision(atomic(builder), deletion.response, is_atomic=True)


def _partitions(table: PartitionTable, topics: Sequence[TopicToDelete]) -> int:
    """Return the number of partitions of the named topics; of a repeated topic several times."""
    total = 0
    for topic in topics:
        number = (
            find_topic(table, topic.name)
            if topic.name is not None
            else table.topic_number_by_id(topic.topic_id or b"\0" * 16)
        )
        if number >= 0:
            total += topic_size(table, number)[0]
    return total


class _TopicDeletion:
    """The state of one request: the topics to delete, and the response so far."""

    def __init__(
        self, cluster: ClusterMetadata, settings: DecisionSettings, rules: DeletionRules
    ) -> None:
        if not settings.delete_topic_enable:
            raise TopicDeletionDisabledError("delete.topic.enable is false on this controller")
        self._table = cluster.table
        self._rules = rules
        self.response: list[DeletedTopic] = []
        #: Keyed by topic number; None if a name and an id named the same topic.
        self._chosen: dict[int, DeletedTopic | None] = {}
        self._names: dict[str, bool] = {}
        self._ids: dict[Uuid, bool] = {}

    def count(self, topics: Sequence[TopicToDelete]) -> None:
        """Add entries of the request; all of them before any other call."""
        for name, topic_id in topics:
            if topic_id is not None:
                check_uuid("the id of a topic", topic_id)
            has_id = topic_id is not None and topic_id != _NO_ID
            if name is None and not has_id:
                self._reject(
                    name, topic_id, InvalidRequestError("an entry has neither a name nor an id")
                )
            elif name is not None and has_id:
                self._reject(
                    name, topic_id, InvalidRequestError("an entry has both a name and an id")
                )
            elif name is not None:
                self._names[name] = name in self._names
            elif topic_id is not None:
                self._ids[topic_id] = topic_id in self._ids

    def look_up(self) -> Iterator[int]:
        """Look up the topics that are named once, ids first, and respond to the others; yields
        counts.
        """
        lookup_count = 0
        for topic_id, is_repeated in self._ids.items():
            lookup_count += 1
            yield lookup_count
            if is_repeated:
                error = InvalidRequestError(f"the id {topic_id!r} is named twice in the request")
                self._reject(None, topic_id, error)
            else:
                self._admit_id(topic_id)
        for name, is_repeated in self._names.items():
            lookup_count += 1
            yield lookup_count
            if is_repeated:
                error = InvalidRequestError(f"topic {name!r} is named twice in the request")
                self._reject(name, None, error)
            else:
                self._admit_name(name)

    def topic_numbers(self) -> Iterator[int]:
        """Return the numbers of the topics to delete, before the quota check."""
        return (number for number, answer in self._chosen.items() if answer is not None)

    def accepts(self, number: int) -> bool:
        """Respond for a chosen topic; return whether it is deleted."""
        answer = self._chosen[number]
        assert answer is not None
        try:
            if self._rules.quota is not None:
                self._rules.quota(topic_size(self._table, number)[0])
        except KraftError as error:
            self.response.append(answer._replace(error=error.as_result()))
            return False
        self.response.append(answer)
        return True

    def _admit_id(self, topic_id: Uuid) -> None:
        number = self._table.topic_number_by_id(topic_id)
        if number < 0:
            self._reject(None, topic_id, UnknownTopicIdError(f"no topic has the id {topic_id!r}"))
            return
        name = self._table.topic_name(number)
        if not self._is_deletable(name):
            visible = name if self._is_describable(name) else None
            self._reject(visible, topic_id, _not_authorized(topic_id))
            return
        self._chosen[number] = DeletedTopic(name, topic_id)

    def _admit_name(self, name: str) -> None:
        if not self._is_describable(name):
            self._reject(name, None, _not_authorized(name))
            return
        number = find_topic(self._table, name)
        if number < 0:
            self._reject(name, None, UnknownTopicOrPartitionError(f"there is no topic {name!r}"))
            return
        if not self._is_deletable(name):
            self._reject(name, None, _not_authorized(name))
            return
        topic_id = Uuid(self._table.topic_id_of(number))
        if self._ids.get(topic_id) or number in self._chosen:
            self._chosen[number] = None
            error = InvalidRequestError(f"topic {name!r} is also named by its id")
            self._reject(name, topic_id, error)
            return
        self._chosen[number] = DeletedTopic(name, topic_id)

    def _reject(self, name: str | None, topic_id: Uuid | None, error: KraftError) -> None:
        self.response.append(DeletedTopic(name, topic_id, error))

    def _is_describable(self, name: str) -> bool:
        return self._rules.is_describable is None or self._rules.is_describable(name)

    def _is_deletable(self, name: str) -> bool:
        return self._rules.is_deletable is None or self._rules.is_deletable(name)


def _not_authorized(what: object) -> TopicAuthorizationError:
    return TopicAuthorizationError(f"the client may not delete topic {what!r}")
