"""CreateTopics: decide one topic, a request of several, or more than one batch can hold.

Makes the checks of Kafka's ``ControllerApis.createTopics`` and
``ReplicationControlManager.createTopics`` in their order. The records of a topic are its Topic, its
Config records, its Partition records. Partitions are encoded directly from the placer's array.

Stricter than Kafka in one point: of two topics of *one* request whose names differ only in ``.``
against ``_``, the second is rejected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.creation import (
    encode_new_partitions,
    encode_new_topic,
    name_alike,
    partition_without_active_replica,
)
from kraft._core.decide.placement import PlacementSpec, ReplicaPlacer
from kraft._core.table.table import PartitionTable
from kraft.controller.arguments import MAX_INT16, MAX_INT32, check_uuid, find_topic, is_integer
from kraft.controller.configs.config_changes import AlterConfigPolicy, config_records
from kraft.controller.configs.config_validation import check_topic_name
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
    append_records,
    decide_whole,
)
from kraft.controller.state import (
    DEFAULTS,
    ClusterMetadata,
    DecisionSettings,
    PlacementOrder,
    is_active,
)
from kraft.controller.topics.chunked_planning import (
    ENTRIES_PER_CHUNK,
    TOPICS_PER_CHUNK,
    PartitionWriter,
    Replicas,
    check_new_partitions,
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
#: The start of Kafka's messages about manual assignments.
_MANUAL = "The manual partition assignment includes"
#: Kafka reserves the ids 0 (no topic) and 1 (the metadata topic): ``Uuid.RESERVED``.
_LAST_RESERVED_ID = (1).to_bytes(16, "big")

Assignments = Mapping[int, Sequence[int]] | Sequence[tuple[int, Sequence[int]]]
#: Called with the number of partitions that are created or deleted (KIP-599); raises
#: ThrottlingQuotaExceededError to reject them.
MutationQuota = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; the caller chooses ``topic_id``.

    -1 as ``num_partitions`` or ``replication_factor`` stands for the controller's default.
    ``assignments`` (partition id -> brokers, or such pairs) is a manual placement; then both
    numbers are -1.
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
    """The argument of a create-topic policy (CreateTopicPolicy.RequestMetadata).

    If ``assignments`` are given, both numbers are None; otherwise ``assignments`` is None.
    """

    name: str
    num_partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str | None]


#: Raises to reject a topic; a KraftError such as PolicyViolationError is the topic's response.
CreateTopicPolicy = Callable[[TopicMetadata], None]


class CreationRules(NamedTuple):
    """Authorization, policies and quota of a request.

    ``is_authorized`` returns whether the client may create a topic of a name; None allows all.
    ``config_policy`` checks the configuration of a new topic before ``policy`` checks the topic
    (ReplicationControlManager.createTopics).
    """

    is_authorized: Callable[[str], bool] | None = None
    policy: CreateTopicPolicy | None = None
    config_policy: AlterConfigPolicy | None = None
    quota: MutationQuota | None = None


_NO_RULES = CreationRules()
TopicResults = dict[str, CreatedTopic | KraftError]


def create_topic(
    cluster: ClusterMetadata,
    topic: NewTopic,
    *,
    placer: ReplicaPlacer,
    settings: DecisionSettings = DEFAULTS,
) -> Decision[CreatedTopic]:
    """Decide one topic of any size. Raises the error that `create_topics` would respond for it.

    More than 10,000 records are one metadata transaction: see `decide_whole`.
    """
    decision = decide_whole(
        "create topic",
        create_topics(
            cluster,
            [topic],
            placer=placer,
            settings=settings,
        ),
        cluster.state.metadata_version,
    )
    result = decision.response[topic.name]
    if isinstance(result, KraftError):
        raise result
    return Decision(decision.records, result, is_atomic=decision.is_atomic)


def create_topics(
    cluster: ClusterMetadata,
    topics: Sequence[NewTopic],
    *,
    placer: ReplicaPlacer,
    settings: DecisionSettings = DEFAULTS,
    order: PlacementOrder | None = None,
    rules: CreationRules = _NO_RULES,
    validate_only: bool = False,
    at_once: int = MAX_RECORDS_PER_BATCH,
    most: int = sys.maxsize,
) -> ChunkedDecision[TopicResults]:
    """Decide the topics of one request; the response maps each name to a `CreatedTopic` or an
    error.

    More than ``at_once`` records are written in chunks of at most 10,000, all of them decided
    against the brokers at the beginning. With ``validate_only`` there are no records. Raises
    PolicyViolationError for more than ``most`` partitions, and for more than 10,000 records at
    once.
    """
    asked = others = 0
    for start in range(0, len(topics), ENTRIES_PER_CHUNK):
        if start:
            yield NO_RECORDS
        entries = topics[start : start + ENTRIES_PER_CHUNK]
        asked += requested_partitions(entries, settings)
        others += sum(1 + len(topic.configs or ()) for topic in entries)
    check_new_partitions(asked, most)
    is_large = asked + others > at_once
    if is_large:
        yield NO_RECORDS
    creation = _TopicCreation(cluster, placer, settings, rules, order, is_large, asked)
    if creation.is_planned_first(topics):
        is_kept = not (is_large and validate_only)
        plans = yield from creation.plans_in_chunks(topics, is_kept=is_kept)
    else:
        plans = creation.plans(topics)
    builder = BatchBuilder()
    for place, (topic, configs, replicas, count) in enumerate(plans):
        is_chunk_full = place > 0 and place % TOPICS_PER_CHUNK == 0
        if is_large and (
            is_chunk_full or len(configs) + 1 > MAX_RECORDS_PER_BATCH - builder.record_count
        ):
            yield Records.finished(builder)
            builder = BatchBuilder()
        elif is_chunk_full:
            yield NO_RECORDS
        encode_new_topic(builder, topic.name, topic.topic_id)
        if configs:
            append_records(builder, configs, creation.context.metadata_version)
        if is_large:
            builder = yield from creation.encode_in_chunks(
                builder, topic.topic_id, replicas, 0, count
            )
        else:
            encode_new_partitions(creation.context, builder, topic.topic_id, replicas)
    last = atomic(builder)
    return Decision(NO_RECORDS if validate_only else last, creation.response, is_atomic=True)


def requested_partitions(topics: Iterable[NewTopic], settings: DecisionSettings = DEFAULTS) -> int:
    """Return how many partitions a request would create, with defaults; invalid counts are 0.

    Source: ``ReplicationControlManager.validateTotalNumberOfPartitions``.
    """
    asked = 0
    for topic in topics:
        count = topic.num_partitions
        if topic.assignments:
            asked += len(topic.assignments)
        elif count == -1:
            asked += settings.num_partitions
        else:
            asked += valid_count(count)
    return asked


def valid_count(partitions: object) -> int:
    """Return a number of partitions, 0 for an invalid value."""
    return int(partitions) if is_integer(partitions, 0, MAX_INT32) else 0  # type: ignore[call-overload]


class _PlannedTopic(NamedTuple):
    """A topic that passed all checks; only its first 10,000 partitions are placed yet."""

    topic: NewTopic
    configs: list[Record]
    replicas: Replicas
    num_partitions: int


class _TopicCreation(PartitionWriter[NewTopic, _PlannedTopic]):
    """The state of one request: its inputs, and the response so far."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        placer: ReplicaPlacer,
        settings: DecisionSettings,
        rules: CreationRules,
        order: PlacementOrder | None,
        is_large: bool,
        asked: int,
    ) -> None:
        super().__init__(cluster, placer, settings, order, is_large)
        self._table = cluster.table
        self._settings = settings
        self._rules = rules
        self._asked = asked
        #: Names of this request that contain ``.`` or ``_``, with all ``.`` replaced by ``_``
        #: (metric names).
        self._marked: set[str] = set()
        #: Ids of the topics that this request creates.
        self._ids: set[Uuid] = set()
        self.response: TopicResults = {}

    def check_admitted(self, topics: Sequence[NewTopic]) -> None:
        if self.is_large or self._asked <= MAX_RECORDS_PER_BATCH:
            return
        asked = requested_partitions(topics, self._settings)
        if asked > MAX_RECORDS_PER_BATCH:
            raise PolicyViolationError(
                f"a request creates at most {MAX_RECORDS_PER_BATCH} partitions, not {asked}"
            )

    def admitted(self, topic: NewTopic) -> NewTopic | None:
        error = self._refusal(topic.name)
        if error is None:
            return topic
        self.response[topic.name] = error
        return None

    def _refusal(self, name: str) -> KraftError | None:
        """Return the error of a topic that may not be planned, or None."""
        if name in self.repeated:
            return InvalidRequestError(f"topic {name!r} is named twice in the request")
        if name == _CLUSTER_METADATA:
            return InvalidRequestError(f"Creation of internal topic {name} is prohibited.")
        if self._rules.is_authorized is not None and not self._rules.is_authorized(name):
            return TopicAuthorizationError(f"the client may not create topic {name!r}")
        return None

    def plan(self, topic: NewTopic) -> _PlannedTopic | None:
        try:
            check_new_name(self._table, topic.name)
            marked = topic.name.replace(".", "_")
            if marked in self._marked:
                raise InvalidTopicError(
                    f"topic {topic.name!r} and another of the request collide in metric names: "
                    "they differ only in . and _"
                )
            configs: list[Record] = []
            if topic.configs:
                if valueless := [name for name, value in topic.configs.items() if value is None]:
                    raise InvalidConfigError(
                        f"Null value not supported for topic configs: {','.join(valueless)}"
                    )
                configs = config_records(
                    self.cluster,
                    (TOPIC, topic.name),
                    topic.configs,
                    self._settings,
                    self._rules.config_policy,
                )
                if len(configs) >= MAX_RECORDS_PER_BATCH:
                    raise PolicyViolationError(
                        f"topic {topic.name!r} has {len(configs)} configurations; a request may "
                        f"have at most {MAX_RECORDS_PER_BATCH - 1}"
                    )
            if topic.assignments:
                replicas = self._assigned(topic)
                count = len(replicas)
            else:
                replicas, count = self._placed(topic)
            self._check_new_id(topic.topic_id)
            if self._rules.quota is not None:
                self._rules.quota(count)
        except KraftError as error:
            self.response[topic.name] = error.as_result()
            return None
        if "_" in marked:
            self._marked.add(marked)
        self._ids.add(topic.topic_id)
        self.response[topic.name] = CreatedTopic(
            topic.name, topic.topic_id, count, replicas.shape[1]
        )
        return _PlannedTopic(topic, configs, replicas, count)

    def _check_new_id(self, topic_id: Uuid) -> None:
        """Raise InvalidRequestError for an id that another topic has or that Kafka reserves: to
        replay such a record would end the process.
        """
        check_uuid("the id of a topic", topic_id)
        if topic_id <= _LAST_RESERVED_ID:
            raise InvalidRequestError(f"the topic id {topic_id!r} is reserved")
        if topic_id in self._ids or self._table.topic_number_by_id(topic_id) >= 0:
            raise InvalidRequestError(f"another topic has the id {topic_id!r}")

    def _placed(self, topic: NewTopic) -> tuple[Replicas, int]:
        factor = topic.replication_factor
        count = topic.num_partitions
        if not is_integer(factor, -1, MAX_INT16) or factor == 0:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if not is_integer(count, -1, MAX_INT32) or count == 0:
            raise InvalidPartitionsError(
                "Number of partitions was set to an invalid non-positive value."
            )
        if factor == -1:
            factor = self._settings.default_replication_factor
        if count == -1:
            count = self._settings.num_partitions
        spec = PlacementSpec(0, min(count, MAX_RECORDS_PER_BATCH), factor)
        placed = self.placer.place(spec, self.usable)
        if partition_without_active_replica(self.context, placed) is not None:
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): All brokers are currently "
                "fenced or in controlled shutdown."
            )
        if self._rules.policy is not None:
            metadata = TopicMetadata(topic.name, count, factor, None, topic.configs)
            _call_policy(self._rules.policy, metadata)
        return placed, count

    def _assigned(self, topic: NewTopic) -> Replicas:
        for value, name in (
            (topic.replication_factor, "replication factor"),
            (topic.num_partitions, "numPartitions"),
        ):
            if value != -1:
                raise InvalidRequestError(
                    f"A manual partition assignment was specified, but {name} was not set to -1."
                )
        given = topic.assignments
        pairs = given.items() if isinstance(given, Mapping) else given
        by_id: dict[int, Sequence[int]] = {}
        factor: int | None = None
        for partition, replicas in pairs:
            if not is_integer(partition, 0, MAX_INT32):
                raise InvalidReplicaAssignmentError(f"{partition!r:.80} is not a partition id")
            if partition in by_id:
                raise InvalidReplicaAssignmentError(
                    f"Found multiple manual partition assignments for partition {partition}"
                )
            check_assignment(self.cluster, replicas, factor)
            check_active(self.cluster, replicas, partition)
            factor = len(replicas)
            by_id[partition] = replicas
        if not all(partition in by_id for partition in range(len(by_id))):
            raise InvalidReplicaAssignmentError(
                "partitions should be a consecutive 0-based integer sequence"
            )
        if self._rules.policy is not None:
            metadata = TopicMetadata(topic.name, None, None, by_id, topic.configs)
            _call_policy(self._rules.policy, metadata)
        return np.array([by_id[partition] for partition in range(len(by_id))], np.int32)


def _call_policy(policy: CreateTopicPolicy, metadata: TopicMetadata) -> None:
    """Call a policy; any exception becomes the error of the topic, as since Kafka 4.1."""
    try:
        policy(metadata)
    except KraftError:
        raise
    except Exception as error:
        raise UnknownServerError(
            f"the policy for new topics failed on {metadata.name!r}: {error}"
        ) from error


def check_new_name(table: PartitionTable, name: str) -> None:
    """Check the name of a new topic. Raises TopicAlreadyExistsError, InvalidTopicError."""
    if find_topic(table, name) >= 0:
        raise TopicAlreadyExistsError(f"Topic {name!r} already exists.")
    check_topic_name(name)
    alike = name_alike(table, name)
    if alike is not None:
        raise InvalidTopicError(f"topic {name!r} collides in metric names with {alike!r}")


def check_assignment(
    cluster: ClusterMetadata, replicas: Sequence[int], factor: int | None = None
) -> None:
    """Check a manual assignment (validateManualPartitionAssignment).

    The messages are Kafka's, which its tests compare. Raises InvalidReplicaAssignmentError, also
    for a negative id that Kafka has registered.
    """
    if not isinstance(replicas, Sequence | np.ndarray) or isinstance(replicas, str | bytes):
        raise InvalidReplicaAssignmentError(f"{replicas!r:.80} is not a list of brokers")
    if not len(replicas):
        raise InvalidReplicaAssignmentError(f"{_MANUAL} an empty replica list.")
    for broker in replicas:
        if not is_integer(broker, 0, MAX_INT32) or broker not in cluster.state.brokers:
            raise InvalidReplicaAssignmentError(
                f"{_MANUAL} broker {broker!r:.80}, but no such broker is registered."
            )
    if len(set(replicas)) < len(replicas):
        repeated = next(a for a, b in pairwise(sorted(replicas)) if a == b)
        raise InvalidReplicaAssignmentError(f"{_MANUAL} the broker {repeated} more than once.")
    if factor is not None and len(replicas) != factor:
        raise InvalidReplicaAssignmentError(
            f"{_MANUAL} a partition with {len(replicas)} replica(s), but this is not consistent "
            f"with previous partitions, which have {factor} replica(s)."
        )


def check_active(cluster: ClusterMetadata, replicas: Sequence[int], partition: int) -> None:
    """Raise InvalidReplicaAssignmentError if no replica of a manual assignment could lead."""
    if not any(is_active(cluster, broker) for broker in replicas):
        raise InvalidReplicaAssignmentError(
            f"All brokers specified in the manual partition assignment for partition {partition} "
            "are fenced or in controlled shutdown."
        )


def atomic(builder: BatchBuilder) -> Records:
    """Return the records of a builder, for one batch. Raises PolicyViolationError if they are too
    many.
    """
    if builder.record_count > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, "
            f"not {builder.record_count}"
        )
    return Records.finished(builder)
