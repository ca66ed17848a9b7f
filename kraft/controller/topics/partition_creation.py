"""CreatePartitions: add partitions to existing topics.

Makes the checks of Kafka's ``ControllerApis.createPartitions`` and
``ReplicationControlManager.createPartitions`` in their order. Writes only Partition records.

If a request exceeds 10,000 records, Kafka adds only some of the partitions and responds with an
unknown error. Here the whole request is rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
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
    Decision,
    Records,
    decide_whole,
)
from kraft.controller.state import (
    DEFAULTS,
    ClusterMetadata,
    DecisionSettings,
    PlacementOrder,
    election_context,
    fixed_election_context,
    usable_brokers,
)
from kraft.controller.topics.chunked_planning import plan_in_chunks
from kraft.controller.topics.topic_creation import (
    MutationQuota,
    Replicas,
    atomic,
    check_active,
    check_assignment,
    in_chunks,
    place_in_chunks,
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
    wanted = [NewPartitions(name, count, assignments)]
    if valid_count(count) > MAX_RECORDS_PER_BATCH:
        decision = decide_whole(
            "create partitions",
            create_partitions_in_chunks(cluster, wanted, placer=placer, settings=settings),
            cluster.state.metadata_version,
        )
    else:
        decision = create_partitions(cluster, wanted, placer=placer, settings=settings)
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
) -> Decision[NewPartitionResults]:
    """Decide the topics of one request; the response maps each name to its number of new
    partitions, or an error.

    With ``validate_only`` there are no records. Raises PolicyViolationError for more than 10,000
    records: see `create_partitions_in_chunks`.
    """
    creation = _PartitionCreation(cluster, placer, settings, order, is_authorized, quota)
    creation.count(topics)
    builder = BatchBuilder()
    for topic in topics:
        plan = creation.plan(topic) if creation.admits(topic) else None
        if plan is None:
            continue
        if builder.record_count + plan.end - plan.start > MAX_RECORDS_PER_BATCH:
            raise PolicyViolationError(
                f"a request creates at most {MAX_RECORDS_PER_BATCH} partitions"
            )
        encode_new_partitions(creation.context, builder, plan.topic_id, plan.replicas, plan.start)
    written = NO_RECORDS if validate_only else atomic(builder)
    return Decision(written, creation.response, is_atomic=True)


def create_partitions_in_chunks(
    cluster: ClusterMetadata,
    topics: Sequence[NewPartitions],
    *,
    placer: ReplicaPlacer,
    settings: DecisionSettings = DEFAULTS,
    order: PlacementOrder | None = None,
    is_authorized: Callable[[str], bool] | None = None,
    quota: MutationQuota | None = None,
) -> Generator[Records, None, NewPartitionResults]:
    """Decide as `create_partitions`, without a limit; see `create_topics_in_chunks`."""
    creation = _PartitionCreation(
        cluster, placer, settings, order, is_authorized, quota, keeps_brokers=True
    )
    plans = yield from plan_in_chunks(creation, topics)
    builder = BatchBuilder()
    while plans:
        plan = plans.popleft()
        for start, replicas in creation.placed(plan):
            if len(replicas) > MAX_RECORDS_PER_BATCH - builder.record_count:
                yield Records.finished(builder)
                builder = BatchBuilder()
            encode_new_partitions(creation.context, builder, plan.topic_id, replicas, start)
    if builder.record_count:
        yield Records.finished(builder)
    return creation.response


class _PlannedPartitions(NamedTuple):
    """New partitions ``start`` to before ``end`` of a topic; only the first 10,000 are placed."""

    topic_id: bytes
    start: int
    end: int
    replicas: Replicas


class _PartitionCreation:
    """The state of one request: its inputs, and the response so far."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        placer: ReplicaPlacer,
        settings: DecisionSettings,
        order: PlacementOrder | None,
        is_authorized: Callable[[str], bool] | None,
        quota: MutationQuota | None,
        *,
        keeps_brokers: bool = False,
    ) -> None:
        self._cluster = cluster
        self._placer = placer
        self._quota = quota
        self._usable = usable_brokers(cluster, order)
        self.context = (
            fixed_election_context(cluster)
            if keeps_brokers
            else election_context(cluster, settings)
        )
        self.response: NewPartitionResults = {}
        self._is_authorized = is_authorized
        self._times_named: Counter[str] = Counter()

    def count(self, topics: Sequence[NewPartitions]) -> None:
        """Count how often each topic is named; for all topics before the first `admits`."""
        self._times_named.update([topic.name for topic in topics])

    def admits(self, topic: NewPartitions) -> bool:
        """Return whether a topic may be planned; otherwise put its error into the response."""
        if self._times_named[topic.name] > 1:
            self.response[topic.name] = InvalidRequestError(
                f"topic {topic.name!r} is named twice in the request"
            )
            return False
        if self._is_authorized is not None and not self._is_authorized(topic.name):
            self.response[topic.name] = TopicAuthorizationError(
                f"the client may not alter topic {topic.name!r}"
            )
            return False
        return True

    def plan(self, topic: NewPartitions) -> _PlannedPartitions | None:
        """Check a topic and put its result into the response; return its plan, or None."""
        try:
            plan = self._checked(topic)
        except KraftError as error:
            self.response[topic.name] = error
            return None
        self.response[topic.name] = plan.end - plan.start
        return plan

    def placed(self, plan: _PlannedPartitions) -> Iterator[tuple[int, Replicas]]:
        """Yield the partitions of a plan in chunks, each with the id of its first partition."""
        yield from in_chunks(plan.replicas, plan.start)
        placed = plan.start + len(plan.replicas)
        factor = plan.replicas.shape[1]
        yield from place_in_chunks(self._placer, self._usable, placed, plan.end, factor)

    def _checked(self, topic: NewPartitions) -> _PlannedPartitions:
        table = self._cluster.table
        number = find_topic(table, topic.name)
        if number < 0:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic.name!r}")
        present, factor = topic_size(table, number)
        if not is_integer(topic.count, -MAX_INT32 - 1, MAX_INT32):
            raise InvalidPartitionsError(f"{topic.count!r:.80} is not a number of partitions")
        if topic.count <= present:
            raise InvalidPartitionsError(
                f"topic {topic.name!r} has {present} partitions, {topic.count} would not be an "
                "increase"
            )
        additional = topic.count - present
        if topic.assignments is not None and len(topic.assignments) != additional:
            raise InvalidReplicaAssignmentError(
                f"{additional} partitions are to come, {len(topic.assignments)} assignments are "
                "given"
            )
        if self._quota is not None:
            self._quota(additional)
        if present == 0:
            raise UnknownServerError(f"topic {topic.name!r} has no partition 0")
        if topic.assignments is None:
            count = min(additional, MAX_RECORDS_PER_BATCH)
            replicas = self._placer.place(PlacementSpec(present, count, factor), self._usable)
            if partition_without_active_replica(self.context, replicas) is not None:
                raise InvalidReplicationFactorError(
                    f"a partition cannot have {factor} replicas: all brokers are fenced or in "
                    "controlled shutdown"
                )
        else:
            for partition, members in enumerate(topic.assignments, present):
                check_assignment(self._cluster, members, factor)
                check_active(self._cluster, members, partition)
            replicas = np.array(topic.assignments, np.int32)
        return _PlannedPartitions(table.topic_id_of(number), present, topic.count, replicas)
