"""UpdateRaftVoter: a voter reports its endpoints and kraft.version levels (KIP-853)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.common import (
    ListenerData,
    RaftRpc,
    Resolve,
    directory_or_zero,
    endpoint_of,
    replica_key,
    to_endpoints,
    to_listeners,
)
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraft.raft.voters import Endpoint, KRaftVersionRange

UPDATE_RAFT_VOTER = Api(82, "UpdateRaftVoter", 0, 0, 0)


class KRaftVersionFeatureData(Struct):
    min_supported_version: int = field("int16")
    max_supported_version: int = field("int16")


class UpdateRaftVoterRequestData(Message, versions=(0, 0)):
    cluster_id: str | None = field("string", None, nullable=True)
    current_leader_epoch: int = field("int32")
    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid")
    listeners: list[ListenerData] = field("[]struct", of=ListenerData)
    kraft_version_feature: KRaftVersionFeatureData = field("struct", of=KRaftVersionFeatureData)


class CurrentLeader(Struct):
    leader_id: int = field("int32", -1)
    leader_epoch: int = field("int32", -1)
    host: str = field("string")
    port: int = field("int32")


class UpdateRaftVoterResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    current_leader: CurrentLeader = field("struct", tag=0, of=CurrentLeader)


def encode_request(request: UpdateRaftVoterRequest, version: int) -> bytes:
    data = UpdateRaftVoterRequestData(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.id,
        voter_directory_id=directory_or_zero(request.voter.directory_id),
        listeners=to_listeners(request.endpoints),
        kraft_version_feature=KRaftVersionFeatureData(*request.kraft_versions),
    )
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> UpdateRaftVoterRequest:
    data = UpdateRaftVoterRequestData.decode(body, version, position)
    feature = data.kraft_version_feature
    return UpdateRaftVoterRequest(
        cluster_id=data.cluster_id,
        epoch=data.current_leader_epoch,
        voter=replica_key(data.voter_id, data.voter_directory_id),
        endpoints=to_endpoints(data.listeners),
        kraft_versions=KRaftVersionRange(
            feature.min_supported_version, feature.max_supported_version
        ),
    )


def encode_response(
    response: UpdateRaftVoterResponse, version: int, listener: str, _: Resolve
) -> bytes:
    leader = CurrentLeader(response.leader_id, response.epoch)
    endpoint = endpoint_of(response.leader_endpoints, listener)
    if endpoint is not None and response.leader_id >= 0:
        leader.host, leader.port = endpoint.host, endpoint.port
    data = UpdateRaftVoterResponseData(error_code=response.error, current_leader=leader)
    return data.encode(version)


def decode_response(
    version: int, body: Body, position: int, listener: str
) -> UpdateRaftVoterResponse:
    data = UpdateRaftVoterResponseData.decode(body, version, position)
    leader = data.current_leader
    has_endpoint = leader.leader_id >= 0 and leader.host
    return UpdateRaftVoterResponse(
        error=data.error_code,
        epoch=leader.leader_epoch,
        leader_id=leader.leader_id,
        leader_endpoints=(Endpoint(listener, leader.host, leader.port),) if has_endpoint else (),
    )


RPC = RaftRpc(
    UPDATE_RAFT_VOTER,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
)
