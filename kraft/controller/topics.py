"""Topics are created: one, several in a request, or more than a batch can hold.

Owns the checks of Kafka's ``ControllerApis.createTopics`` and
``ReplicationControlManager.createTopics``, in their order, and the order of the records: Topic, its
Config records, its Partition records. Partitions are encoded straight from the placer's array.

Stricter than Kafka in one thing: two topics of *one* request whose names differ only in ``.``
against ``_`` are not both made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft._core.batch import BatchBuilder
from kraft._core.creation import (
    encode_new_partitions,
    encode_new_topic,
    name_alike,
    partition_without_active_replica,
)
from kraft._core.placement import PlacementSpec, ReplicaPlacer, UsableBrokers
from kraft._core.table import PartitionTable
from kraft.controller.arguments import MAX_INT16, MAX_INT32, check_uuid, find_topic, is_integer
from kraft.controller.config_validation import check_topic_name
from kraft.controller.configs import AlterConfigPolicy, config_records
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    Decision,
    Records,
    append_records,
)
from kraft.controller.pieces import plan_in_pieces
from kraft.controller.state import (
    DEFAULTS,
    Cluster,
    PlacementOrder,
    Settings,
    brokers_as_they_are,
    election_context,
    is_active,
    usable_brokers,
)
from kraft.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KraftError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicAuthorizationError,
    UnknownServerError,
)
from kraft.image.configs import TOPIC
from kraft.records import Record, Uuid

_CLUSTER_METADATA = "__cluster_metadata"
#: The ids 0 and 1: that of no topic, and that of the metadata topic (``Uuid.RESERVED``).
_LAST_RESERVED_ID = 1

Replicas = NDArray[np.int32]
Assignments = Mapping[int, Sequence[int]] | Sequence[tuple[int, Sequence[int]]]
#: Tells the controller's mutation quota how many partitions come or go (KIP-599); raises
#: ThrottlingQuotaExceededError to refuse them.
MutationQuota = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; ``topic_id`` is chosen by the caller.

    ``num_partitions`` and ``replication_factor`` -1 stand for the controller's defaults.
    ``assignments`` (partition id -> brokers, or such pairs) places by hand; both numbers are then
    -1.
    """

    name: str
    topic_id: Uuid
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Assignments = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    name: str
    topic_id: Uuid
    num_partitions: int
    replication_factor: int


class TopicMetadata(NamedTuple):
    """What a policy is asked about (CreateTopicPolicy.RequestMetadata).

    Where ``assignments`` are given both numbers are None, else they are None.
    """

    name: str
    num_partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str | None]


#: Raises to refuse a topic: a KraftError, such as PolicyViolationError, is what is answered.
CreateTopicPolicy = Callable[[TopicMetadata], None]


@dataclass(frozen=True, slots=True)
class CreationRules:
    """What a request is held against, beside the cluster.

    ``is_authorized`` says of a name whether whoever asks may create it; None: everything.
    ``config_policy`` sees the configurations of a new topic before ``policy`` sees the topic
    (ReplicationControlManager.createTopics).
    """

    is_authorized: Callable[[str], bool] | None = None
    policy: CreateTopicPolicy | None = None
    config_policy: AlterConfigPolicy | None = None
    quota: MutationQuota | None = None


_NO_RULES = CreationRules()
TopicResults = dict[str, CreatedTopic | KraftError]


def create_topic(
    cluster: Cluster,
    topic: NewTopic,
    *,
    placer: ReplicaPlacer,
    settings: Settings = DEFAULTS,
) -> Decision[CreatedTopic]:
    """One topic. Raises what the response of `create_topics` would hold for it."""
    decision = create_topics(cluster, [topic], placer=placer, settings=settings)
    result = decision.response[topic.name]
    if isinstance(result, KraftError):
        raise result
    return Decision(decision.records, result, is_atomic=True)


def create_topics(
    cluster: Cluster,
    topics: Sequence[NewTopic],
    *,
    placer: ReplicaPlacer,
    settings: Settings = DEFAULTS,
    order: PlacementOrder | None = None,
    rules: CreationRules = _NO_RULES,
    validate_only: bool = False,
) -> Decision[TopicResults]:
    """Topics of one request; the response holds for each name what was made, or why not.

    With ``validate_only`` there are no records. Raises PolicyViolationError where the request as a
    whole would write more than 10,000 records: see `create_topics_in_pieces`.
    """
    creation = _Creation(cluster, placer, settings, rules, order)
    creation.count(topics)
    admitted = [topic for topic in topics if creation.admits(topic)]
    asked = partitions_asked(admitted, settings)
    if asked > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"a request creates at most {MAX_RECORDS_PER_BATCH} partitions, not {asked}"
        )
    builder = BatchBuilder()
    for topic in admitted:
        plan = creation.plan(topic)
        if plan is not None:
            creation.begin(builder, plan)
            encode_new_partitions(creation.context, builder, topic.topic_id, plan.replicas)
    written = atomic(builder)
    if validate_only:
        written = NO_RECORDS
    return Decision(written, creation.response, is_atomic=True)


def create_topics_in_pieces(
    cluster: Cluster,
    topics: Sequence[NewTopic],
    *,
    placer: ReplicaPlacer,
    settings: Settings = DEFAULTS,
    order: PlacementOrder | None = None,
    rules: CreationRules = _NO_RULES,
) -> Generator[Records, None, TopicResults]:
    """As `create_topics`, without a limit: for one metadata transaction (KIP-868).

    Gives at most 10,000 records at a time and returns the response. What can be refused is refused
    before the first records come; until then what it gives is empty. Everything is decided against
    the brokers as they are when it begins.
    """
    creation = _Creation(cluster, placer, settings, rules, order, keeps_brokers=True)
    plans = yield from plan_in_pieces(creation, topics)
    builder = BatchBuilder()
    while plans:
        plan = plans.popleft()
        if len(plan.configs) + 1 > MAX_RECORDS_PER_BATCH - builder.record_count:
            yield Records.finished(builder)
            builder = BatchBuilder()
        creation.begin(builder, plan)
        for start, replicas in creation.placed(plan):
            if len(replicas) > MAX_RECORDS_PER_BATCH - builder.record_count:
                yield Records.finished(builder)
                builder = BatchBuilder()
            encode_new_partitions(creation.context, builder, plan.topic.topic_id, replicas, start)
    if builder.record_count:
        yield Records.finished(builder)
    return creation.response


def partitions_asked(topics: Sequence[NewTopic], settings: Settings = DEFAULTS) -> int:
    """How many partitions a request would create, counting defaults; what cannot be counts none.

    Source: ``ReplicationControlManager.validateTotalNumberOfPartitions``.
    """
    return sum(
        len(topic.assignments)
        or (
            settings.num_partitions
            if topic.num_partitions == -1
            else count_of(topic.num_partitions)
        )
        for topic in topics
    )


def count_of(partitions: object) -> int:
    """Return a number of partitions, 0 for a value that is none."""
    return int(partitions) if is_integer(partitions, 0, MAX_INT32) else 0  # type: ignore[call-overload]


class _Plan(NamedTuple):
    """A topic that will be made; of many partitions only the first are placed yet."""

    topic: NewTopic
    configs: list[Record]
    replicas: Replicas
    num_partitions: int


class _Creation:
    """One request: what it is decided against, and what is answered so far."""

    def __init__(
        self,
        cluster: Cluster,
        placer: ReplicaPlacer,
        settings: Settings,
        rules: CreationRules,
        order: PlacementOrder | None,
        *,
        keeps_brokers: bool = False,
    ) -> None:
        self._cluster = cluster
        self._table = cluster.table
        self._placer = placer
        self._settings = settings
        self._rules = rules
        self._usable = usable_brokers(cluster, order)
        self.context = (
            brokers_as_they_are(cluster) if keeps_brokers else election_context(cluster, settings)
        )
        #: Names of the request that hold a mark, as they look to a metric.
        self._marked: set[str] = set()
        #: Ids of the topics of the request that will be made.
        self._ids: set[Uuid] = set()
        self.response: TopicResults = {}
        self._times_named: Counter[str] = Counter()

    def count(self, topics: Sequence[NewTopic]) -> None:
        """Counts how often topics are named: all of them before `admits` is asked for any."""
        self._times_named.update([topic.name for topic in topics])

    def admits(self, topic: NewTopic) -> bool:
        """Whether a topic is to be looked at; else it is answered."""
        error = self._refusal(topic.name, self._times_named[topic.name])
        if error is not None:
            self.response[topic.name] = error
        return error is None

    def _refusal(self, name: str, times_named: int) -> KraftError | None:
        """What keeps a topic from being looked at."""
        if times_named > 1:
            return InvalidRequestError(f"topic {name!r} is named twice in the request")
        if name == _CLUSTER_METADATA:
            return InvalidRequestError(f"the topic {name} is the cluster's own")
        if self._rules.is_authorized is not None and not self._rules.is_authorized(name):
            return TopicAuthorizationError(f"topic {name!r} may not be created by whoever asks")
        return None

    def plan(self, topic: NewTopic) -> _Plan | None:
        """Checks a topic and answers for it; None where it cannot be."""
        try:
            check_new_name(self._table, topic.name)
            marked = topic.name.replace(".", "_")
            if marked in self._marked:
                raise InvalidTopicError(f"topic {topic.name!r} is too like another of the request")
            configs: list[Record] = []
            if topic.configs:
                if None in topic.configs.values():
                    raise InvalidConfigError(
                        f"a configuration of topic {topic.name!r} has no value"
                    )
                configs = config_records(
                    self._cluster,
                    (TOPIC, topic.name),
                    topic.configs,
                    self._settings,
                    self._rules.config_policy,
                )
                if len(configs) >= MAX_RECORDS_PER_BATCH:
                    raise PolicyViolationError(f"a topic with {len(configs)} configurations")
            if topic.assignments:
                replicas = self._assigned(topic)
                count = len(replicas)
            else:
                replicas, count = self._placed(topic)
            self._check_new_id(topic.topic_id)
            if self._rules.quota is not None:
                self._rules.quota(count)
        except KraftError as error:
            self.response[topic.name] = error
            return None
        if "_" in marked:
            self._marked.add(marked)
        self._ids.add(topic.topic_id)
        self.response[topic.name] = CreatedTopic(
            topic.name, topic.topic_id, count, replicas.shape[1]
        )
        return _Plan(topic, configs, replicas, count)

    def _check_new_id(self, topic_id: Uuid) -> None:
        """Raise InvalidRequestError for an id that another topic has or that Kafka keeps for
        itself: the replay of such a record would end the process.
        """
        check_uuid("the id of a topic", topic_id)
        if int.from_bytes(topic_id, "big") <= _LAST_RESERVED_ID:
            raise InvalidRequestError(f"the topic id {topic_id!r} is reserved")
        if topic_id in self._ids or self._table.topic_number_by_id(topic_id) >= 0:
            raise InvalidRequestError(f"another topic has the id {topic_id!r}")

    def begin(self, builder: BatchBuilder, plan: _Plan) -> None:
        """Writes the records that stand before the partitions."""
        encode_new_topic(builder, plan.topic.name, plan.topic.topic_id)
        if plan.configs:
            append_records(builder, plan.configs, self.context.metadata_version)

    def placed(self, plan: _Plan) -> Iterator[tuple[int, Replicas]]:
        """The partitions of a plan, some at a time, each with the id of the first."""
        yield from in_lots(plan.replicas, 0)
        factor = plan.replicas.shape[1]
        yield from place_in_pieces(
            self._placer, self._usable, len(plan.replicas), plan.num_partitions, factor
        )

    def _placed(self, topic: NewTopic) -> tuple[Replicas, int]:
        factor = topic.replication_factor
        count = topic.num_partitions
        if not is_integer(factor, -1, MAX_INT16) or factor == 0:
            raise InvalidReplicationFactorError(
                "a replication factor is larger than 0, or -1 for the default"
            )
        if not is_integer(count, -1, MAX_INT32) or count == 0:
            raise InvalidPartitionsError(
                "a topic has at least one partition, or -1 for the default"
            )
        if factor == -1:
            factor = self._settings.default_replication_factor
        if count == -1:
            count = self._settings.num_partitions
        spec = PlacementSpec(0, min(count, MAX_RECORDS_PER_BATCH), factor)
        placed = self._placer.place(spec, self._usable)
        if partition_without_active_replica(self.context, placed) is not None:
            raise InvalidReplicationFactorError(
                f"a partition cannot have {factor} replicas: all brokers are fenced or in "
                "controlled shutdown"
            )
        if self._rules.policy is not None:
            metadata = TopicMetadata(topic.name, count, factor, None, topic.configs)
            _ask(self._rules.policy, metadata)
        return placed, count

    def _assigned(self, topic: NewTopic) -> Replicas:
        if topic.replication_factor != -1 or topic.num_partitions != -1:
            raise InvalidRequestError(
                "with a manual assignment neither replication factor nor partitions may be given"
            )
        given = topic.assignments
        pairs = given.items() if isinstance(given, Mapping) else given
        by_id: dict[int, Sequence[int]] = {}
        factor: int | None = None
        for partition, replicas in pairs:
            if not is_integer(partition, 0, MAX_INT32):
                raise InvalidReplicaAssignmentError(f"{partition!r:.80} is no id of a partition")
            if partition in by_id:
                raise InvalidReplicaAssignmentError(f"partition {partition} is assigned twice")
            check_assignment(self._cluster, replicas, factor)
            check_active(self._cluster, replicas, partition)
            factor = len(replicas)
            by_id[partition] = replicas
        if not all(partition in by_id for partition in range(len(by_id))):
            raise InvalidReplicaAssignmentError("partitions are numbered from 0 on without gaps")
        if self._rules.policy is not None:
            metadata = TopicMetadata(topic.name, None, None, by_id, topic.configs)
            _ask(self._rules.policy, metadata)
        return np.array([by_id[partition] for partition in range(len(by_id))], np.int32)


def _ask(policy: CreateTopicPolicy, metadata: TopicMetadata) -> None:
    """Whatever a policy fails with becomes the error of the topic, as since Kafka 4.1."""
    try:
        policy(metadata)
    except KraftError:
        raise
    except Exception as error:
        raise UnknownServerError(
            f"the policy for new topics failed on {metadata.name!r}: {error}"
        ) from error


def in_lots(replicas: Replicas, start: int) -> Iterator[tuple[int, Replicas]]:
    """Partitions from ``start`` on that are placed already (by hand all are), 10,000 at a time."""
    for first in range(0, len(replicas), MAX_RECORDS_PER_BATCH):
        yield start + first, replicas[first : first + MAX_RECORDS_PER_BATCH]


def place_in_pieces(
    placer: ReplicaPlacer, usable: UsableBrokers, start: int, end: int, factor: int
) -> Iterator[tuple[int, Replicas]]:
    """Partitions ``start`` to before ``end``, 10,000 at a time, each lot placed when asked for."""
    while start < end:
        count = min(MAX_RECORDS_PER_BATCH, end - start)
        yield start, placer.place(PlacementSpec(start, count, factor), usable)
        start += count


def check_new_name(table: PartitionTable, name: str) -> None:
    """Raises TopicAlreadyExistsError, InvalidTopicError."""
    if find_topic(table, name) >= 0:
        raise TopicAlreadyExistsError(f"topic {name!r} exists already")
    check_topic_name(name)
    alike = name_alike(table, name)
    if alike is not None:
        raise InvalidTopicError(f"topic {name!r} is too like {alike!r}: '.' and '_' collide")


def check_assignment(cluster: Cluster, replicas: Sequence[int], factor: int | None = None) -> None:
    """Raises InvalidReplicaAssignmentError (validateManualPartitionAssignment).

    A negative id is refused even where Kafka has registered a broker with it.
    """
    if not isinstance(replicas, Sequence | np.ndarray) or isinstance(replicas, str | bytes):
        raise InvalidReplicaAssignmentError(f"{replicas!r:.80} is no list of brokers")
    if not len(replicas):
        raise InvalidReplicaAssignmentError("an assignment names at least one broker")
    for broker in replicas:
        if not is_integer(broker, 0, MAX_INT32) or broker not in cluster.state.brokers:
            raise InvalidReplicaAssignmentError(f"broker {broker!r:.80} is not registered")
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignmentError(f"an assignment names a broker twice: {list(replicas)}")
    if factor is not None and len(replicas) != factor:
        raise InvalidReplicaAssignmentError(
            f"an assignment has {len(replicas)} replicas, the others {factor}"
        )


def check_active(cluster: Cluster, replicas: Sequence[int], partition: int) -> None:
    """Raises InvalidReplicaAssignmentError where nobody could lead a partition placed by hand."""
    if not any(is_active(cluster, broker) for broker in replicas):
        raise InvalidReplicaAssignmentError(
            f"all brokers of partition {partition} are fenced or in controlled shutdown"
        )


def atomic(builder: BatchBuilder) -> Records:
    """What a builder holds, for one batch. Raises PolicyViolationError where it is too much."""
    if builder.record_count > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, "
            f"not {builder.record_count}"
        )
    return Records.finished(builder)
