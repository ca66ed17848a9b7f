"""The RPCs of the raft layer: find the codec of a message or an API, and call it.

Converts the messages of ``kraft.raft`` to Kafka's bodies in every version, and back. A field that a
version does not have is left out where Kafka leaves it out; where the meaning would change (a
pre-vote before Vote 2, an AddRaftVoter without waiting before version 1), encoding fails. The
errors of ``TOP_LEVEL_ERRORS`` are at the top of a response without topics, all others at the
partition. A malformed request never reaches the raft node: it is rejected here, as Kafka's
``KafkaRaftClient`` does. Sources: Kafka's ``RaftUtil``, KIP-595, 630, 853, 996, 1186, 584.

Called by ``kraft.network`` and by the tests that compare every body with Kafka's own classes.
"""

from __future__ import annotations

from kraft.protocol import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_features,
    update_raft_voter,
    vote,
)
from kraft.protocol.api_versions import API_VERSIONS
from kraft.protocol.common import RaftRpc, Rejected, Resolve
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import ApiVersionsRequest, Request, Response

RAFT_RPCS: tuple[RaftRpc, ...] = (
    fetch.RPC,
    vote.RPC,
    begin_quorum_epoch.RPC,
    end_quorum_epoch.RPC,
    describe_quorum.RPC,
    update_features.RPC,
    fetch_snapshot.RPC,
    add_raft_voter.RPC,
    remove_raft_voter.RPC,
    update_raft_voter.RPC,
)

#: The RPCs whose requests go to the raft node, by API key.
RAFT_APIS: dict[int, Api] = {rpc.api.key: rpc.api for rpc in RAFT_RPCS}

API_OF_REQUEST: dict[type[Request], Api] = {
    **{rpc.request_type: rpc.api for rpc in RAFT_RPCS},
    ApiVersionsRequest: API_VERSIONS,
}

_RESPONSE_TYPES = {rpc.api.key: rpc.response_type for rpc in RAFT_RPCS}
_REQUEST_ENCODERS = {rpc.request_type: rpc.encode_request for rpc in RAFT_RPCS}
_REQUEST_DECODERS = {rpc.api.key: rpc.decode_request for rpc in RAFT_RPCS}
_RESPONSE_ENCODERS = {rpc.response_type: rpc.encode_response for rpc in RAFT_RPCS}
_RESPONSE_DECODERS = {rpc.api.key: rpc.decode_response for rpc in RAFT_RPCS}


def encode_request(request: Request, version: int) -> bytes:
    """Return the body of a request, in a version of the API that ``API_OF_REQUEST`` names.

    Raises UnsupportedVersionError where the version cannot carry the request.
    """
    return _REQUEST_ENCODERS[type(request)](request, version)


def decode_request(api: Api, version: int, body: Body, position: int = 0) -> Request | Rejected:
    """Return the request with the body ``body[position:]``, or its rejection.

    Raises CorruptRecordError.
    """
    return _REQUEST_DECODERS[api.key](version, body, position)


def error_response(api: Api, error: int) -> Response:
    """Return the response with only an error code to a request of the API."""
    return _RESPONSE_TYPES[api.key](error)


def encode_response(
    response: Response, version: int, listener: str, resolve: Resolve
) -> list[Body]:
    """Return the body of a response as a list of buffers.

    ``listener`` is the listener that received the request; ``resolve`` returns the bytes of a
    slice, which are neither decoded nor copied.
    """
    buffers = _RESPONSE_ENCODERS[type(response)](response, version, listener, resolve)
    return [buffers] if isinstance(buffers, bytes) else buffers


def decode_response(api: Api, version: int, body: Body, position: int, listener: str) -> Response:
    """Return the response with the body ``body[position:]``; its records are a view of the body.

    ``listener`` names the endpoints, which have no name on the wire. Raises CorruptRecordError, and
    InvalidRequestError for a response that is not about the metadata log only.
    """
    return _RESPONSE_DECODERS[api.key](version, body, position, listener)
