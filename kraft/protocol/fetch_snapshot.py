"""FetchSnapshot: a replica downloads a snapshot of the leader in chunks (KIP-630, 853).

The body of the response is compiled: ``kraft._core.codec.fetch_snapshot``. Its snapshot bytes are
neither decoded nor copied.
"""

from __future__ import annotations

from kraft._core.codec.fetch import METADATA_TOPIC
from kraft._core.codec.fetch_snapshot import (
    decode_fetch_snapshot_response,
    encode_fetch_snapshot_response,
)
from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import INVALID_REQUEST, SNAPSHOT_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION
from kraft.protocol.common import (
    RaftRpc,
    Rejected,
    Resolve,
    directory_or_zero,
    endpoint_of,
    only_partition,
    replica_key,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import (
    TOP_LEVEL_ERRORS,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    SnapshotSlice,
)
from kraft.raft.voters import Endpoint

FETCH_SNAPSHOT = Api(59, "FetchSnapshot", 0, 1, 0)


class SnapshotId(Struct):
    end_offset: int = field("int64")
    epoch: int = field("int32")


class SnapshotPartition(Struct):
    partition_index: int = field("int32")
    current_leader_epoch: int = field("int32")
    snapshot_id: SnapshotId = field("struct", of=SnapshotId)
    position: int = field("int64")
    replica_directory_id: Uuid = field("uuid", since=1, tag=0)


class SnapshotTopic(Struct):
    topic_name: str = field("string")
    partitions: list[SnapshotPartition] = field("[]struct", of=SnapshotPartition)


class FetchSnapshotRequestData(Message, versions=(0, 1)):
    cluster_id: str | None = field("string", None, nullable=True, tag=0)
    replica_id: int = field("int32", -1)
    max_bytes: int = field("int32", 0x7FFFFFFF)
    topics: list[SnapshotTopic] = field("[]struct", of=SnapshotTopic)


class RejectedLeader(Struct):
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class RejectedSnapshotPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    snapshot_id: SnapshotId = field("struct", of=SnapshotId)
    current_leader: RejectedLeader = field("struct", tag=0, of=RejectedLeader)
    size: int = field("int64")
    position: int = field("int64")
    unaligned_records: bytes = field("bytes")


class RejectedSnapshotTopic(Struct):
    topic_name: str = field("string")
    partitions: list[RejectedSnapshotPartition] = field("[]struct", of=RejectedSnapshotPartition)


class RejectedFetchSnapshotData(Message, versions=(0, 1)):
    """A FetchSnapshotResponse about other topics than the metadata log, without data."""

    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    topics: list[RejectedSnapshotTopic] = field("[]struct", of=RejectedSnapshotTopic)


def encode_request(request: FetchSnapshotRequest, version: int) -> bytes:
    offset, epoch = request.snapshot_id
    partition = SnapshotPartition(
        current_leader_epoch=request.epoch,
        snapshot_id=SnapshotId(offset, epoch),
        position=request.position,
    )
    if version >= 1:
        partition.replica_directory_id = directory_or_zero(request.replica.directory_id)
    data = FetchSnapshotRequestData(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[SnapshotTopic(METADATA_TOPIC, [partition])],
    )
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> FetchSnapshotRequest | Rejected:
    data = FetchSnapshotRequestData.decode(body, version, position)
    partition: SnapshotPartition | None = only_partition(data.topics)
    if partition is None:
        return _reject(data, version)
    return FetchSnapshotRequest(
        cluster_id=data.cluster_id,
        replica=replica_key(data.replica_id, partition.replica_directory_id),
        epoch=partition.current_leader_epoch,
        snapshot_id=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        position=partition.position,
        max_bytes=data.max_bytes,
    )


def _reject(data: FetchSnapshotRequestData, version: int) -> Rejected:
    """Reject one partition of another topic as unknown, any other request as invalid."""
    rejection = RejectedFetchSnapshotData()
    if len(data.topics) == 1 and len(data.topics[0].partitions) == 1:
        unknown = RejectedSnapshotPartition(
            partition_index=data.topics[0].partitions[0].partition_index,
            error_code=UNKNOWN_TOPIC_OR_PARTITION,
        )
        rejection.topics = [RejectedSnapshotTopic(data.topics[0].topic_name, [unknown])]
    else:
        rejection.error_code = INVALID_REQUEST
    return Rejected(rejection.encode(version))


def encode_response(
    response: FetchSnapshotResponse, version: int, listener: str, resolve: Resolve
) -> list[Body]:
    if response.error in TOP_LEVEL_ERRORS:
        # throttle time, error, no topics, no tags
        return [b"\0\0\0\0" + response.error.to_bytes(2, "big") + b"\1\0"]
    data, error = response.data, response.error
    if isinstance(data, SnapshotSlice):
        is_wanted = data.max_size > 0
        data = resolve(data)
        if is_wanted and not len(data):
            # It was removed after the decision: a newer one takes its place.
            error = SNAPSHOT_NOT_FOUND
    endpoint = endpoint_of(response.leader_endpoints, listener)
    prefix, suffix = encode_fetch_snapshot_response(
        version,
        error,
        response.epoch,
        response.leader_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        response.snapshot_id,
        response.size,
        response.position,
        len(data),
    )
    return [prefix, data, suffix]


def decode_response(
    version: int, body: Body, position: int, listener: str
) -> FetchSnapshotResponse:
    error, epoch, leader_id, endpoint, snapshot_id, size, data_position, data_at, data_size = (
        decode_fetch_snapshot_response(body, version, position)
    )
    return FetchSnapshotResponse(
        error=error,
        epoch=epoch,
        leader_id=leader_id,
        leader_endpoints=() if endpoint is None else (Endpoint(listener, *endpoint),),
        snapshot_id=OffsetAndEpoch(*snapshot_id),
        size=size,
        position=data_position,
        data=memoryview(body)[data_at : data_at + data_size] if data_size else b"",
    )


RPC = RaftRpc(
    FETCH_SNAPSHOT,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
)
