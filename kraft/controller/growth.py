"""Topics grow: more partitions for those that there are.

Owns the checks of Kafka's ``ControllerApis.createPartitions`` and
``ReplicationControlManager.createPartitions``, in their order. Only Partition records are written.

Kafka leaves a topic half grown, and says that an unknown error befell it, where a request passes
10,000 records; here the request is refused as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kraft._core.batch import BatchBuilder
from kraft._core.creation import (
    encode_new_partitions,
    partition_without_active_replica,
    topic_size,
)
from kraft._core.placement import PlacementSpec, ReplicaPlacer
from kraft.controller.arguments import MAX_INT32, find_topic, is_integer
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, NO_RECORDS, Decision, Records
from kraft.controller.pieces import plan_in_pieces
from kraft.controller.state import (
    DEFAULTS,
    Cluster,
    PlacementOrder,
    Settings,
    brokers_as_they_are,
    election_context,
    usable_brokers,
)
from kraft.controller.topics import (
    MutationQuota,
    Replicas,
    atomic,
    check_active,
    check_assignment,
    in_lots,
    place_in_pieces,
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
    """A topic is to have ``count`` partitions; ``assignments`` places the new ones by hand."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


GrowthResults = dict[str, int | KraftError]


def grow_topic(
    cluster: Cluster,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    placer: ReplicaPlacer,
    settings: Settings = DEFAULTS,
) -> Decision[int]:
    """One topic; the response is how many partitions came. Raises what `create_partitions` would
    answer for it.
    """
    wanted = [NewPartitions(name, count, assignments)]
    decision = create_partitions(cluster, wanted, placer=placer, settings=settings)
    result = decision.response[name]
    if isinstance(result, KraftError):
        raise result
    return Decision(decision.records, result, is_atomic=True)


def create_partitions(
    cluster: Cluster,
    topics: Sequence[NewPartitions],
    *,
    placer: ReplicaPlacer,
    settings: Settings = DEFAULTS,
    order: PlacementOrder | None = None,
    is_authorized: Callable[[str], bool] | None = None,
    quota: MutationQuota | None = None,
    validate_only: bool = False,
) -> Decision[GrowthResults]:
    """Topics of one request; the response holds for each name how many partitions come, or why
    none.

    With ``validate_only`` there are no records. Raises PolicyViolationError for more than 10,000
    records: see `create_partitions_in_pieces`.
    """
    growth = _Growth(cluster, placer, settings, order, is_authorized, quota)
    growth.count(topics)
    builder = BatchBuilder()
    for topic in topics:
        plan = growth.plan(topic) if growth.admits(topic) else None
        if plan is None:
            continue
        if builder.record_count + plan.end - plan.start > MAX_RECORDS_PER_BATCH:
            raise PolicyViolationError(
                f"a request creates at most {MAX_RECORDS_PER_BATCH} partitions"
            )
        encode_new_partitions(growth.context, builder, plan.topic_id, plan.replicas, plan.start)
    written = NO_RECORDS if validate_only else atomic(builder)
    return Decision(written, growth.response, is_atomic=True)


def create_partitions_in_pieces(
    cluster: Cluster,
    topics: Sequence[NewPartitions],
    *,
    placer: ReplicaPlacer,
    settings: Settings = DEFAULTS,
    order: PlacementOrder | None = None,
    is_authorized: Callable[[str], bool] | None = None,
    quota: MutationQuota | None = None,
) -> Generator[Records, None, GrowthResults]:
    """As `create_partitions`, without a limit; see `create_topics_in_pieces` for how."""
    growth = _Growth(cluster, placer, settings, order, is_authorized, quota, keeps_brokers=True)
    plans = yield from plan_in_pieces(growth, topics)
    builder = BatchBuilder()
    while plans:
        plan = plans.popleft()
        for start, replicas in growth.placed(plan):
            if len(replicas) > MAX_RECORDS_PER_BATCH - builder.record_count:
                yield Records.finished(builder)
                builder = BatchBuilder()
            encode_new_partitions(growth.context, builder, plan.topic_id, replicas, start)
    if builder.record_count:
        yield Records.finished(builder)
    return growth.response


class _Plan(NamedTuple):
    """Partitions ``start`` to before ``end`` of a topic; of many only the first are placed yet."""

    topic_id: bytes
    start: int
    end: int
    replicas: Replicas


class _Growth:
    """One request: what it is decided against, and what is answered so far."""

    def __init__(
        self,
        cluster: Cluster,
        placer: ReplicaPlacer,
        settings: Settings,
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
            brokers_as_they_are(cluster) if keeps_brokers else election_context(cluster, settings)
        )
        self.response: GrowthResults = {}
        self._is_authorized = is_authorized
        self._times_named: Counter[str] = Counter()

    def count(self, topics: Sequence[NewPartitions]) -> None:
        """Counts how often topics are named: all of them before `admits` is asked for any."""
        self._times_named.update([topic.name for topic in topics])

    def admits(self, topic: NewPartitions) -> bool:
        """Whether a topic is to be looked at; else it is answered."""
        if self._times_named[topic.name] > 1:
            self.response[topic.name] = InvalidRequestError(
                f"topic {topic.name!r} is named twice in the request"
            )
            return False
        if self._is_authorized is not None and not self._is_authorized(topic.name):
            self.response[topic.name] = TopicAuthorizationError(
                f"topic {topic.name!r} may not be altered by whoever asks"
            )
            return False
        return True

    def plan(self, topic: NewPartitions) -> _Plan | None:
        """Checks a topic and answers for it; None where it cannot grow."""
        try:
            plan = self._checked(topic)
        except KraftError as error:
            self.response[topic.name] = error
            return None
        self.response[topic.name] = plan.end - plan.start
        return plan

    def placed(self, plan: _Plan) -> Iterator[tuple[int, Replicas]]:
        """The partitions of a plan, some at a time, each with the id of the first."""
        yield from in_lots(plan.replicas, plan.start)
        placed = plan.start + len(plan.replicas)
        factor = plan.replicas.shape[1]
        yield from place_in_pieces(self._placer, self._usable, placed, plan.end, factor)

    def _checked(self, topic: NewPartitions) -> _Plan:
        table = self._cluster.table
        number = find_topic(table, topic.name)
        if number < 0:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic.name!r}")
        present, factor = topic_size(table, number)
        if not is_integer(topic.count, -MAX_INT32 - 1, MAX_INT32):
            raise InvalidPartitionsError(f"{topic.count!r:.80} is no number of partitions")
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
            raise UnknownServerError(f"topic {topic.name!r} has no partition to go by")
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
        return _Plan(table.topic_id_of(number), present, topic.count, replicas)
