"""Topics are deleted, by name or by id.

Owns the checks of Kafka's ``ControllerApis.deleteTopics`` and
``ReplicationControlManager.deleteTopics``, in their order: each topic is one RemoveTopic record,
which takes its partitions and its configuration along.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraft._core.batch import BatchBuilder
from kraft._core.creation import topic_size
from kraft.controller.arguments import check_uuid, find_topic
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, NO_RECORDS, Decision, Records
from kraft.controller.pieces import count_in_pieces
from kraft.controller.state import DEFAULTS, Cluster, Settings
from kraft.controller.topics import MutationQuota, atomic
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
    deletion = _Deletion(cluster, settings, rules)
    deletion.count(topics)
    for _ in deletion.look_up():
        pass
    builder = BatchBuilder()
    for number in deletion.chosen():
        if deletion.goes(number):
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
    deletion = _Deletion(cluster, settings, rules)
    yield from count_in_pieces(deletion, topics)
    for looked_at in deletion.look_up():
        if looked_at % _TOPICS_A_PIECE == 0:
            yield NO_RECORDS
    builder = BatchBuilder()
    partitions = 0
    for number in deletion.chosen():
        if not deletion.goes(number):
            continue
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

    def __init__(self, cluster: Cluster, settings: Settings, rules: DeletionRules) -> None:
        if not settings.delete_topic_enable:
            raise TopicDeletionDisabledError("delete.topic.enable is false on this controller")
        self._table = cluster.table
        self._rules = rules
        self.response: list[DeletedTopic] = []
        #: By the topic's number; None where a name and an id meant the same one.
        self._chosen: dict[int, DeletedTopic | None] = {}
        self._names: dict[str, bool] = {}
        self._ids: dict[Uuid, bool] = {}

    def count(self, topics: Sequence[TopicToDelete]) -> None:
        """Takes entries of the request, all of them before anything else is asked."""
        for name, topic_id in topics:
            if topic_id is not None:
                check_uuid("the id of a topic", topic_id)
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

    def look_up(self) -> Iterator[int]:
        """Chooses what is named just once, ids first, and answers for the rest; counts along."""
        looked_at = 0
        for topic_id, is_repeated in self._ids.items():
            looked_at += 1
            yield looked_at
            if is_repeated:
                error = InvalidRequestError(f"the id {topic_id!r} is named twice in the request")
                self._refuse(None, topic_id, error)
            else:
                self._admit_id(topic_id)
        for name, is_repeated in self._names.items():
            looked_at += 1
            yield looked_at
            if is_repeated:
                error = InvalidRequestError(f"topic {name!r} is named twice in the request")
                self._refuse(name, None, error)
            else:
                self._admit_name(name)

    def chosen(self) -> Iterator[int]:
        """The topics that go, unless the quota holds them back."""
        return (number for number, answer in self._chosen.items() if answer is not None)

    def goes(self, number: int) -> bool:
        """Answers for a chosen topic: whether it goes."""
        answer = self._chosen[number]
        assert answer is not None
        try:
            if self._rules.quota is not None:
                self._rules.quota(topic_size(self._table, number)[0])
        except KraftError as error:
            self.response.append(answer._replace(error=error))
            return False
        self.response.append(answer)
        return True

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
        number = find_topic(self._table, name)
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
