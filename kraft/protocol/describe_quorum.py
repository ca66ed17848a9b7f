"""DescribeQuorum: voters, observers and their progress, as the leader sees them (KIP-595, 853)."""

from __future__ import annotations

from kraft._core.codec.fetch import METADATA_TOPIC
from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import UNKNOWN_TOPIC_OR_PARTITION
from kraft.protocol.common import (
    ListenerData,
    RaftRpc,
    Rejected,
    Resolve,
    directory_or_none,
    directory_or_zero,
    metadata_partition,
    only_partition,
    to_endpoints,
    to_listeners,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import (
    TOP_LEVEL_ERRORS,
    DescribedReplica,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from kraft.raft.voters import ReplicaKey

DESCRIBE_QUORUM = Api(55, "DescribeQuorum", 0, 2, 0)


class DescribePartition(Struct):
    partition_index: int = field("int32")


class DescribeTopic(Struct):
    topic_name: str = field("string")
    partitions: list[DescribePartition] = field("[]struct", of=DescribePartition)


class DescribeQuorumRequestData(Message, versions=(0, 2)):
    topics: list[DescribeTopic] = field("[]struct", of=DescribeTopic)


class ReplicaStateData(Struct):
    replica_id: int = field("int32")
    replica_directory_id: Uuid = field("uuid", since=2)
    log_end_offset: int = field("int64")
    last_fetch_timestamp: int = field("int64", -1, since=1)
    last_caught_up_timestamp: int = field("int64", -1, since=1)


class QuorumPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, since=2, nullable=True)
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    high_watermark: int = field("int64")
    current_voters: list[ReplicaStateData] = field("[]struct", of=ReplicaStateData)
    observers: list[ReplicaStateData] = field("[]struct", of=ReplicaStateData)


class QuorumTopic(Struct):
    topic_name: str = field("string")
    partitions: list[QuorumPartition] = field("[]struct", of=QuorumPartition)


class QuorumNodeData(Struct):
    node_id: int = field("int32")
    listeners: list[ListenerData] = field("[]struct", of=ListenerData)


class DescribeQuorumResponseData(Message, versions=(0, 2)):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, since=2, nullable=True)
    topics: list[QuorumTopic] = field("[]struct", of=QuorumTopic)
    nodes: list[QuorumNodeData] = field("[]struct", since=2, of=QuorumNodeData)


def encode_request(request: DescribeQuorumRequest, version: int) -> bytes:
    data = DescribeQuorumRequestData([DescribeTopic(METADATA_TOPIC, [DescribePartition()])])
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> DescribeQuorumRequest | Rejected:
    data = DescribeQuorumRequestData.decode(body, version, position)
    if only_partition(data.topics) is not None:
        return DescribeQuorumRequest()
    rejection = DescribeQuorumResponseData(
        topics=[
            QuorumTopic(
                topic.topic_name,
                [
                    QuorumPartition(at.partition_index, UNKNOWN_TOPIC_OR_PARTITION)
                    for at in topic.partitions
                ],
            )
            for topic in data.topics
        ]
    )
    return Rejected(rejection.encode(version))


def encode_response(
    response: DescribeQuorumResponse, version: int, listener: str, _: Resolve
) -> bytes:
    if response.error in TOP_LEVEL_ERRORS:
        data = DescribeQuorumResponseData(error_code=response.error)
        return data.encode(version)
    partition = QuorumPartition(
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        high_watermark=response.high_watermark,
        current_voters=[_encode_state(state, version) for state in response.voters],
        observers=[_encode_state(state, version) for state in response.observers],
    )
    data = DescribeQuorumResponseData(topics=[QuorumTopic(METADATA_TOPIC, [partition])])
    if version >= 2:
        nodes = dict(response.nodes)
        if response.leader_id >= 0 and response.leader_endpoints:
            nodes.setdefault(response.leader_id, response.leader_endpoints)
        # Kafka writes empty messages here, not null.
        data.error_message = partition.error_message = ""
        data.nodes = [QuorumNodeData(id, to_listeners(nodes[id])) for id in sorted(nodes)]
    return data.encode(version)


def _encode_state(state: DescribedReplica, version: int) -> ReplicaStateData:
    data = ReplicaStateData(replica_id=state.key.id, log_end_offset=state.log_end_offset)
    if version >= 1:
        data.last_fetch_timestamp = state.last_fetch_timestamp_ms
        data.last_caught_up_timestamp = state.last_caught_up_timestamp_ms
    if version >= 2:
        data.replica_directory_id = directory_or_zero(state.key.directory_id)
    return data


def decode_response(
    version: int, body: Body, position: int, listener: str
) -> DescribeQuorumResponse:
    data = DescribeQuorumResponseData.decode(body, version, position)
    if data.error_code != 0:
        return DescribeQuorumResponse(data.error_code)
    at: QuorumPartition = metadata_partition(data.topics, "DescribeQuorum")
    nodes = {node.node_id: to_endpoints(node.listeners) for node in data.nodes}
    # Kafka leaves the leader of an error response at 0; that does not mean node 0.
    leader_id = at.leader_id if at.error_code == 0 or at.leader_id in nodes else -1
    return DescribeQuorumResponse(
        error=at.error_code,
        epoch=at.leader_epoch,
        leader_id=leader_id,
        leader_endpoints=nodes.get(leader_id, ()),
        high_watermark=at.high_watermark,
        voters=tuple(map(_decode_state, at.current_voters)),
        observers=tuple(map(_decode_state, at.observers)),
        nodes=nodes,
    )


def _decode_state(data: ReplicaStateData) -> DescribedReplica:
    return DescribedReplica(
        ReplicaKey(data.replica_id, directory_or_none(data.replica_directory_id)),
        data.log_end_offset,
        data.last_fetch_timestamp,
        data.last_caught_up_timestamp,
    )


RPC = RaftRpc(
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
)
