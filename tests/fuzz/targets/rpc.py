"""RPCs: a request's frame from its header on, or a response's body, as a peer may send them.

A decoded message can be encoded in the same version and decodes to the same message. The encoded
bytes may differ from the input, because decoding skips unknown tagged fields and fields that the
raft layer does not use.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft._core.codec.fetch import decode_request_header
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.errors import KraftError
from kraft.protocol.api_versions import API_VERSIONS, decode_api_versions_response
from kraft.protocol.common import Rejected
from kraft.protocol.headers import Api, request_frame
from kraft.protocol.raft_rpcs import (
    RAFT_APIS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import Uuid

PREFIX = 1
HOLDS_BATCHES = False

LISTENER = "CONTROLLER"
REQUEST = 0
FLEXIBLE_SINCE = {api.key: api.flexible_since for api in RAFT_APIS.values()}
# The first byte's choice, from 1 on: the API and version of a response.
RESPONSES: list[tuple[Api, int]] = [
    (api, version)
    for api in (*RAFT_APIS.values(), API_VERSIONS)
    for version in range(api.lowest, api.highest + 1)
]

_KEY = ReplicaKey(2, Uuid(bytes(range(16))))
_AT = (Endpoint(LISTENER, "host", 9093),)
_ID = m.OffsetAndEpoch(90, 5)
_STATE = m.DescribedReplica(_KEY, 90, 1000, 900)
SEEDS: list[tuple[int, m.Request, m.Response]] = [
    (52, m.VoteRequest("c", 7, _KEY, _KEY, 6, 100), m.VoteResponse(0, 7, 1, _AT, True)),
    (53, m.BeginQuorumEpochRequest("c", 7, 1, _KEY, _AT), m.BeginQuorumEpochResponse(0, 7, 1, _AT)),
    (54, m.EndQuorumEpochRequest("c", 7, 1, (_KEY,), _AT), m.EndQuorumEpochResponse(0, 7, 1, _AT)),
    (
        *(1, m.FetchRequest("c", _KEY, 7, 100, 6, 500, 1000, 95)),
        m.FetchResponse(0, 7, 1, _AT, 95, 3, EpochEndOffset(6, 80), _ID, b"records"),
    ),
    (
        *(59, m.FetchSnapshotRequest("c", _KEY, 7, _ID, 4096, 1000)),
        m.FetchSnapshotResponse(0, 7, 1, _AT, _ID, 5000, 4096, b"records"),
    ),
    (
        *(55, m.DescribeQuorumRequest()),
        m.DescribeQuorumResponse(0, 7, 1, _AT, 95, (_STATE,), (_STATE,), {1: _AT}),
    ),
    (80, m.AddRaftVoterRequest("c", 1000, _KEY, _AT), m.AddRaftVoterResponse(7, "words")),
    (81, m.RemoveRaftVoterRequest("c", _KEY), m.RemoveRaftVoterResponse(0)),
    (
        *(82, m.UpdateRaftVoterRequest("c", 7, _KEY, _AT, KRaftVersionRange(0, 1))),
        m.UpdateRaftVoterResponse(0, 7, 1, _AT),
    ),
    (57, m.UpdateKRaftVersionRequest(1), m.UpdateKRaftVersionResponse(95, "words")),
]


def seeds() -> Iterator[bytes]:
    for key, request, response in SEEDS:
        api = RAFT_APIS[key]
        for version in range(13 if key == 1 else api.lowest, api.highest + 1):
            body = encode_request(request, version)
            yield bytes((REQUEST,)) + request_frame(api, version, 1, "me", body)[4:]
            pieces = encode_response(response, version, LISTENER, _no_slices)
            chosen = 1 + RESPONSES.index((api, version))
            yield bytes((chosen,)) + b"".join(pieces)
    for version in range(API_VERSIONS.highest + 1):
        yield bytes((1 + RESPONSES.index((API_VERSIONS, version)),)) + bytes(8)


def run(data: bytes) -> None:
    if not data:
        return
    if data[0] == REQUEST:
        _request(data[1:])
    else:
        _response(*RESPONSES[(data[0] - 1) % len(RESPONSES)], data[1:])


def _request(frame: bytes) -> None:
    try:
        key, version, _, _, body_at = decode_request_header(frame, FLEXIBLE_SINCE)
        api = RAFT_APIS.get(key)
        if api is None or version not in api:
            return
        read = decode_request(api, version, frame, body_at)
    except KraftError:
        return
    if isinstance(read, Rejected):
        return
    assert decode_request(api, version, encode_request(read, version)) == read


def _response(api: Api, version: int, body: bytes) -> None:
    try:
        if api is API_VERSIONS:
            decode_api_versions_response(version, body, 0)
            return
        # No node sends a Fetch below version 13, so no response has one.
        if api.key == 1 and version < 13:
            return
        read = decode_response(api, version, body, 0, LISTENER)
    except KraftError:
        return
    written = b"".join(encode_response(read, version, LISTENER, _no_slices))
    again = decode_response(api, version, written, 0, LISTENER)
    assert encode_response(again, version, LISTENER, _no_slices) == [
        *encode_response(read, version, LISTENER, _no_slices)
    ]


def _no_slices(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
    raise AssertionError("decoded responses have bytes, not slices")
