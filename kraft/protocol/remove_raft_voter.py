"""RemoveRaftVoter: remove a voter from the quorum (KIP-853)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol import raft_voter
from kraft.protocol.common import RaftRpc, directory_or_zero, replica_key
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import RemoveRaftVoterRequest, RemoveRaftVoterResponse

REMOVE_RAFT_VOTER = Api(81, "RemoveRaftVoter", 0, 0, 0)


class RemoveRaftVoterRequestData(Message, versions=(0, 0)):
    cluster_id: str | None = field("string", None, nullable=True)
    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid")


def encode_request(request: RemoveRaftVoterRequest, version: int) -> bytes:
    data = RemoveRaftVoterRequestData(
        cluster_id=request.cluster_id,
        voter_id=request.voter.id,
        voter_directory_id=directory_or_zero(request.voter.directory_id),
    )
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> RemoveRaftVoterRequest:
    data = RemoveRaftVoterRequestData.decode(body, version, position)
    voter = replica_key(data.voter_id, data.voter_directory_id)
    return RemoveRaftVoterRequest(data.cluster_id, voter)


def decode_response(version: int, body: Body, position: int, _: str) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(*raft_voter.decode_response(version, body, position))


RPC = RaftRpc(
    REMOVE_RAFT_VOTER,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    encode_request,
    decode_request,
    raft_voter.encode_response,
    decode_response,
)
