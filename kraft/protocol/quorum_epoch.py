"""The response that BeginQuorumEpoch and EndQuorumEpoch share (KIP-595, 853)."""

from __future__ import annotations

from kraft._core.codec.fetch import METADATA_TOPIC
from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import INVALID_REQUEST
from kraft.protocol.common import (
    Endpoints,
    NodeEndpointData,
    Rejected,
    Resolve,
    leader_endpoints,
    metadata_partition,
    to_node_endpoints,
)
from kraft.protocol.headers import Body
from kraft.raft.rpc import (
    TOP_LEVEL_ERRORS,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
)


class EpochPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class EpochTopic(Struct):
    topic_name: str = field("string")
    partitions: list[EpochPartition] = field("[]struct", of=EpochPartition)


class QuorumEpochResponseData(Message, versions=(0, 1), flexible_since=1):
    """BeginQuorumEpochResponse and EndQuorumEpochResponse, which have the same layout."""

    error_code: int = field("int16")
    topics: list[EpochTopic] = field("[]struct", of=EpochTopic)
    node_endpoints: list[NodeEndpointData] = field("[]struct", since=1, tag=0, of=NodeEndpointData)


def encode_response(
    response: BeginQuorumEpochResponse | EndQuorumEpochResponse,
    version: int,
    listener: str,
    _: Resolve,
) -> bytes:
    is_top = response.error in TOP_LEVEL_ERRORS
    data = QuorumEpochResponseData(error_code=response.error if is_top else 0)
    if not is_top:
        partition = EpochPartition(0, response.error, response.leader_id, response.epoch)
        data.topics = [EpochTopic(METADATA_TOPIC, [partition])]
        if version >= 1:
            data.node_endpoints = to_node_endpoints(
                response.leader_id, response.leader_endpoints, listener
            )
    return data.encode(version)


def decode_response(
    version: int, body: Body, position: int, listener: str
) -> tuple[int, int, int, Endpoints]:
    """Return error, epoch, leader id and the leader's endpoints."""
    data = QuorumEpochResponseData.decode(body, version, position)
    if data.error_code != 0:
        return data.error_code, -1, -1, ()
    at: EpochPartition = metadata_partition(data.topics, "quorum epoch")
    endpoints = leader_endpoints(at.leader_id, data.node_endpoints, listener)
    return at.error_code, at.leader_epoch, at.leader_id, endpoints


def reject(version: int) -> Rejected:
    """Return the rejection of a request that is not about the metadata log."""
    data = QuorumEpochResponseData(error_code=INVALID_REQUEST)
    return Rejected(data.encode(version))
