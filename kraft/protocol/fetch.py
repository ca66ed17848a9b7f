"""Fetch: a consumer or follower reads batches of many partitions, or a node those of the metadata
log (KIP-595).

`FetchRequestData` and `FetchResponseData` are whole bodies, for a broker. `RPC` is that of the raft
layer, where a body has one partition and is compiled: ``kraft._core.codec.fetch``. The raft layer
needs version 13 or later, which names topics by id; a request of an older version is rejected. The
record bytes of a response are neither decoded nor copied.
"""

from __future__ import annotations

import struct

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.codec.fetch import (
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.errors import INVALID_REQUEST
from kraft.protocol.common import (
    BrokerEndpoint,
    LeaderIdAndEpoch,
    RaftRpc,
    Rejected,
    Resolve,
    endpoint_of,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import (
    TOP_LEVEL_ERRORS,
    FetchRequest,
    FetchResponse,
    LogSlice,
    OffsetAndEpoch,
)
from kraft.raft.voters import Endpoint, ReplicaKey

_FIRST_WITH_TOPIC_IDS = 13

FETCH = Api(1, "Fetch", 4, 18, 12, lowest_sent=_FIRST_WITH_TOPIC_IDS)


class FetchReplicaState(Struct):
    """The follower that fetches; a consumer has the defaults."""

    replica_id: int = field("int32", -1)
    replica_epoch: int = field("int64", -1)


class FetchPartitionData(Struct):
    partition: int = field("int32")
    current_leader_epoch: int = field("int32", -1, since=9, ignorable=True)
    fetch_offset: int = field("int64")
    # Of the last record before the offset: the leader answers with the diverging epoch (KIP-595).
    last_fetched_epoch: int = field("int32", -1, since=12)
    log_start_offset: int = field("int64", -1, since=5, ignorable=True)
    partition_max_bytes: int = field("int32")
    replica_directory_id: Uuid = field("uuid", since=17, tag=0, ignorable=True)
    # The high watermark that the follower knows (KIP-1166).
    high_watermark: int = field("int64", (1 << 63) - 1, since=18, tag=1, ignorable=True)


class FetchTopicData(Struct):
    topic: str = field("string", until=12, ignorable=True)
    topic_id: Uuid = field("uuid", since=13, ignorable=True)
    partitions: list[FetchPartitionData] = field("[]struct", of=FetchPartitionData)


class ForgottenTopicData(Struct):
    topic: str = field("string", until=12, ignorable=True)
    topic_id: Uuid = field("uuid", since=13, ignorable=True)
    partitions: list[int] = field("[]int32")


class FetchRequestData(Message, versions=(4, 18), flexible_since=12):
    cluster_id: str | None = field("string", None, since=12, tag=0, nullable=True, ignorable=True)
    replica_id: int = field("int32", -1, until=14)
    replica_state: FetchReplicaState = field("struct", since=15, tag=1, of=FetchReplicaState)
    max_wait_ms: int = field("int32")
    min_bytes: int = field("int32")
    max_bytes: int = field("int32", (1 << 31) - 1)
    # 0: up to the high watermark; 1: up to the last stable offset.
    isolation_level: int = field("int8")
    session_id: int = field("int32", since=7, ignorable=True)
    # 0 begins a session, -1 ends it; any other request of a session has the next epoch.
    session_epoch: int = field("int32", -1, since=7, ignorable=True)
    # In a session: only partitions that are new or have changed (KIP-227).
    topics: list[FetchTopicData] = field("[]struct", of=FetchTopicData)
    forgotten_topics_data: list[ForgottenTopicData] = field(
        "[]struct", since=7, of=ForgottenTopicData
    )
    # The rack of a consumer, which may fetch from a follower in it (KIP-392).
    rack_id: str = field("string", since=11, ignorable=True)


class DivergingEpochData(Struct):
    """The largest epoch that leader and follower share, and where it ends at the leader."""

    epoch: int = field("int32", -1)
    end_offset: int = field("int64", -1)


class SnapshotIdData(Struct):
    end_offset: int = field("int64", -1)
    epoch: int = field("int32", -1)


class AbortedTransactionData(Struct):
    producer_id: int = field("int64")
    first_offset: int = field("int64")


class FetchedPartitionData(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    high_watermark: int = field("int64")
    last_stable_offset: int = field("int64", -1)
    log_start_offset: int = field("int64", -1, since=5, ignorable=True)
    diverging_epoch: DivergingEpochData = field("struct", since=12, tag=0, of=DivergingEpochData)
    # With an error about the leader; its address is in ``node_endpoints`` (KIP-951).
    current_leader: LeaderIdAndEpoch = field("struct", since=12, tag=1, of=LeaderIdAndEpoch)
    snapshot_id: SnapshotIdData = field("struct", since=12, tag=2, of=SnapshotIdData)
    # Null under isolation level 0.
    aborted_transactions: list[AbortedTransactionData] | None = field(
        "[]struct", None, nullable=True, of=AbortedTransactionData
    )
    # A follower near to the consumer; then there are no records.
    preferred_read_replica: int = field("int32", -1, since=11)
    # Read as a view of the response; written from bytes or, by `encode_segments`, from a file.
    records: Body | FileSlice | None = field("records", None, nullable=True)


class FetchedTopicData(Struct):
    topic: str = field("string", until=12, ignorable=True)
    topic_id: Uuid = field("uuid", since=13, ignorable=True)
    partitions: list[FetchedPartitionData] = field("[]struct", of=FetchedPartitionData)


class FetchResponseData(Message, versions=(4, 18), flexible_since=12):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16", since=7, ignorable=True)
    session_id: int = field("int32", since=7)
    responses: list[FetchedTopicData] = field("[]struct", of=FetchedTopicData)
    node_endpoints: list[BrokerEndpoint] = field("[]struct", since=16, tag=0, of=BrokerEndpoint)


def encode_request(request: FetchRequest, version: int) -> bytes:
    return encode_fetch_request(
        version,
        request.cluster_id,
        request.replica.id,
        request.replica.directory_id,
        request.epoch,
        request.offset,
        request.last_fetched_epoch,
        request.max_wait_ms,
        request.max_bytes,
        request.high_watermark,
    )


def decode_request(version: int, body: Body, position: int) -> FetchRequest | Rejected:
    if version < _FIRST_WITH_TOPIC_IDS:
        return Rejected(_classic_error(INVALID_REQUEST, version))
    fields = decode_fetch_request(body, version, position)
    if fields is None:
        return Rejected(_error(INVALID_REQUEST))
    cluster_id, id, directory_id, *rest = fields
    return FetchRequest(cluster_id, ReplicaKey(id, directory_id), *rest)


def encode_response(
    response: FetchResponse, version: int, listener: str, resolve: Resolve
) -> list[Body]:
    if response.error in TOP_LEVEL_ERRORS:
        return [_error(response.error)]
    records = response.records
    if isinstance(records, LogSlice):
        records = resolve(records)
    endpoint = endpoint_of(response.leader_endpoints, listener)
    prefix, suffix = encode_fetch_response(
        version,
        response.error,
        response.epoch,
        response.leader_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        response.high_watermark,
        response.log_start_offset,
        response.diverging_epoch,
        response.snapshot_id,
        len(records),
    )
    return [prefix, records, suffix]


def decode_response(version: int, body: Body, position: int, listener: str) -> FetchResponse:
    fields = decode_fetch_response(body, version, position)
    error, epoch, leader_id, endpoint, high_watermark, log_start_offset = fields[:6]
    diverging, snapshot, records_at, records_size = fields[6:]
    return FetchResponse(
        error=error,
        epoch=epoch,
        leader_id=leader_id,
        leader_endpoints=() if endpoint is None else (Endpoint(listener, *endpoint),),
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        diverging_epoch=None if diverging is None else EpochEndOffset(*diverging),
        snapshot_id=None if snapshot is None else OffsetAndEpoch(*snapshot),
        records=memoryview(body)[records_at : records_at + records_size] if records_size else b"",
    )


def _error(error: int) -> bytes:
    """Return a response of versions 13 and later without topics."""
    # throttle time, error, session id, no topics, no tags
    return b"\0\0\0\0" + error.to_bytes(2, "big") + b"\0\0\0\0\1\0"


def _classic_error(error: int, version: int) -> bytes:
    """Return a response of versions 4 to 12 without topics.

    Before version 7 a response has no top-level error: Kafka answers without topics, as here.
    """
    if version < 7:
        return struct.pack(">ii", 0, 0)
    if version < 12:
        return struct.pack(">ihii", 0, error, 0, 0)
    return struct.pack(">ihiBB", 0, error, 0, 1, 0)


RPC = RaftRpc(
    FETCH,
    FetchRequest,
    FetchResponse,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
)
