"""Elect leaders, and move replicas (KIP-455, KIP-460, KIP-183)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kraft.admin.calls import ControllerCalls
from kraft.admin.results import ItemResults, in_order, result_of
from kraft.controller.topics.elections import ElectionType, TopicPartition
from kraft.controller.topics.reassignment import Reassignment
from kraft.errors import UnsupportedVersionError
from kraft.protocol.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequestData,
    AlterPartitionReassignmentsResponseData,
    ReassignablePartition,
    ReassignableTopic,
)
from kraft.protocol.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequestData,
    ElectLeadersResponseData,
    ElectLeadersTopic,
)
from kraft.protocol.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequestData,
    ListPartitionReassignmentsResponseData,
    ListReassignmentsTopic,
)


def elect_leaders(
    calls: ControllerCalls,
    election_type: ElectionType,
    partitions: Iterable[TopicPartition] | None = None,
) -> ItemResults[TopicPartition, None]:
    """Elect the preferred leader, or an unclean one, of each partition; None elects in all.

    For all partitions the result has only those whose leader changed or could not be elected. Items
    fail with ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION. Raises QuorumRefusedError, QuorumUnreachableError. Source:
    ``KafkaAdminClient.electLeaders``.
    """
    wanted = None if partitions is None else list(dict.fromkeys(partitions))
    topics = None
    if wanted is not None:
        topics = [ElectLeadersTopic(name, indexes) for name, indexes in _by_topic(wanted).items()]
    response, is_repeated = calls.call_whole(
        ELECT_LEADERS,
        ElectLeadersRequestData(election_type.value, topics, calls.controller_timeout_ms),
        ElectLeadersResponseData,
        "electing leaders",
    )
    results = {
        (topic.topic, each.partition_id): result_of(
            each.error_code,
            each.error_message,
            _electing((topic.topic, each.partition_id)),
            None,
            is_repeated,
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    }
    return ItemResults(results) if wanted is None else in_order(wanted, results, _electing)


def alter_partition_reassignments(
    calls: ControllerCalls,
    reassignments: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> ItemResults[TopicPartition, None]:
    """Begin to move each partition to the given brokers; None cancels its reassignment.

    The call returns when the reassignments are in the metadata; the brokers then move the data, and
    `list_partition_reassignments` has those that are not complete. Items fail with
    NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION. Controllers
    before 4.1 do not know ``allow_replication_factor_change`` (KIP-860); False is then an
    UnsupportedVersionError. Raises QuorumRefusedError, QuorumUnreachableError. Source:
    ``KafkaAdminClient.alterPartitionReassignments``.
    """
    topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for (name, index), replicas in reassignments.items():
        topics[name].append(
            ReassignablePartition(index, None if replicas is None else list(replicas))
        )
    request = AlterPartitionReassignmentsRequestData(
        calls.controller_timeout_ms,
        allow_replication_factor_change,
        [ReassignableTopic(*each) for each in topics.items()],
    )
    try:
        response, is_repeated = calls.call_whole(
            ALTER_PARTITION_REASSIGNMENTS,
            request,
            AlterPartitionReassignmentsResponseData,
            "altering reassignments",
        )
    except UnsupportedVersionError as error:
        if not allow_replication_factor_change:
            error.add_note(
                "only controllers of Apache Kafka 4.1 or newer can reject a change of the "
                "replication factor: allow it, and compare the numbers of replicas beforehand"
            )
        raise
    results = {
        (topic.name, each.partition_index): result_of(
            each.error_code,
            each.error_message,
            _reassigning((topic.name, each.partition_index)),
            None,
            is_repeated,
        )
        for topic in response.responses
        for each in topic.partitions
    }
    return in_order(reassignments, results, _reassigning)


def list_partition_reassignments(
    calls: ControllerCalls, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress of the given partitions, by default of all.

    Raises QuorumRefusedError, QuorumUnreachableError. Source:
    ``KafkaAdminClient.listPartitionReassignments``.
    """
    topics = None
    if partitions is not None:
        found = _by_topic(partitions)
        topics = [ListReassignmentsTopic(name, indexes) for name, indexes in found.items()]
    response = calls.call_whole(
        LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequestData(calls.controller_timeout_ms, topics),
        ListPartitionReassignmentsResponseData,
        "listing reassignments",
    ).response
    return {
        (topic.name, each.partition_index): Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for name, index in partitions:
        topics[name].append(index)
    return topics


def _electing(partition: TopicPartition) -> str:
    return f"electing the leader of {partition[0]}-{partition[1]}"


def _reassigning(partition: TopicPartition) -> str:
    return f"reassigning {partition[0]}-{partition[1]}"
