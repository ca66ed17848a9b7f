"""BeginQuorumEpoch: a new leader announces its epoch to the voters (KIP-595, 853)."""

from __future__ import annotations

from kraft._core.codec.fetch import METADATA_TOPIC
from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol import quorum_epoch
from kraft.protocol.common import (
    ListenerData,
    RaftRpc,
    Rejected,
    directory_or_zero,
    only_partition,
    receiver,
    to_endpoints,
    to_listeners,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraft.raft.voters import ReplicaKey

BEGIN_QUORUM_EPOCH = Api(53, "BeginQuorumEpoch", 0, 1, 1)


class BeginPartition(Struct):
    partition_index: int = field("int32")
    voter_directory_id: Uuid = field("uuid", since=1)
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class BeginTopic(Struct):
    topic_name: str = field("string")
    partitions: list[BeginPartition] = field("[]struct", of=BeginPartition)


class BeginQuorumEpochRequestData(Message, versions=(0, 1), flexible_since=1):
    cluster_id: str | None = field("string", None, nullable=True)
    voter_id: int = field("int32", -1, since=1)
    topics: list[BeginTopic] = field("[]struct", of=BeginTopic)
    leader_endpoints: list[ListenerData] = field("[]struct", since=1, of=ListenerData)


def encode_request(request: BeginQuorumEpochRequest, version: int) -> bytes:
    partition = BeginPartition(leader_id=request.leader_id, leader_epoch=request.epoch)
    data = BeginQuorumEpochRequestData(
        cluster_id=request.cluster_id, topics=[BeginTopic(METADATA_TOPIC, [partition])]
    )
    if version >= 1:
        voter = request.voter or ReplicaKey(-1)
        data.voter_id = voter.id
        partition.voter_directory_id = directory_or_zero(voter.directory_id)
        data.leader_endpoints = to_listeners(request.leader_endpoints)
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> BeginQuorumEpochRequest | Rejected:
    data = BeginQuorumEpochRequestData.decode(body, version, position)
    partition: BeginPartition | None = only_partition(data.topics)
    if partition is None:
        return quorum_epoch.reject(version)
    return BeginQuorumEpochRequest(
        cluster_id=data.cluster_id,
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        voter=receiver(data.voter_id, partition.voter_directory_id),
        leader_endpoints=to_endpoints(data.leader_endpoints),
    )


def decode_response(
    version: int, body: Body, position: int, listener: str
) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(
        *quorum_epoch.decode_response(version, body, position, listener)
    )


RPC = RaftRpc(
    BEGIN_QUORUM_EPOCH,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    encode_request,
    decode_request,
    quorum_epoch.encode_response,
    decode_response,
)
