"""EndQuorumEpoch: a leader resigns and names its preferred successors (KIP-595, 853)."""

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
    replica_key,
    to_endpoints,
    to_listeners,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraft.raft.voters import ReplicaKey

END_QUORUM_EPOCH = Api(54, "EndQuorumEpoch", 0, 1, 1)


class PreferredCandidate(Struct):
    candidate_id: int = field("int32")
    candidate_directory_id: Uuid = field("uuid")


class EndPartition(Struct):
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    preferred_successors: list[int] = field("[]int32", until=0)
    preferred_candidates: list[PreferredCandidate] = field(
        "[]struct", since=1, of=PreferredCandidate
    )


class EndTopic(Struct):
    topic_name: str = field("string")
    partitions: list[EndPartition] = field("[]struct", of=EndPartition)


class EndQuorumEpochRequestData(Message, versions=(0, 1), flexible_since=1):
    cluster_id: str | None = field("string", None, nullable=True)
    topics: list[EndTopic] = field("[]struct", of=EndTopic)
    leader_endpoints: list[ListenerData] = field("[]struct", since=1, of=ListenerData)


def encode_request(request: EndQuorumEpochRequest, version: int) -> bytes:
    partition = EndPartition(leader_id=request.leader_id, leader_epoch=request.epoch)
    data = EndQuorumEpochRequestData(
        cluster_id=request.cluster_id, topics=[EndTopic(METADATA_TOPIC, [partition])]
    )
    if version == 0:
        partition.preferred_successors = [at.id for at in request.preferred_candidates]
    else:
        partition.preferred_candidates = [
            PreferredCandidate(id, directory_or_zero(directory_id))
            for id, directory_id in request.preferred_candidates
        ]
        data.leader_endpoints = to_listeners(request.leader_endpoints)
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> EndQuorumEpochRequest | Rejected:
    data = EndQuorumEpochRequestData.decode(body, version, position)
    partition: EndPartition | None = only_partition(data.topics)
    if partition is None:
        return quorum_epoch.reject(version)
    return EndQuorumEpochRequest(
        cluster_id=data.cluster_id,
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        preferred_candidates=(
            *map(ReplicaKey, partition.preferred_successors),
            *(
                replica_key(at.candidate_id, at.candidate_directory_id)
                for at in partition.preferred_candidates
            ),
        ),
        leader_endpoints=to_endpoints(data.leader_endpoints),
    )


def decode_response(
    version: int, body: Body, position: int, listener: str
) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(*quorum_epoch.decode_response(version, body, position, listener))


RPC = RaftRpc(
    END_QUORUM_EPOCH,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    encode_request,
    decode_request,
    quorum_epoch.encode_response,
    decode_response,
)
