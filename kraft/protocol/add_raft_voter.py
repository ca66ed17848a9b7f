"""AddRaftVoter: add a voter to the quorum (KIP-853, 1186)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol import raft_voter
from kraft.protocol.common import (
    ListenerData,
    RaftRpc,
    directory_or_zero,
    replica_key,
    to_endpoints,
    to_listeners,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import AddRaftVoterRequest, AddRaftVoterResponse

ADD_RAFT_VOTER = Api(80, "AddRaftVoter", 0, 1, 0)


class AddRaftVoterRequestData(Message, versions=(0, 1)):
    cluster_id: str | None = field("string", None, nullable=True)
    timeout_ms: int = field("int32")
    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid")
    listeners: list[ListenerData] = field("[]struct", of=ListenerData)
    ack_when_committed: bool = field("bool", True, since=1)


def encode_request(request: AddRaftVoterRequest, version: int) -> bytes:
    data = AddRaftVoterRequestData(
        cluster_id=request.cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=request.voter.id,
        voter_directory_id=directory_or_zero(request.voter.directory_id),
        listeners=to_listeners(request.endpoints),
        ack_when_committed=request.ack_when_committed,
    )
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> AddRaftVoterRequest:
    data = AddRaftVoterRequestData.decode(body, version, position)
    return AddRaftVoterRequest(
        cluster_id=data.cluster_id,
        timeout_ms=data.timeout_ms,
        voter=replica_key(data.voter_id, data.voter_directory_id),
        endpoints=to_endpoints(data.listeners),
        ack_when_committed=data.ack_when_committed,
    )


def decode_response(version: int, body: Body, position: int, _: str) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(*raft_voter.decode_response(version, body, position))


RPC = RaftRpc(
    ADD_RAFT_VOTER,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    encode_request,
    decode_request,
    raft_voter.encode_response,
    decode_response,
)
