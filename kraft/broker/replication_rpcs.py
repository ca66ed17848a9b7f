"""The requests of the replication to other nodes, between its own types and Kafka's messages.

Pure. Fetch and ListOffsets go to leader brokers, AlterPartition and AssignReplicasToDirs to the
active controller. Sources: Kafka's ``RemoteLeaderEndPoint``, ``DefaultAlterPartitionManager``,
``AssignmentsManager`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    CommittedIsr,
    FetchPartition,
    IsrChangeResponse,
    IsrProposal,
    ListedOffset,
    PartitionId,
    ReceivedFetch,
    ReceivedPartition,
)
from kraft.broker.replication.replica_fetching import OffsetQuery
from kraft.errors import InvalidRequestError
from kraft.protocol.alter_partition import (
    ALTER_PARTITION,
    AlterPartitionRequestData,
    AlterPartitionResponseData,
    IsrMember,
    IsrPartition,
    IsrTopic,
)
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequestData,
    AssignReplicasToDirsResponseData,
    DirectoryPartition,
    DirectoryReplicas,
    DirectoryTopic,
)
from kraft.protocol.fetch import (
    FetchedPartitionData,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequestData,
    FetchResponseData,
    FetchTopicData,
    ForgottenTopicData,
)
from kraft.protocol.headers import newest_common_version
from kraft.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequestData,
    ListOffsetsResponseData,
    ListOffsetsTopic,
)
from kraft.records import Uuid

#: AlterPartition names broker epochs from this version on (KIP-903).
_FIRST_WITH_BROKER_EPOCHS = 3


def fetch_request(request: BrokerFetchRequest) -> FetchRequestData:
    """Return a follower's Fetch; only version 15 and later can carry it (Kafka 3.5)."""
    return FetchRequestData(
        replica_state=FetchReplicaState(request.replica_id, request.replica_epoch),
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=[
            FetchTopicData(topic_id=Uuid(topic_id), partitions=[_to_fetch(each) for each in group])
            for topic_id, group in groupby(request.partitions, lambda each: each.id.topic_id)
        ],
        forgotten_topics_data=[
            ForgottenTopicData(topic_id=Uuid(topic_id), partitions=[id.partition for id in group])
            for topic_id, group in groupby(request.forgotten, lambda id: id.topic_id)
        ],
    )


def _to_fetch(fetch: FetchPartition) -> FetchPartitionData:
    return FetchPartitionData(
        fetch.id.partition,
        fetch.leader_epoch,
        fetch.fetch_offset,
        fetch.last_fetched_epoch,
        fetch.log_start_offset,
        fetch.max_bytes,
    )


def received_fetch(response: FetchResponseData) -> ReceivedFetch:
    """Return a leader's response; the records stay views of its frame."""
    return ReceivedFetch(
        response.error_code,
        response.session_id,
        [
            _received(PartitionId(bytes(topic.topic_id), each.partition_index), each)
            for topic in response.responses
            for each in topic.partitions
        ],
    )


def _received(id: PartitionId, fetched: FetchedPartitionData) -> ReceivedPartition:
    records, diverging = fetched.records, fetched.diverging_epoch
    assert not isinstance(records, FileSlice)
    return ReceivedPartition(
        id,
        fetched.error_code,
        fetched.high_watermark,
        fetched.log_start_offset,
        b"" if records is None else records,
        None if diverging.epoch < 0 else EpochEndOffset(diverging.epoch, diverging.end_offset),
    )


def list_offsets_request(
    replica_id: int, topic: str, queries: Sequence[OffsetQuery]
) -> ListOffsetsRequestData:
    """Return a replica's ListOffsets for partitions of one topic."""
    return ListOffsetsRequestData(
        replica_id,
        topics=[
            ListOffsetsTopic(
                topic,
                [
                    ListOffsetsPartition(query.id.partition, query.leader_epoch, query.timestamp_ms)
                    for query in queries
                ],
            )
        ],
    )


def listed_offset(response: ListOffsetsResponseData) -> ListedOffset:
    """Return the only partition of a response. Raises `InvalidRequestError` without it."""
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise InvalidRequestError("a response to ListOffsets for one partition has not one")
    (listed,) = response.topics[0].partitions
    return ListedOffset(listed.error_code, listed.offset, listed.timestamp, listed.leader_epoch)


def alter_partition_request(
    broker_id: int,
    broker_epoch: int,
    proposals: Sequence[IsrProposal],
    controller: PeerVersions | None,
) -> AlterPartitionRequestData:
    """Return the proposals in the form of the version that ``controller`` will be sent.

    Without a known controller it is the newest: none before Kafka 3.5 lacks the broker epochs.
    """
    version = (
        None if controller is None else newest_common_version(ALTER_PARTITION, controller.ranges)
    )
    has_epochs = version is None or version >= _FIRST_WITH_BROKER_EPOCHS
    topics: dict[bytes, list[IsrPartition]] = {}
    for proposal in proposals:
        partition = IsrPartition(
            proposal.id.partition,
            proposal.leader_epoch,
            [] if has_epochs else list(proposal.isr),
            [IsrMember(*member) for member in proposal.isr.items()] if has_epochs else [],
            partition_epoch=proposal.partition_epoch,
        )
        topics.setdefault(proposal.id.topic_id, []).append(partition)
    return AlterPartitionRequestData(
        broker_id,
        broker_epoch,
        [IsrTopic(Uuid(topic_id), partitions) for topic_id, partitions in topics.items()],
    )


def isr_change_response(response: AlterPartitionResponseData) -> IsrChangeResponse:
    """Return the outcome of each partition."""
    outcomes: dict[PartitionId, CommittedIsr | int] = {}
    for topic in response.topics:
        for each in topic.partitions:
            id = PartitionId(bytes(topic.topic_id), each.partition_index)
            if each.error_code:
                outcomes[id] = each.error_code
            else:
                outcomes[id] = CommittedIsr(
                    each.leader_id, each.leader_epoch, each.partition_epoch, tuple(each.isr)
                )
    return IsrChangeResponse(response.error_code, outcomes)


def assignment_request(
    broker_id: int, broker_epoch: int, directories: Mapping[PartitionId, bytes]
) -> AssignReplicasToDirsRequestData:
    """Return the directories of partitions by directory and topic."""
    grouped: dict[bytes, dict[bytes, list[DirectoryPartition]]] = {}
    for id, directory in directories.items():
        topics = grouped.setdefault(directory, {})
        topics.setdefault(id.topic_id, []).append(DirectoryPartition(id.partition))
    return AssignReplicasToDirsRequestData(
        broker_id,
        broker_epoch,
        [
            DirectoryReplicas(
                Uuid(directory),
                [DirectoryTopic(Uuid(topic_id), each) for topic_id, each in topics.items()],
            )
            for directory, topics in grouped.items()
        ],
    )


def assignment_errors(
    response: AssignReplicasToDirsResponseData,
) -> Iterable[tuple[PartitionId, int]]:
    """Yield each partition of a response with its error, 0 if it was assigned."""
    for directory in response.directories:
        for topic in directory.topics:
            for each in topic.partitions:
                yield PartitionId(bytes(topic.topic_id), each.partition_index), each.error_code
