"""Responses of the raft layer <-> Kafka's response bodies.

Owns both directions for every version in ``wire.RAFT_APIS``. The errors of
``messages.TOP_LEVEL_ERRORS`` stand at the top of a response, without topics; every other code
stands at the partition. The leader's endpoint is named where the version has a place for it: the
one of the listener by which the request came. Sources: Kafka's ``RaftUtil``.

A response is a list of buffers, one behind the other: the bytes of a log or snapshot are among them
as they were given, neither decoded nor copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from kraft._core.epoch_cache import EpochEndOffset
from kraft._core.fetch_snapshot import (
    decode_fetch_snapshot_response,
    encode_fetch_snapshot_response,
)
from kraft._core.messages import decode_fetch_response, encode_fetch_response
from kraft.errors import InvalidRequestError
from kraft.raft.messages import (
    TOP_LEVEL_ERRORS,
    AddRaftVoterResponse,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LogSlice,
    OffsetAndEpoch,
    RemoveRaftVoterResponse,
    ReplicaState,
    Response,
    SnapshotSlice,
    UpdateKRaftVersionResponse,
    UpdateRaftVoterResponse,
    VoteResponse,
)
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.server.rpc import classic_versions as classic
from kraft.server.rpc import schemas as rpc
from kraft.server.rpc import wire
from kraft.server.rpc.requests import KRAFT_VERSION, endpoints, listeners, only_partition
from kraft.server.rpc.wire import METADATA_TOPIC, Api, directory_or_none, directory_or_zero

Body = bytes | memoryview
Resolve = Callable[[LogSlice | SnapshotSlice], memoryview]
Endpoints = tuple[Endpoint, ...]


def encode_response(
    response: Response, version: int, listener: str, resolve: Resolve
) -> list[Body]:
    """The body of a response, in pieces.

    ``listener`` is the one by which the request came; ``resolve`` gives the bytes of a slice.
    """
    pieces = _ENCODERS[type(response)](response, version, listener, resolve)
    return [pieces] if isinstance(pieces, bytes) else pieces


def decode_response(api: Api, version: int, body: Body, position: int, listener: str) -> Response:
    """The response whose body is ``body[position:]``; the bytes of records stay a view of it.

    ``listener`` names the endpoints, which have no name on the wire. Raises CorruptRecordError, and
    InvalidRequestError for a response that is not of the metadata log's one partition.
    """
    return _DECODERS[api.key](version, body, position, listener)


def _at(endpoints: Endpoints, listener: str) -> Endpoint | None:
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return None


def _node_endpoints(leader_id: int, endpoints: Endpoints, listener: str) -> list[rpc.NodeEndpoint]:
    endpoint = _at(endpoints, listener)
    if endpoint is None or leader_id < 0:
        return []
    return [rpc.NodeEndpoint(leader_id, endpoint.host, endpoint.port)]


def _leader_endpoints(
    leader_id: int, nodes: Sequence[rpc.NodeEndpoint], listener: str
) -> Endpoints:
    for node in nodes:
        if node.node_id == leader_id and leader_id >= 0:
            return (Endpoint(listener, node.host, node.port),)
    return ()


def _ours(topics: list[Any], what: str) -> Any:
    partition = only_partition(topics)
    if partition is None:
        raise InvalidRequestError(f"a {what} response is not of the metadata log")
    return partition


# -- Vote


def _encode_vote(response: VoteResponse, version: int, listener: str, _: Resolve) -> bytes:
    if response.error in TOP_LEVEL_ERRORS:
        body = rpc.VoteResponse(error_code=response.error)
        return rpc.VoteResponse.schema.encode(body, version)
    partition = rpc.VotedPartition(
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.is_granted,
    )
    body = rpc.VoteResponse(topics=[rpc.VotedTopic(METADATA_TOPIC, [partition])])
    if version >= 1:
        body.node_endpoints = _node_endpoints(
            response.leader_id, response.leader_endpoints, listener
        )
    return rpc.VoteResponse.schema.encode(body, version)


def _decode_vote(version: int, body: Body, position: int, listener: str) -> VoteResponse:
    made = cast(rpc.VoteResponse, rpc.VoteResponse.schema.decode(body, version, position))
    if made.error_code != 0:
        return VoteResponse(made.error_code)
    partition: rpc.VotedPartition = _ours(made.topics, "Vote")
    return VoteResponse(
        error=partition.error_code,
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        leader_endpoints=_leader_endpoints(partition.leader_id, made.node_endpoints, listener),
        is_granted=partition.vote_granted,
    )


# -- BeginQuorumEpoch, EndQuorumEpoch


def _encode_epoch(
    response: BeginQuorumEpochResponse | EndQuorumEpochResponse,
    version: int,
    listener: str,
    _: Resolve,
) -> bytes:
    is_top = response.error in TOP_LEVEL_ERRORS
    if version == 0:
        return classic.encode_epoch_response(
            classic.EpochResponse(
                response.error if is_top else 0,
                not is_top,
                response.error,
                response.leader_id,
                response.epoch,
            )
        )
    body = rpc.QuorumEpochResponse(error_code=response.error if is_top else 0)
    if not is_top:
        partition = rpc.EpochPartition(0, response.error, response.leader_id, response.epoch)
        body.topics = [rpc.EpochTopic(METADATA_TOPIC, [partition])]
        body.node_endpoints = _node_endpoints(
            response.leader_id, response.leader_endpoints, listener
        )
    return rpc.QuorumEpochResponse.schema.encode(body, version)


def _decode_epoch(
    version: int, body: Body, position: int, listener: str
) -> tuple[int, int, int, Endpoints]:
    """Error, epoch, leader id and its endpoints."""
    if version == 0:
        old = classic.decode_epoch_response(body, position)
        if old.top_error != 0:
            return old.top_error, -1, -1, ()
        if not old.is_ours:
            raise InvalidRequestError("a quorum epoch response is not of the metadata log")
        return old.error, old.epoch, old.leader_id, ()
    schema = rpc.QuorumEpochResponse.schema
    made = cast(rpc.QuorumEpochResponse, schema.decode(body, version, position))
    if made.error_code != 0:
        return made.error_code, -1, -1, ()
    at: rpc.EpochPartition = _ours(made.topics, "quorum epoch")
    leader_endpoints = _leader_endpoints(at.leader_id, made.node_endpoints, listener)
    return at.error_code, at.leader_epoch, at.leader_id, leader_endpoints


def _decode_begin(
    version: int, body: Body, position: int, listener: str
) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(*_decode_epoch(version, body, position, listener))


def _decode_end(version: int, body: Body, position: int, listener: str) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(*_decode_epoch(version, body, position, listener))


# -- Fetch, FetchSnapshot


def _encode_fetch(
    response: FetchResponse, version: int, listener: str, resolve: Resolve
) -> list[Body]:
    if response.error in TOP_LEVEL_ERRORS:
        # throttle time, error, session id, no topics, no tags
        return [b"\0\0\0\0" + response.error.to_bytes(2, "big") + b"\0\0\0\0\1\0"]
    records = response.records
    if isinstance(records, LogSlice):
        records = resolve(records)
    endpoint = _at(response.leader_endpoints, listener)
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


def _decode_fetch(version: int, body: Body, position: int, listener: str) -> FetchResponse:
    made = decode_fetch_response(body, version, position)
    error, epoch, leader_id, endpoint, high_watermark, log_start_offset = made[:6]
    diverging, snapshot, records_at, records_size = made[6:]
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


def _encode_fetch_snapshot(
    response: FetchSnapshotResponse, version: int, listener: str, resolve: Resolve
) -> list[Body]:
    if response.error in TOP_LEVEL_ERRORS:
        # throttle time, error, no topics, no tags
        return [b"\0\0\0\0" + response.error.to_bytes(2, "big") + b"\1\0"]
    data = response.data
    if isinstance(data, SnapshotSlice):
        data = resolve(data)
    endpoint = _at(response.leader_endpoints, listener)
    prefix, suffix = encode_fetch_snapshot_response(
        version,
        response.error,
        response.epoch,
        response.leader_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        response.snapshot_id,
        response.size,
        response.position,
        len(data),
    )
    return [prefix, data, suffix]


def _decode_fetch_snapshot(
    version: int, body: Body, position: int, listener: str
) -> FetchSnapshotResponse:
    error, epoch, leader_id, endpoint, snapshot_id, size, place, data_at, data_size = (
        decode_fetch_snapshot_response(body, version, position)
    )
    return FetchSnapshotResponse(
        error=error,
        epoch=epoch,
        leader_id=leader_id,
        leader_endpoints=() if endpoint is None else (Endpoint(listener, *endpoint),),
        snapshot_id=OffsetAndEpoch(*snapshot_id),
        size=size,
        position=place,
        data=memoryview(body)[data_at : data_at + data_size] if data_size else b"",
    )


# -- DescribeQuorum


def _encode_describe(
    response: DescribeQuorumResponse, version: int, listener: str, _: Resolve
) -> bytes:
    if response.error in TOP_LEVEL_ERRORS:
        body = rpc.DescribeQuorumResponse(error_code=response.error)
        return rpc.DescribeQuorumResponse.schema.encode(body, version)
    partition = rpc.QuorumPartition(
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        high_watermark=response.high_watermark,
        current_voters=[_replica_state(state, version) for state in response.voters],
        observers=[_replica_state(state, version) for state in response.observers],
    )
    body = rpc.DescribeQuorumResponse(topics=[rpc.QuorumTopic(METADATA_TOPIC, [partition])])
    if version >= 2:
        nodes = dict(response.nodes)
        if response.leader_id >= 0 and response.leader_endpoints:
            nodes.setdefault(response.leader_id, response.leader_endpoints)
        body.nodes = [rpc.QuorumNode(id, listeners(nodes[id])) for id in sorted(nodes)]
    return rpc.DescribeQuorumResponse.schema.encode(body, version)


def _replica_state(state: ReplicaState, version: int) -> rpc.ReplicaState:
    made = rpc.ReplicaState(replica_id=state.key.id, log_end_offset=state.log_end_offset)
    if version >= 1:
        made.last_fetch_timestamp = state.last_fetch_timestamp_ms
        made.last_caught_up_timestamp = state.last_caught_up_timestamp_ms
    if version >= 2:
        made.replica_directory_id = directory_or_zero(state.key.directory_id)
    return made


def _decode_describe(
    version: int, body: Body, position: int, listener: str
) -> DescribeQuorumResponse:
    schema = rpc.DescribeQuorumResponse.schema
    made = cast(rpc.DescribeQuorumResponse, schema.decode(body, version, position))
    if made.error_code != 0:
        return DescribeQuorumResponse(made.error_code)
    at: rpc.QuorumPartition = _ours(made.topics, "DescribeQuorum")
    nodes = {node.node_id: endpoints(node.listeners) for node in made.nodes}
    # Kafka leaves the leader of a refusal at 0, which says nothing.
    leader_id = at.leader_id if at.error_code == 0 or at.leader_id in nodes else -1
    return DescribeQuorumResponse(
        error=at.error_code,
        epoch=at.leader_epoch,
        leader_id=leader_id,
        leader_endpoints=nodes.get(leader_id, ()),
        high_watermark=at.high_watermark,
        voters=tuple(map(_state, at.current_voters)),
        observers=tuple(map(_state, at.observers)),
        nodes=nodes,
    )


def _state(state: rpc.ReplicaState) -> ReplicaState:

    return ReplicaState(
        ReplicaKey(state.replica_id, directory_or_none(state.replica_directory_id)),
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


# -- AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, UpdateFeatures


def _encode_voter(
    response: AddRaftVoterResponse | RemoveRaftVoterResponse, version: int, _: str, __: Resolve
) -> bytes:
    body = rpc.RaftVoterResponse(error_code=response.error, error_message=response.message)
    return rpc.RaftVoterResponse.schema.encode(body, version)


def _decode_voter(version: int, body: Body, position: int) -> tuple[int, str | None]:
    schema = rpc.RaftVoterResponse.schema
    made = cast(rpc.RaftVoterResponse, schema.decode(body, version, position))
    return made.error_code, made.error_message


def _decode_add(version: int, body: Body, position: int, _: str) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(*_decode_voter(version, body, position))


def _decode_remove(version: int, body: Body, position: int, _: str) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(*_decode_voter(version, body, position))


def _encode_update(
    response: UpdateRaftVoterResponse, version: int, listener: str, _: Resolve
) -> bytes:
    leader = rpc.CurrentLeader(response.leader_id, response.epoch)
    endpoint = _at(response.leader_endpoints, listener)
    if endpoint is not None and response.leader_id >= 0:
        leader.host, leader.port = endpoint.host, endpoint.port
    body = rpc.UpdateRaftVoterResponse(error_code=response.error, current_leader=leader)
    return rpc.UpdateRaftVoterResponse.schema.encode(body, version)


def _decode_update(
    version: int, body: Body, position: int, listener: str
) -> UpdateRaftVoterResponse:
    schema = rpc.UpdateRaftVoterResponse.schema
    made = cast(rpc.UpdateRaftVoterResponse, schema.decode(body, version, position))
    leader = made.current_leader
    has_endpoint = leader.leader_id >= 0 and leader.host
    return UpdateRaftVoterResponse(
        error=made.error_code,
        epoch=leader.leader_epoch,
        leader_id=leader.leader_id,
        leader_endpoints=(Endpoint(listener, leader.host, leader.port),) if has_endpoint else (),
    )


def _encode_kraft_version(
    response: UpdateKRaftVersionResponse, version: int, _: str, __: Resolve
) -> bytes:
    body = rpc.UpdateFeaturesResponse(error_code=response.error, error_message=response.message)
    if version <= 1:
        body.results = [rpc.FeatureResult(KRAFT_VERSION, response.error, response.message)]
    return rpc.UpdateFeaturesResponse.schema.encode(body, version)


def _decode_kraft_version(
    version: int, body: Body, position: int, _: str
) -> UpdateKRaftVersionResponse:
    schema = rpc.UpdateFeaturesResponse.schema
    made = cast(rpc.UpdateFeaturesResponse, schema.decode(body, version, position))
    if made.error_code == 0:
        for result in made.results:
            if result.error_code != 0:
                return UpdateKRaftVersionResponse(result.error_code, result.error_message)
    return UpdateKRaftVersionResponse(made.error_code, made.error_message)


_ENCODERS: dict[type[Response], Callable[[Any, int, str, Resolve], bytes | list[Body]]] = {
    VoteResponse: _encode_vote,
    BeginQuorumEpochResponse: _encode_epoch,
    EndQuorumEpochResponse: _encode_epoch,
    FetchResponse: _encode_fetch,
    FetchSnapshotResponse: _encode_fetch_snapshot,
    DescribeQuorumResponse: _encode_describe,
    AddRaftVoterResponse: _encode_voter,
    RemoveRaftVoterResponse: _encode_voter,
    UpdateRaftVoterResponse: _encode_update,
    UpdateKRaftVersionResponse: _encode_kraft_version,
}

_DECODERS: dict[int, Callable[[int, Body, int, str], Response]] = {
    wire.VOTE.key: _decode_vote,
    wire.BEGIN_QUORUM_EPOCH.key: _decode_begin,
    wire.END_QUORUM_EPOCH.key: _decode_end,
    wire.FETCH.key: _decode_fetch,
    wire.FETCH_SNAPSHOT.key: _decode_fetch_snapshot,
    wire.DESCRIBE_QUORUM.key: _decode_describe,
    wire.ADD_RAFT_VOTER.key: _decode_add,
    wire.REMOVE_RAFT_VOTER.key: _decode_remove,
    wire.UPDATE_RAFT_VOTER.key: _decode_update,
    wire.UPDATE_FEATURES.key: _decode_kraft_version,
}
