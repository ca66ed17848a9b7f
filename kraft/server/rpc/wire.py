"""Kafka's framing of requests and responses, and which APIs and versions are served.

Owns the table of the APIs, the headers, and the choice of a version. What is inside a body belongs
to ``requests`` and ``responses``.

    frame            int32 size of what follows | header | body
    request header   int16 api key | int16 version | int32 correlation id
                     | nullable string client id (int16 length, always) | tags in flexible versions
    response header  int32 correlation id | tags in flexible versions, but never of ApiVersions

Sources: ``RequestHeader``, ``ApiMessageType`` and ``ApiKeys`` of Kafka 4.3.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kraft._core.messages import METADATA_TOPIC, METADATA_TOPIC_ID
from kraft._core.wire import Reader
from kraft.errors import CorruptRecordError
from kraft.raft.messages import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    Request,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.records import ZERO_UUID, Uuid

__all__ = [
    "ADD_RAFT_VOTER",
    "API_OF_REQUEST",
    "API_VERSIONS",
    "BEGIN_QUORUM_EPOCH",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_QUORUM",
    "END_QUORUM_EPOCH",
    "FETCH",
    "FETCH_SNAPSHOT",
    "METADATA_TOPIC",
    "METADATA_TOPIC_ID",
    "RAFT_APIS",
    "REMOVE_RAFT_VOTER",
    "UPDATE_FEATURES",
    "UPDATE_RAFT_VOTER",
    "VOTE",
    "Api",
    "Ranges",
    "RequestHeader",
    "directory_or_none",
    "directory_or_zero",
    "newest_common_version",
    "read_response_header",
    "request_frame",
    "response_header",
]

# api key -> the lowest and the highest version that a peer knows.
Ranges = dict[int, tuple[int, int]]


class Api(NamedTuple):
    """An RPC: its key, the versions that are served, and the first flexible one."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_since: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


FETCH = Api(1, "Fetch", 4, 18, 12)
API_VERSIONS = Api(18, "ApiVersions", 0, 4, 3)
VOTE = Api(52, "Vote", 0, 2, 0)
BEGIN_QUORUM_EPOCH = Api(53, "BeginQuorumEpoch", 0, 1, 1)
END_QUORUM_EPOCH = Api(54, "EndQuorumEpoch", 0, 1, 1)
DESCRIBE_QUORUM = Api(55, "DescribeQuorum", 0, 2, 0)
UPDATE_FEATURES = Api(57, "UpdateFeatures", 0, 2, 0)
FETCH_SNAPSHOT = Api(59, "FetchSnapshot", 0, 1, 0)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 2, 0)
ADD_RAFT_VOTER = Api(80, "AddRaftVoter", 0, 1, 0)
REMOVE_RAFT_VOTER = Api(81, "RemoveRaftVoter", 0, 0, 0)
UPDATE_RAFT_VOTER = Api(82, "UpdateRaftVoter", 0, 0, 0)

#: The RPCs whose requests go to the raft node.
RAFT_APIS: dict[int, Api] = {
    api.key: api
    for api in (
        *(FETCH, VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, DESCRIBE_QUORUM, UPDATE_FEATURES),
        *(FETCH_SNAPSHOT, ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER),
    )
}

API_OF_REQUEST: dict[type[Request], Api] = {
    VoteRequest: VOTE,
    BeginQuorumEpochRequest: BEGIN_QUORUM_EPOCH,
    EndQuorumEpochRequest: END_QUORUM_EPOCH,
    FetchRequest: FETCH,
    FetchSnapshotRequest: FETCH_SNAPSHOT,
    DescribeQuorumRequest: DESCRIBE_QUORUM,
    AddRaftVoterRequest: ADD_RAFT_VOTER,
    RemoveRaftVoterRequest: REMOVE_RAFT_VOTER,
    UpdateRaftVoterRequest: UPDATE_RAFT_VOTER,
    ApiVersionsRequest: API_VERSIONS,
    UpdateKRaftVersionRequest: UPDATE_FEATURES,
}

# The first version of Fetch that names topics by id, as the raft layer needs it.
_FIRST_RAFT_FETCH = 13

_REQUEST_START = struct.Struct(">ihhih")
_RESPONSE_START = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """The header of a request that was received."""

    api: Api
    version: int
    correlation: int
    client_id: str | None


def newest_common_version(api: Api, peer: Ranges) -> int | None:
    """The highest version that both sides know; None where there is none."""
    if api.key not in peer:
        return None
    lowest, highest = peer[api.key]
    version = min(highest, api.highest)
    oldest = max(lowest, _FIRST_RAFT_FETCH if api is FETCH else api.lowest)
    return version if version >= oldest else None


def request_frame(
    api: Api, version: int, correlation: int, client_id: str | None, body: bytes
) -> bytes:
    """A request, ready for the socket."""
    client = b"" if client_id is None else client_id.encode()
    tags = b"\0" if version >= api.flexible_since else b""
    return b"".join(
        (
            _REQUEST_START.pack(
                10 + len(client) + len(tags) + len(body),
                api.key,
                version,
                correlation,
                -1 if client_id is None else len(client),
            ),
            client,
            tags,
            body,
        )
    )


def response_header(api: Api, version: int, correlation: int, body_size: int) -> bytes:
    """The size and header in front of a response's body."""
    if version >= api.flexible_since and api is not API_VERSIONS:
        return _RESPONSE_START.pack(5 + body_size, correlation) + b"\0"
    return _RESPONSE_START.pack(4 + body_size, correlation)


def read_response_header(frame: bytes | memoryview, api: Api, version: int) -> tuple[int, int]:
    """The correlation id of a response, and where its body begins.

    Raises CorruptRecordError.
    """
    if len(frame) < 4:
        raise CorruptRecordError("a response header ends early", position=len(frame))
    correlation = int.from_bytes(frame[:4], "big", signed=True)
    if version < api.flexible_since or api is API_VERSIONS:
        return correlation, 4
    if len(frame) > 4 and frame[4] == 0:
        return correlation, 5
    reader = Reader(frame, 4)
    reader.read_tagged()
    return correlation, reader.position


def directory_or_none(directory_id: Uuid) -> Uuid | None:
    """The zero uuid on the wire stands for a directory that is not known."""
    return None if directory_id == ZERO_UUID else directory_id


def directory_or_zero(directory_id: Uuid | None) -> Uuid:
    return ZERO_UUID if directory_id is None else directory_id
