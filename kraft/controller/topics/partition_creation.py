"""CreatePartitions: add partitions to existing topics.

Makes the checks of Kafka's ``ControllerApis.createPartitions`` and
``ReplicationControlManager.createPartitions`` in their order. Writes only Partition records.

If a request exceeds 10,000 records, Kafka adds only some of the partitions and responds with an
unknown error. Here the whole request is rejected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.creation import (
    encode_new_partitions,
    partition_without_active_replica,
    topic_size,
)
from kraft._core.decide.placement import PlacementSpec, ReplicaPlacer
from kraft.controller.arguments import MAX_INT32, find_topic, is_integer
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
    decide_whole,
)
from kraft.controller.state import (
    DEFAULTS,
    ClusterMetadata,
    DecisionSettings,
    PlacementOrder,
)
from kraft.controller.topics.chunked_planning import (
    ENTRIES_PER_CHUNK,
    TOPICS_PER_CHUNK,
    PartitionWriter,
    Replicas,
    check_new_partitions,
)
from kraft.controller.topics.topic_creation import (
    MutationQuota,
    check_active,
    check_assignment,
    valid_count,
)
from kraft.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    KraftError,
    PolicyViolationError,
    TopicAuthorizationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic and its new total ``count`` of partitions; ``assignments`` places the new ones
    manually.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


NewPartitionResults = dict[str, int | KraftError]


def add_partitions(
    cluster: ClusterMetadata,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    placer: ReplicaPlacer,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[int]:
    """Decide one topic of any size; the response is the number of new partitions.

    More than 10,000 partitions are one metadata transaction: see `decide_whole`. Raises the error
    that `create_partitions` would respond for the topic.
    """
    decision = decide_whole(
        "create partitions",
        create_partitions(
            cluster, [NewPartitions(name, count, assignments)], placer=placer, settings=settings
        ),
        cluster.state.metadata_version,
    )
    result = decision.response[name]
    if isinstance(result, KraftError):
        raise result
    return Decision(decision.records, result, is_atomic=decision.is_atomic)


def create_partitions(
    cluster: ClusterMetadata,
    topics: Sequence[NewPartitions],
    *,
    placer: ReplicaPlacer,
    settings: DecisionSettings = DEFAULTS,
    order: PlacementOrder | None = None,
    is_authorized: Callable[[str], bool] | None = None,
    quota: MutationQuota | None = None,
    validate_only: bool = False,
    at_once: int = MAX_RECORDS_PER_BATCH,
    most: int = sys.maxsize,
) -> ChunkedDecision[NewPartitionResults]:
    """Decide the topics of one request; the response maps each name to its number of new
    partitions, or an error.

    If the topics would have more than ``at_once`` partitions, the records are written in chunks, as
    in `create_topics`. With ``validate_only`` there are no records. Raises PolicyViolationError for
    more than ``most`` new partitions, and for more than 10,000 records at once.
    """
    total = asked = 0
    for begin in range(0, len(topics), ENTRIES_PER_CHUNK):
        if begin:
            yield NO_RECORDS
        entries = topics[begin : begin + ENTRIES_PER_CHUNK]
        total += sum(valid_count(topic.count) for topic in entries)
        asked += requested_partitions(cluster, entries)
    check_new_partitions(asked, most)
    is_large = total > at_once
    if is_large:
        yield NO_RECORDS
    creation = _PartitionCreation(cluster, placer, settings, order, is_authorized, quota, is_large)
    if creation.is_planned_first(topics):
        is_kept = not (is_large and validate_only)
        plans = yield from creation.plans_in_chunks(topics, is_kept=is_kept)
    else:
        plans = creation.plans(topics)
    builder = BatchBuilder()
    for place, (topic_id, start, end, replicas) in enumerate(plans):
        if place and place % TOPICS_PER_CHUNK == 0:
            if is_large:
                yield Records.finished(builder)
                builder = BatchBuilder()
            else:
                yield NO_RECORDS
        if is_large:
            builder = yield from creation.encode_in_chunks(builder, topic_id, replicas, start, end)
        else:
            encode_new_partitions(creation.context, builder, topic_id, replicas, start)
    last = Records.finished(builder)
    return Decision(NO_RECORDS if validate_only else last, creation.response, is_atomic=True)


def requested_partitions(cluster: ClusterMetadata, topics: Sequence[NewPartitions]) -> int:
    """Return how many partitions a request would add; unknown topics and invalid counts are 0."""
    asked = 0
    for topic in topics:
        number = find_topic(cluster.table, topic.name)
        if number >= 0:
            asked += max(valid_count(topic.count) - topic_size(cluster.table, number)[0], 0)
    return asked


class _PlannedPartitions(NamedTuple):
    """New partitions ``start`` to before ``end`` of a topic; only the first 10,000 are placed."""

    topic_id: bytes
    start: int
    end: int
    replicas: Replicas


class _PartitionCreation(PartitionWriter[NewPartitions, _PlannedPartitions]):
    """The state of one request: its inputs, and the response so far."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        placer: ReplicaPlacer,
        settings: DecisionSettings,
        order: PlacementOrder | None,
        is_authorized: Callable[[str], bool] | None,
        quota: MutationQuota | None,
        is_large: bool,
    ) -> None:
        super().__init__(cluster, placer, settings, order, is_large)
        self._quota = quota
        self.response: NewPartitionResults = {}
        self._is_authorized = is_authorized
        #: New partitions that fit into the decision.
        self._free = sys.maxsize if is_large else MAX_RECORDS_PER_BATCH

    def admitted(self, topic: NewPartitions) -> NewPartitions | None:
        if topic.name in self.repeated:
            self.response[topic.name] = InvalidRequestError(
                f"topic {topic.name!r} is named twice in the request"
            )
            return None
        if self._is_authorized is not None and not self._is_authorized(topic.name):
            self.response[topic.name] = TopicAuthorizationError(
                f"the client may not alter topic {topic.name!r}"
            )
            return None
        return topic

    def plan(self, topic: NewPartitions) -> _PlannedPartitions | None:
        try:
            plan = self._checked(topic)
        except KraftError as error:
            self.response[topic.name] = error.as_result()
            return None
        self.response[topic.name] = count = plan.end - plan.start
        self._free -= count
        if self._free < 0:
            raise PolicyViolationError(
                f"a request creates at most {MAX_RECORDS_PER_BATCH} partitions"
            )
        return plan

    def _checked(self, topic: NewPartitions) -> _PlannedPartitions:
        table = self.cluster.table
        number = find_topic(table, topic.name)
        if number < 0:
            # Kafka sends no message; clients print this one, and its tests compare it.
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        present, factor = topic_size(table, number)
        if not is_integer(topic.count, -MAX_INT32 - 1, MAX_INT32):
            raise InvalidPartitionsError(f"{topic.count!r:.80} is not a number of partitions")
        if topic.count == present:
            raise InvalidPartitionsError(f"Topic already has {present} partition(s).")
        if topic.count < present:
            raise InvalidPartitionsError(
                f"The topic {topic.name} currently has {present} partition(s); {topic.count} would "
                "not be an increase."
            )
        additional = topic.count - present
        if topic.assignments is not None and len(topic.assignments) != additional:
            raise InvalidReplicaAssignmentError(
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(topic.assignments)} assignment(s) were specified."
            )
        if self._quota is not None:
            self._quota(additional)
        if present == 0:
            raise UnknownServerError(
                f"topic {topic.name!r} has no partition 0, whose replication factor new ones get"
            )
        if topic.assignments is None:
            count = min(additional, MAX_RECORDS_PER_BATCH)
            replicas = self.placer.place(PlacementSpec(present, count, factor), self.usable)
            if partition_without_active_replica(self.context, replicas) is not None:
                raise InvalidReplicationFactorError(
                    f"Unable to replicate the partition {factor} time(s): All brokers are "
                    "currently fenced or in controlled shutdown."
                )
        else:
            for partition, members in enumerate(topic.assignments, present):
                check_assignment(self.cluster, members, factor)
                check_active(self.cluster, members, partition)
            replicas = np.array(topic.assignments, np.int32)
        return _PlannedPartitions(table.topic_id_of(number), present, topic.count, replicas)
