"""Topics are deleted, by name or by id.

Owns the checks of Kafka's ``ControllerApis.deleteTopics`` and
``ReplicationControlManager.deleteTopics``, in their order: each topic is one RemoveTopic record,
which takes its partitions and its configuration along.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraft._core.batch import BatchBuilder
from kraft._core.creation import topic_size
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.state import DEFAULTS, Cluster, Settings
from kraft.controller.topics import NO_RECORDS, MutationQuota, atomic
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
_TOPICS_A_PIECE = 1_000


class TopicToDelete(NamedTuple):
    """One entry of a request: a name, or an id; absent is None, or the id of zeros."""

    name: str | None = None
    topic_id: Uuid | None = None


class DeletedTopic(NamedTuple):
    """What became of one entry; name and id are those that may be told."""

    name: str | None
    topic_id: Uuid | None
    error: KraftError | None = None


@dataclass(frozen=True, slots=True)
class DeletionRules:
    """Which topics whoever asks may see and delete; None: all. And the mutation quota."""

    is_describable: Callable[[str], bool] | None = None
    is_deletable: Callable[[str], bool] | None = None
    quota: MutationQuota | None = None


_NO_RULES = DeletionRules()


def delete_topic(
    cluster: Cluster, name: str | None = None, topic_id: Uuid | None = None
) -> Decision[str]:
    """One topic; the response is its name. Raises what `delete_topics` would answer for it."""
    decision = delete_topics(cluster, [TopicToDelete(name, topic_id)])
    result = decision.response[0]
    if result.error is not None:
        raise result.error
    assert result.name is not None
    return Decision(decision.records, result.name, is_atomic=True)


def delete_topics(
    cluster: Cluster,
    topics: Sequence[TopicToDelete],
    *,
    settings: Settings = DEFAULTS,
    rules: DeletionRules = _NO_RULES,
) -> Decision[list[DeletedTopic]]:
    """Topics of one request; the response tells of each, refusals first.

    Raises TopicDeletionDisabledError where the controller deletes none, and PolicyViolationError
    for more than 10,000 of them: see `delete_topics_in_pieces`.
    """
    deletion = _Deletion(cluster, topics, settings, rules)
    for topic in deletion.named():
        deletion.admit(topic)
    builder = BatchBuilder()
    for number in deletion.numbers():
        cluster.table.encode_topic_removal(builder, number)
    return Decision(atomic(builder), deletion.response, is_atomic=True)


def delete_topics_in_pieces(
    cluster: Cluster,
    topics: Sequence[TopicToDelete],
    *,
    settings: Settings = DEFAULTS,
    rules: DeletionRules = _NO_RULES,
) -> Generator[Records, None, list[DeletedTopic]]:
    """As `delete_topics`, without a limit; see `create_topics_in_pieces` for how."""
    deletion = _Deletion(cluster, topics, settings, rules)
    for count, topic in enumerate(deletion.named()):
        if count % _TOPICS_A_PIECE == _TOPICS_A_PIECE - 1:
            yield NO_RECORDS
        deletion.admit(topic)
    yield NO_RECORDS
    ids = [cluster.table.topic_id_of(number) for number in deletion.numbers()]
    partitions = 0
    builder = BatchBuilder()
    for topic_id in ids:
        number = cluster.table.topic_number_by_id(topic_id)
        partitions += topic_size(cluster.table, number)[0]
        cluster.table.encode_topic_removal(builder, number)
        # Applying the removal costs the topic's partitions.
        if builder.record_count >= _TOPICS_A_PIECE or partitions > MAX_RECORDS_PER_BATCH:
            yield Records.finished(builder)
            builder = BatchBuilder()
            partitions = 0
    if builder.record_count:
        yield Records.finished(builder)
    return deletion.response


class _Deletion:
    """One request: the topics that go, and what is answered so far."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[TopicToDelete],
        settings: Settings,
        rules: DeletionRules,
    ) -> None:
        if not settings.delete_topic_enable:
            raise TopicDeletionDisabledError("delete.topic.enable is false on this controller")
        self._table = cluster.table
        self._rules = rules
        self.response: list[DeletedTopic] = []
        #: By the topic's number; None where a name and an id meant the same one.
        self._chosen: dict[int, DeletedTopic | None] = {}
        self._names: dict[str, bool] = {}
        self._ids: dict[Uuid, bool] = {}
        for name, topic_id in topics:
            has_id = topic_id is not None and topic_id != _NO_ID
            if name is None and not has_id:
                self._refuse(name, topic_id, InvalidRequestError("neither name nor id is given"))
            elif name is not None and has_id:
                self._refuse(
                    name, topic_id, InvalidRequestError("a topic has either its name or its id")
                )
            elif name is not None:
                self._names[name] = name in self._names
            elif topic_id is not None:
                self._ids[topic_id] = topic_id in self._ids
        for name, is_repeated in self._names.items():
            if is_repeated:
                error = InvalidRequestError(f"topic {name!r} is named twice in the request")
                self._refuse(name, None, error)
        for topic_id, is_repeated in self._ids.items():
            if is_repeated:
                error = InvalidRequestError(f"the id {topic_id!r} is named twice in the request")
                self._refuse(None, topic_id, error)

    def named(self) -> list[TopicToDelete]:
        """What is named just once, ids first."""
        ids = [TopicToDelete(None, id) for id, repeated in self._ids.items() if not repeated]
        names = [TopicToDelete(name) for name, repeated in self._names.items() if not repeated]
        return ids + names

    def admit(self, topic: TopicToDelete) -> None:
        """Chooses a topic, or answers why not."""
        if topic.topic_id is not None:
            self._admit_id(topic.topic_id)
        elif topic.name is not None:
            self._admit_name(topic.name)

    def numbers(self) -> list[int]:
        """The topics that go, answered for."""
        going = []
        for number, answer in self._chosen.items():
            if answer is None:
                continue
            try:
                if self._rules.quota is not None:
                    self._rules.quota(topic_size(self._table, number)[0])
            except KraftError as error:
                answer = answer._replace(error=error)
            else:
                going.append(number)
            self.response.append(answer)
        return going

    def _admit_id(self, topic_id: Uuid) -> None:
        number = self._table.topic_number_by_id(topic_id)
        if number < 0:
            self._refuse(None, topic_id, UnknownTopicIdError(f"no topic has the id {topic_id!r}"))
            return
        name = self._table.topic_name(number)
        if not self._is_deletable(name):
            told = name if self._is_describable(name) else None
            self._refuse(told, topic_id, _not_authorized(topic_id))
            return
        self._chosen[number] = DeletedTopic(name, topic_id)

    def _admit_name(self, name: str) -> None:
        if not self._is_describable(name):
            self._refuse(name, None, _not_authorized(name))
            return
        number = self._table.topic_number(name)
        if number < 0:
            self._refuse(name, None, UnknownTopicOrPartitionError(f"there is no topic {name!r}"))
            return
        if not self._is_deletable(name):
            self._refuse(name, None, _not_authorized(name))
            return
        topic_id = Uuid(self._table.topic_id_of(number))
        if self._ids.get(topic_id) or number in self._chosen:
            self._chosen[number] = None
            error = InvalidRequestError(f"topic {name!r} is named by its id as well")
            self._refuse(name, topic_id, error)
            return
        self._chosen[number] = DeletedTopic(name, topic_id)

    def _refuse(self, name: str | None, topic_id: Uuid | None, error: KraftError) -> None:
        self.response.append(DeletedTopic(name, topic_id, error))

    def _is_describable(self, name: str) -> bool:
        return self._rules.is_describable is None or self._rules.is_describable(name)

    def _is_deletable(self, name: str) -> bool:
        return self._rules.is_deletable is None or self._rules.is_deletable(name)


def _not_authorized(what: object) -> TopicAuthorizationError:
    return TopicAuthorizationError(f"topic {what!r} may not be deleted by whoever asks")
