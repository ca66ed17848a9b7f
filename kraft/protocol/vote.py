"""Vote: a candidate asks a voter for its vote, or for a pre-vote (KIP-595, 853, 996)."""

from __future__ import annotations

from kraft._core.codec.fetch import METADATA_TOPIC
from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import INVALID_REQUEST
from kraft.protocol.common import (
    NodeEndpointData,
    RaftRpc,
    Rejected,
    Resolve,
    directory_or_zero,
    leader_endpoints,
    metadata_partition,
    only_partition,
    receiver,
    replica_key,
    to_node_endpoints,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import TOP_LEVEL_ERRORS, VoteRequest, VoteResponse

VOTE = Api(52, "Vote", 0, 2, 0)


class VotePartition(Struct):
    partition_index: int = field("int32")
    replica_epoch: int = field("int32")
    replica_id: int = field("int32")
    replica_directory_id: Uuid = field("uuid", since=1)
    voter_directory_id: Uuid = field("uuid", since=1)
    last_offset_epoch: int = field("int32")
    last_offset: int = field("int64")
    pre_vote: bool = field("bool", since=2)


class VoteTopic(Struct):
    topic_name: str = field("string")
    partitions: list[VotePartition] = field("[]struct", of=VotePartition)


class VoteRequestData(Message, versions=(0, 2)):
    cluster_id: str | None = field("string", None, nullable=True)
    voter_id: int = field("int32", -1, since=1)
    topics: list[VoteTopic] = field("[]struct", of=VoteTopic)


class VotedPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    vote_granted: bool = field("bool")


class VotedTopic(Struct):
    topic_name: str = field("string")
    partitions: list[VotedPartition] = field("[]struct", of=VotedPartition)


class VoteResponseData(Message, versions=(0, 2)):
    error_code: int = field("int16")
    topics: list[VotedTopic] = field("[]struct", of=VotedTopic)
    node_endpoints: list[NodeEndpointData] = field("[]struct", since=1, tag=0, of=NodeEndpointData)


def encode_request(request: VoteRequest, version: int) -> bytes:
    partition = VotePartition(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.is_pre_vote,
    )
    data = VoteRequestData(
        cluster_id=request.cluster_id,
        topics=[VoteTopic(METADATA_TOPIC, [partition])],
    )
    if version >= 1:
        partition.replica_directory_id = directory_or_zero(request.candidate.directory_id)
        if request.voter is not None:
            data.voter_id = request.voter.id
            partition.voter_directory_id = directory_or_zero(request.voter.directory_id)
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> VoteRequest | Rejected:
    data = VoteRequestData.decode(body, version, position)
    partition: VotePartition | None = only_partition(data.topics)
    if partition is None:
        rejection = VoteResponseData(error_code=INVALID_REQUEST)
        return Rejected(rejection.encode(version))
    return VoteRequest(
        cluster_id=data.cluster_id,
        epoch=partition.replica_epoch,
        candidate=replica_key(partition.replica_id, partition.replica_directory_id),
        voter=receiver(data.voter_id, partition.voter_directory_id),
        last_epoch=partition.last_offset_epoch,
        last_offset=partition.last_offset,
        is_pre_vote=partition.pre_vote,
    )


def encode_response(response: VoteResponse, version: int, listener: str, _: Resolve) -> bytes:
    if response.error in TOP_LEVEL_ERRORS:
        data = VoteResponseData(error_code=response.error)
        return data.encode(version)
    partition = VotedPartition(
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.is_granted,
    )
    data = VoteResponseData(topics=[VotedTopic(METADATA_TOPIC, [partition])])
    if version >= 1:
        data.node_endpoints = to_node_endpoints(
            response.leader_id, response.leader_endpoints, listener
        )
    return data.encode(version)


def decode_response(version: int, body: Body, position: int, listener: str) -> VoteResponse:
    data = VoteResponseData.decode(body, version, position)
    if data.error_code != 0:
        return VoteResponse(data.error_code)
    partition: VotedPartition = metadata_partition(data.topics, "Vote")
    return VoteResponse(
        error=partition.error_code,
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        leader_endpoints=leader_endpoints(partition.leader_id, data.node_endpoints, listener),
        is_granted=partition.vote_granted,
    )


RPC = RaftRpc(
    VOTE,
    VoteRequest,
    VoteResponse,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
)
