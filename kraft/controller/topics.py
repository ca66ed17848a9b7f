"""Topics: create, grow, delete.

Owns the checks of Kafka's ``ReplicationControlManager.createTopics``, ``createPartitions`` and
``deleteTopics``, in their order, and the order of the records: Topic, its Config records, its
Partition records. Partitions are encoded straight from the placer's array.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from kraft import records
from kraft._core.batch import BatchBuilder
from kraft._core.creation import encode_new_partitions, partition_without_active_replica
from kraft._core.election import ElectionContext
from kraft._core.placement import PlacementSpec, ReplicaPlacer, UsableBroker, UsableBrokers
from kraft._core.table import PartitionTable
from kraft.controller.configs import config_records
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    Decision,
    Records,
    append_records,
)
from kraft.controller.state import DEFAULTS, Cluster, Settings, election_context
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
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kraft.image.configs import TOPIC
from kraft.records import Record, Uuid

_CLUSTER_METADATA = "__cluster_metadata"
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_NAME_LENGTH = 249

Replicas = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; ``topic_id`` is chosen by the caller.

    ``num_partitions`` and ``replication_factor`` -1 stand for the controller's defaults.
    ``assignments`` (partition id -> brokers) places by hand; both numbers are then -1.
    """

    name: str
    topic_id: Uuid
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: Uuid
    num_partitions: int
    replication_factor: int


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
) -> Decision[dict[str, CreatedTopic | KraftError]]:
    """Topics of one request; the response holds for each name what was made, or why not.

    Raises PolicyViolationError where the request as a whole would write more than 10,000 records.
    """
    context = election_context(cluster, settings)
    usable = usable_brokers(cluster)
    response: dict[str, CreatedTopic | KraftError] = {}
    builder = BatchBuilder()
    times_named = Counter(topic.name for topic in topics)
    asked = sum(
        len(topic.assignments) or max(_partitions(topic.num_partitions, settings), 0)
        for topic in topics
    )
    if asked > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"a request creates at most {MAX_RECORDS_PER_BATCH} partitions, not {asked}"
        )
    taken: set[str] = set()
    for topic in topics:
        try:
            if times_named[topic.name] > 1:
                raise InvalidRequestError(f"topic {topic.name!r} is named twice in the request")
            _check_name(cluster.table, topic.name, taken)
            if None in topic.configs.values():
                raise InvalidConfigError(f"a configuration of topic {topic.name!r} has no value")
            first: list[Record] = [records.Topic(name=topic.name, topic_id=topic.topic_id)]
            first += config_records(cluster, (TOPIC, topic.name), topic.configs)
            if topic.assignments:
                replicas = _assigned(cluster, context, topic)
            else:
                replicas = _placed(context, usable, topic, placer, settings)
        except KraftError as error:
            response[topic.name] = error
            continue
        taken.add(topic.name.replace(".", "_"))
        append_records(builder, first, cluster.state.metadata_version)
        for start, rows in replicas:
            encode_new_partitions(context, builder, topic.topic_id, rows, start)
        response[topic.name] = CreatedTopic(
            topic.name,
            topic.topic_id,
            sum(len(rows) for _, rows in replicas),
            replicas[0][1].shape[1],
        )
    return Decision(_atomic(builder), response, is_atomic=True)


def create_partitions(
    cluster: Cluster,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    placer: ReplicaPlacer,
    settings: Settings = DEFAULTS,
) -> Decision[int]:
    """A topic grows to ``count`` partitions; the response is how many came.

    ``assignments`` places the new ones by hand. Raises UnknownTopicOrPartitionError,
    InvalidPartitionsError where that is no growth, InvalidReplicaAssignmentError,
    InvalidReplicationFactorError, PolicyViolationError.
    """
    table = cluster.table
    number = table.topic_number(name)
    if number < 0:
        raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    rows = table.topic_rows(number)
    if count <= len(rows):
        raise InvalidPartitionsError(
            f"topic {name!r} has {len(rows)} partitions, {count} would not be an increase"
        )
    additional = count - len(rows)
    if additional > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"a request creates at most {MAX_RECORDS_PER_BATCH} partitions, not {additional}"
        )
    factor = len(table.state_of(int(rows[0]))["replicas"])
    context = election_context(cluster, settings)
    if assignments is None:
        placed = placer.place(PlacementSpec(len(rows), additional, factor), usable_brokers(cluster))
    else:
        if len(assignments) != additional:
            raise InvalidReplicaAssignmentError(
                f"{additional} partitions are to come, {len(assignments)} assignments are given"
            )
        for replicas in assignments:
            check_assignment(cluster, replicas, factor)
        placed = np.array(assignments, np.int32).reshape(additional, factor)
        _check_active(context, placed, len(rows))
    builder = BatchBuilder()
    encode_new_partitions(context, builder, table.topic_id_of(number), placed, len(rows))
    return Decision(_atomic(builder), additional, is_atomic=True)


def delete_topic(
    cluster: Cluster, name: str | None = None, topic_id: Uuid | None = None
) -> Decision[str]:
    """A topic goes, with its partitions and configuration; the response is its name.

    Raises InvalidRequestError unless just one of ``name`` and ``topic_id`` is given,
    UnknownTopicOrPartitionError, UnknownTopicIdError.
    """
    table = cluster.table
    if (name is None) == (topic_id is None):
        raise InvalidRequestError("a topic is named either by its name or by its id")
    if name is not None:
        number = table.topic_number(name)
        if number < 0:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    else:
        assert topic_id is not None
        number = table.topic_number_by_id(topic_id)
        if number < 0:
            raise UnknownTopicIdError(f"no topic has the id {topic_id!r}")
    builder = BatchBuilder()
    table.encode_topic_removal(builder, number)
    return Decision(Records.finished(builder), table.topic_name(number), is_atomic=True)


def usable_brokers(cluster: Cluster) -> UsableBrokers:
    """The brokers that may get new replicas (BrokerHeartbeatManager.usableBrokers)."""
    return UsableBrokers(
        [
            UsableBroker(broker.id, broker.rack, broker.fenced, broker.log_dirs)
            for broker in cluster.state.brokers.values()
            if not broker.in_controlled_shutdown
            and not (
                broker.cordoned_log_dirs and set(broker.log_dirs) <= set(broker.cordoned_log_dirs)
            )
        ]
    )


def check_assignment(cluster: Cluster, replicas: Sequence[int], factor: int | None = None) -> None:
    """Raises InvalidReplicaAssignmentError (validateManualPartitionAssignment)."""
    if not replicas:
        raise InvalidReplicaAssignmentError("an assignment names at least one broker")
    for broker in replicas:
        if broker not in cluster.state.brokers:
            raise InvalidReplicaAssignmentError(f"broker {broker} is not registered")
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignmentError(f"an assignment names a broker twice: {list(replicas)}")
    if factor is not None and len(replicas) != factor:
        raise InvalidReplicaAssignmentError(
            f"an assignment has {len(replicas)} replicas, the others {factor}"
        )


def _partitions(num_partitions: int, settings: Settings) -> int:
    return settings.num_partitions if num_partitions == -1 else num_partitions


def _check_name(table: PartitionTable, name: str, taken: Iterable[str]) -> None:
    if name == _CLUSTER_METADATA:
        raise InvalidRequestError(f"the topic {name} is the cluster's own")
    if not name or name in (".", "..") or len(name) > _MAX_NAME_LENGTH:
        raise InvalidTopicError(
            f"a topic's name has 1 to {_MAX_NAME_LENGTH} characters and is not '.' or '..': "
            f"{name!r}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"a topic's name consists of ASCII letters, digits, '.', '_' and '-': {name!r}"
        )
    if table.topic_number(name) >= 0:
        raise TopicAlreadyExistsError(f"topic {name!r} exists already")
    alike = name.replace(".", "_")
    if alike in taken:
        raise InvalidTopicError(f"topic {name!r} is too like another one of the request")
    if "_" not in alike:
        return
    for other in _names_alike(table, alike):
        if table.topic_number(other) >= 0:
            raise InvalidTopicError(f"topic {name!r} is too like {other!r}: '.' and '_' collide")


def _names_alike(table: PartitionTable, alike: str) -> Iterable[str]:
    """Every name that a metric could not tell from ``alike``, or every such name that exists."""
    parts = alike.split("_")
    if 1 << (len(parts) - 1) <= table.topic_count:
        for marks in product("._", repeat=len(parts) - 1):
            yield "".join(part + mark for part, mark in zip(parts, (*marks, ""), strict=True))
        return
    for number in table.topic_numbers():
        other = table.topic_name(number)
        if other.replace(".", "_") == alike:
            yield other


def _placed(
    context: ElectionContext,
    usable: UsableBrokers,
    topic: NewTopic,
    placer: ReplicaPlacer,
    settings: Settings,
) -> list[tuple[int, Replicas]]:
    factor = topic.replication_factor
    if factor < -1 or factor == 0:
        raise InvalidReplicationFactorError(
            "a replication factor is larger than 0, or -1 for the default"
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise InvalidPartitionsError("a topic has at least one partition, or -1 for the default")
    if factor == -1:
        factor = settings.default_replication_factor
    count = _partitions(topic.num_partitions, settings)
    placed = placer.place(PlacementSpec(0, count, factor), usable)
    if partition_without_active_replica(context, placed) is not None:
        raise InvalidReplicationFactorError(
            f"a partition cannot have {factor} replicas: all brokers are fenced or in controlled "
            "shutdown"
        )
    return [(0, placed)]


def _assigned(
    cluster: Cluster, context: ElectionContext, topic: NewTopic
) -> list[tuple[int, Replicas]]:
    if topic.replication_factor != -1 or topic.num_partitions != -1:
        raise InvalidRequestError(
            "with a manual assignment neither replication factor nor partitions may be given"
        )
    factor: int | None = None
    for replicas in topic.assignments.values():
        check_assignment(cluster, replicas, factor)
        factor = len(replicas)
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise InvalidReplicaAssignmentError("partitions are numbered from 0 on without gaps")
    rows = np.array(
        [topic.assignments[partition] for partition in range(len(topic.assignments))], np.int32
    )
    _check_active(context, rows, 0)
    return [(0, rows)]


def _check_active(context: ElectionContext, rows: Replicas, start: int) -> None:
    inactive = partition_without_active_replica(context, rows)
    if inactive is not None:
        raise InvalidReplicaAssignmentError(
            f"all brokers of partition {start + inactive} are fenced or in controlled shutdown"
        )


def _atomic(builder: BatchBuilder) -> Records:
    if builder.record_count > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, "
            f"not {builder.record_count}"
        )
    return Records.finished(builder)
