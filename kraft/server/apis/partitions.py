"""APIs of single partitions: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments.

Source: ``ControllerApis`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kraft.controller.decision import NO_RECORDS, Decision
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.topics.elections import ElectionResults, ElectionType
from kraft.controller.topics.reassignment import Reassignment, list_partition_reassignments
from kraft.errors import InvalidRequestError
from kraft.protocol.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequestData,
    AlterPartitionReassignmentsResponseData,
    ReassignablePartition,
    ReassignedPartition,
    ReassignedTopic,
)
from kraft.protocol.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersPartitionResult,
    ElectLeadersRequestData,
    ElectLeadersResponseData,
    ElectLeadersTopicResult,
)
from kraft.protocol.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequestData,
    ListPartitionReassignmentsResponseData,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.error_responses import (
    reassigned_partition,
    reject_alter_partition_reassignments,
    reject_elect_leaders,
    reject_list_partition_reassignments,
)
from kraft.server.apis.slices import in_slices
from kraft.server.controller import ControllerRunner

_ELECTION_TYPES = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}


def partition_apis(runner: ControllerRunner) -> Iterator[AnyApi]:
    """Yield the APIs of single partitions."""
    yield _elect_leaders(runner)
    yield _alter_partition_reassignments(runner)
    yield _list_partition_reassignments(runner)


def _elect_leaders(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: ElectLeadersRequestData, context: CallContext
    ) -> ElectLeadersResponseData:
        election = _ELECTION_TYPES.get(data.election_type)
        if election is None:
            raise InvalidRequestError(
                f"unknown election type {data.election_type}; 0 is preferred, 1 is unclean"
            )
        partitions: dict[str, list[int]] | None = None
        if data.topic_partitions is not None:
            partitions = {}
            for topic in data.topic_partitions:
                partitions.setdefault(topic.topic, []).extend(topic.partitions)
        operation = requests.elect_leaders(election, partitions)
        results: ElectionResults = await runner.submit(operation, timeout_ms=data.timeout_ms)
        topics: list[ElectLeadersTopicResult] = []

        def add(result: tuple[str, int, int]) -> None:
            if not topics or topics[-1].topic != result[0]:
                topics.append(ElectLeadersTopicResult(result[0], []))
            topics[-1].partition_result.append(_elected(results, *result))

        # Names are read at once where the table has them: topics may be deleted between slices.
        await in_slices(add, list(results) if results.names is None else results)
        return ElectLeadersResponseData(replica_election_results=topics)

    return ListenerApi(ELECT_LEADERS, ElectLeadersRequestData.decode, answer, reject_elect_leaders)


def _elected(
    results: ElectionResults, topic: str, partition: int, code: int
) -> ElectLeadersPartitionResult:
    if code == 0:
        return ElectLeadersPartitionResult(partition)
    return ElectLeadersPartitionResult(partition, code, str(results.error(topic, partition, code)))


def _alter_partition_reassignments(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: AlterPartitionReassignmentsRequestData, context: CallContext
    ) -> AlterPartitionReassignmentsResponseData:
        targets: dict[tuple[str, int], list[int] | None] = {}

        def read(entry: tuple[str, ReassignablePartition]) -> None:
            targets[entry[0], entry[1].partition_index] = entry[1].replicas

        await in_slices(read, _partitions(data))
        operation = requests.alter_partition_reassignments(
            targets, allow_replication_factor_change=data.allow_replication_factor_change
        )
        results = await runner.submit(operation, timeout_ms=data.timeout_ms)

        def answered(entry: tuple[str, ReassignablePartition]) -> ReassignedPartition:
            index = entry[1].partition_index
            return reassigned_partition(index, results[entry[0], index])

        partitions = iter(await in_slices(answered, _partitions(data)))
        return AlterPartitionReassignmentsResponseData(
            allow_replication_factor_change=data.allow_replication_factor_change,
            responses=[
                ReassignedTopic(topic.name, list(islice(partitions, len(topic.partitions))))
                for topic in data.topics
            ],
        )

    return ListenerApi(
        ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequestData.decode,
        answer,
        reject_alter_partition_reassignments,
    )


def _partitions(
    data: AlterPartitionReassignmentsRequestData,
) -> Iterator[tuple[str, ReassignablePartition]]:
    """Yield each partition of a request, with the name of its topic."""
    return ((topic.name, each) for topic in data.topics for each in topic.partitions)


def _list_partition_reassignments(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: ListPartitionReassignmentsRequestData, context: CallContext
    ) -> ListPartitionReassignmentsResponseData:
        asked = None
        if data.topics is not None:
            asked = [
                (topic.name, partition)
                for topic in data.topics
                for partition in topic.partition_indexes
            ]
        # An operation without records: its response waits until all earlier ones are committed.
        operation = Operation(
            "list partition reassignments",
            lambda context: Decision(
                NO_RECORDS, list_partition_reassignments(context.cluster, asked)
            ),
        )
        ongoing: dict[tuple[str, int], Reassignment] = await runner.submit(
            operation, timeout_ms=data.timeout_ms
        )
        by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
        for (topic, partition), found in ongoing.items():
            by_topic.setdefault(topic, []).append(
                OngoingPartitionReassignment(
                    partition,
                    list(found.replicas),
                    list(found.adding_replicas),
                    list(found.removing_replicas),
                )
            )
        return ListPartitionReassignmentsResponseData(
            topics=[OngoingTopicReassignment(*each) for each in by_topic.items()]
        )

    return ListenerApi(
        LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequestData.decode,
        answer,
        reject_list_partition_reassignments,
    )
