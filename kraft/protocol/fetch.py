"""Fetch of the metadata log: a follower or observer reads batches from the leader (KIP-595).

The bodies are compiled: ``kraft._core.codec.fetch``. The raft layer needs version 13 or later,
which names topics by id; a request of an older version is rejected. The record bytes of a response
are neither decoded nor copied.
"""

from __future__ import annotations

import struct

from kraft._core.codec.fetch import (
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.errors import INVALID_REQUEST
from kraft.protocol.common import RaftRpc, Rejected, Resolve, endpoint_of
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
