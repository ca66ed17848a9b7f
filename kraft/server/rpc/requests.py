"""Requests of the raft layer <-> Kafka's request bodies.

Owns both directions for every version in ``wire.RAFT_APIS``. What a version cannot carry is left
out where Kafka leaves it out, and refused where the meaning would change (a pre-vote before Vote 2,
an AddRaftVoter that is not to wait before version 1). A request of a wrong shape never reaches the
raft node: `decode_request` answers it as Kafka's ``KafkaRaftClient`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from kraft._core.messages import decode_fetch_request, encode_fetch_request
from kraft.raft.messages import (
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    Request,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange
from kraft.server.rpc import classic_versions as classic
from kraft.server.rpc import schemas as rpc
from kraft.server.rpc import wire
from kraft.server.rpc.wire import METADATA_TOPIC, Api, directory_or_none, directory_or_zero

UNKNOWN_TOPIC_OR_PARTITION = 3
KRAFT_VERSION = "kraft.version"

_UPGRADE = 1
_SAFE_DOWNGRADE = 2

Body = bytes | memoryview


class Refused(NamedTuple):
    """A request that is answered without the raft node: the body of the response."""

    body: bytes


def encode_request(request: Request, version: int) -> bytes:
    """The body of a request, in a version of the API that ``wire.API_OF_REQUEST`` names.

    Raises UnsupportedVersionError where the version cannot say it.
    """
    return _ENCODERS[type(request)](request, version)


def decode_request(api: Api, version: int, body: Body, position: int = 0) -> Request | Refused:
    """The request whose body is ``body[position:]``, or what it is answered with at once.

    Raises CorruptRecordError.
    """
    return _DECODERS[api.key](version, body, position)


def replica_key(id: int, directory_id: Any) -> ReplicaKey:
    return ReplicaKey(id, directory_or_none(directory_id))


def listeners(endpoints: Iterable[Endpoint]) -> list[rpc.Listener]:
    return [rpc.Listener(name, host, port) for name, host, port in endpoints]


def endpoints(listeners: Iterable[rpc.Listener]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(at.name, at.host, at.port) for at in listeners)


def only_partition(topics: list[Any]) -> Any:
    """The partition of a message that is of the metadata log and nothing else, else None."""
    if len(topics) == 1 and topics[0].topic_name == METADATA_TOPIC:
        partitions = topics[0].partitions
        if len(partitions) == 1 and partitions[0].partition_index == 0:
            return partitions[0]
    return None


# -- Vote


def _encode_vote(request: VoteRequest, version: int) -> bytes:
    partition = rpc.VotePartition(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.is_pre_vote,
    )
    body = rpc.VoteRequest(
        cluster_id=request.cluster_id,
        topics=[rpc.VoteTopic(METADATA_TOPIC, [partition])],
    )
    if version >= 1:
        partition.replica_directory_id = directory_or_zero(request.candidate.directory_id)
        if request.voter is not None:
            body.voter_id = request.voter.id
            partition.voter_directory_id = directory_or_zero(request.voter.directory_id)
    return rpc.VoteRequest.schema.encode(body, version)


def _decode_vote(version: int, body: Body, position: int) -> VoteRequest | Refused:
    made = cast(rpc.VoteRequest, rpc.VoteRequest.schema.decode(body, version, position))
    partition: rpc.VotePartition | None = only_partition(made.topics)
    if partition is None:
        refusal = rpc.VoteResponse(error_code=INVALID_REQUEST)
        return Refused(rpc.VoteResponse.schema.encode(refusal, version))
    return VoteRequest(
        cluster_id=made.cluster_id,
        epoch=partition.replica_epoch,
        candidate=replica_key(partition.replica_id, partition.replica_directory_id),
        voter=_receiver(made.voter_id, partition.voter_directory_id),
        last_epoch=partition.last_offset_epoch,
        last_offset=partition.last_offset,
        is_pre_vote=partition.pre_vote,
    )


def _receiver(voter_id: int, directory_id: Any) -> ReplicaKey | None:
    """Whom the sender means to ask; id -1, the default, stands for nobody in particular."""
    return None if voter_id < 0 else replica_key(voter_id, directory_id)


# -- BeginQuorumEpoch, EndQuorumEpoch


def _encode_begin(request: BeginQuorumEpochRequest, version: int) -> bytes:
    if version == 0:
        return classic.encode_epoch_request(
            request.cluster_id, request.leader_id, request.epoch, None
        )
    voter = request.voter or ReplicaKey(-1)
    partition = rpc.BeginPartition(
        voter_directory_id=directory_or_zero(voter.directory_id),
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    body = rpc.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=voter.id,
        topics=[rpc.BeginTopic(METADATA_TOPIC, [partition])],
        leader_endpoints=listeners(request.leader_endpoints),
    )
    return rpc.BeginQuorumEpochRequest.schema.encode(body, version)


def _decode_begin(version: int, body: Body, position: int) -> BeginQuorumEpochRequest | Refused:
    if version == 0:
        old = classic.decode_epoch_request(body, position, is_end=False)
        if old is None:
            return _refused_epoch(version)
        return BeginQuorumEpochRequest(old.cluster_id, old.epoch, old.leader_id, None)
    schema = rpc.BeginQuorumEpochRequest.schema
    made = cast(rpc.BeginQuorumEpochRequest, schema.decode(body, version, position))
    partition: rpc.BeginPartition | None = only_partition(made.topics)
    if partition is None:
        return _refused_epoch(version)
    return BeginQuorumEpochRequest(
        cluster_id=made.cluster_id,
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        voter=_receiver(made.voter_id, partition.voter_directory_id),
        leader_endpoints=endpoints(made.leader_endpoints),
    )


def _encode_end(request: EndQuorumEpochRequest, version: int) -> bytes:
    if version == 0:
        successors = [candidate.id for candidate in request.preferred_candidates]
        return classic.encode_epoch_request(
            request.cluster_id, request.leader_id, request.epoch, successors
        )
    partition = rpc.EndPartition(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_candidates=[
            rpc.Candidate(id, directory_or_zero(directory_id))
            for id, directory_id in request.preferred_candidates
        ],
    )
    body = rpc.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=[rpc.EndTopic(METADATA_TOPIC, [partition])],
        leader_endpoints=listeners(request.leader_endpoints),
    )
    return rpc.EndQuorumEpochRequest.schema.encode(body, version)


def _decode_end(version: int, body: Body, position: int) -> EndQuorumEpochRequest | Refused:
    if version == 0:
        old = classic.decode_epoch_request(body, position, is_end=True)
        if old is None:
            return _refused_epoch(version)
        successors = tuple(ReplicaKey(id) for id in old.successors)
        return EndQuorumEpochRequest(old.cluster_id, old.epoch, old.leader_id, successors)
    schema = rpc.EndQuorumEpochRequest.schema
    made = cast(rpc.EndQuorumEpochRequest, schema.decode(body, version, position))
    partition: rpc.EndPartition | None = only_partition(made.topics)
    if partition is None:
        return _refused_epoch(version)
    return EndQuorumEpochRequest(
        cluster_id=made.cluster_id,
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        preferred_candidates=tuple(
            replica_key(at.candidate_id, at.candidate_directory_id)
            for at in partition.preferred_candidates
        ),
        leader_endpoints=endpoints(made.leader_endpoints),
    )


def _refused_epoch(version: int) -> Refused:
    if version == 0:
        refusal = classic.EpochResponse(INVALID_REQUEST, False, 0, -1, -1)
        return Refused(classic.encode_epoch_response(refusal))
    body = rpc.QuorumEpochResponse(error_code=INVALID_REQUEST)
    return Refused(rpc.QuorumEpochResponse.schema.encode(body, version))


# -- Fetch, FetchSnapshot


def _encode_fetch(request: FetchRequest, version: int) -> bytes:
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


def _decode_fetch(version: int, body: Body, position: int) -> FetchRequest | Refused:
    if version < 13:
        return Refused(classic.refused_fetch(INVALID_REQUEST, version))
    made = decode_fetch_request(body, version, position)
    if made is None:
        # throttle time, error, session id, no topics, no tags
        return Refused(b"\0\0\0\0" + INVALID_REQUEST.to_bytes(2, "big") + b"\0\0\0\0\1\0")
    cluster_id, id, directory_id, *rest = made
    return FetchRequest(cluster_id, ReplicaKey(id, directory_id), *rest)


def _encode_fetch_snapshot(request: FetchSnapshotRequest, version: int) -> bytes:
    offset, epoch = request.snapshot_id
    partition = rpc.SnapshotPartition(
        current_leader_epoch=request.epoch,
        snapshot_id=rpc.SnapshotId(offset, epoch),
        position=request.position,
    )
    if version >= 1:
        partition.replica_directory_id = directory_or_zero(request.replica.directory_id)
    body = rpc.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[rpc.SnapshotTopic(METADATA_TOPIC, [partition])],
    )
    return rpc.FetchSnapshotRequest.schema.encode(body, version)


def _decode_fetch_snapshot(
    version: int, body: Body, position: int
) -> FetchSnapshotRequest | Refused:
    schema = rpc.FetchSnapshotRequest.schema
    made = cast(rpc.FetchSnapshotRequest, schema.decode(body, version, position))
    partition: rpc.SnapshotPartition | None = only_partition(made.topics)
    if partition is None:
        return _refused_snapshot(made, version)
    return FetchSnapshotRequest(
        cluster_id=made.cluster_id,
        replica=replica_key(made.replica_id, partition.replica_directory_id),
        epoch=partition.current_leader_epoch,
        snapshot_id=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        position=partition.position,
        max_bytes=made.max_bytes,
    )


def _refused_snapshot(made: rpc.FetchSnapshotRequest, version: int) -> Refused:
    """One partition of another topic is answered as unknown, anything else as invalid."""
    refusal = rpc.RefusedFetchSnapshotResponse()
    if len(made.topics) == 1 and len(made.topics[0].partitions) == 1:
        unknown = rpc.RefusedSnapshotPartition(
            partition_index=made.topics[0].partitions[0].partition_index,
            error_code=UNKNOWN_TOPIC_OR_PARTITION,
        )
        refusal.topics = [rpc.RefusedSnapshotTopic(made.topics[0].topic_name, [unknown])]
    else:
        refusal.error_code = INVALID_REQUEST
    return Refused(rpc.RefusedFetchSnapshotResponse.schema.encode(refusal, version))


# -- DescribeQuorum


def _encode_describe(request: DescribeQuorumRequest, version: int) -> bytes:
    body = rpc.DescribeQuorumRequest([rpc.DescribeTopic(METADATA_TOPIC, [rpc.DescribePartition()])])
    return rpc.DescribeQuorumRequest.schema.encode(body, version)


def _decode_describe(version: int, body: Body, position: int) -> DescribeQuorumRequest | Refused:
    schema = rpc.DescribeQuorumRequest.schema
    made = cast(rpc.DescribeQuorumRequest, schema.decode(body, version, position))
    if only_partition(made.topics) is not None:
        return DescribeQuorumRequest()
    refusal = rpc.DescribeQuorumResponse(
        topics=[
            rpc.QuorumTopic(
                topic.topic_name,
                [
                    rpc.QuorumPartition(at.partition_index, UNKNOWN_TOPIC_OR_PARTITION)
                    for at in topic.partitions
                ],
            )
            for topic in made.topics
        ]
    )
    return Refused(rpc.DescribeQuorumResponse.schema.encode(refusal, version))


# -- AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter


def _encode_add(request: AddRaftVoterRequest, version: int) -> bytes:
    body = rpc.AddRaftVoterRequest(
        cluster_id=request.cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=request.voter.id,
        voter_directory_id=directory_or_zero(request.voter.directory_id),
        listeners=listeners(request.endpoints),
        ack_when_committed=request.ack_when_committed,
    )
    return rpc.AddRaftVoterRequest.schema.encode(body, version)


def _decode_add(version: int, body: Body, position: int) -> AddRaftVoterRequest:
    schema = rpc.AddRaftVoterRequest.schema
    made = cast(rpc.AddRaftVoterRequest, schema.decode(body, version, position))
    return AddRaftVoterRequest(
        cluster_id=made.cluster_id,
        timeout_ms=made.timeout_ms,
        voter=replica_key(made.voter_id, made.voter_directory_id),
        endpoints=endpoints(made.listeners),
        ack_when_committed=made.ack_when_committed,
    )


def _encode_remove(request: RemoveRaftVoterRequest, version: int) -> bytes:
    body = rpc.RemoveRaftVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter.id,
        voter_directory_id=directory_or_zero(request.voter.directory_id),
    )
    return rpc.RemoveRaftVoterRequest.schema.encode(body, version)


def _decode_remove(version: int, body: Body, position: int) -> RemoveRaftVoterRequest:
    schema = rpc.RemoveRaftVoterRequest.schema
    made = cast(rpc.RemoveRaftVoterRequest, schema.decode(body, version, position))
    return RemoveRaftVoterRequest(
        made.cluster_id, replica_key(made.voter_id, made.voter_directory_id)
    )


def _encode_update(request: UpdateRaftVoterRequest, version: int) -> bytes:
    body = rpc.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.id,
        voter_directory_id=directory_or_zero(request.voter.directory_id),
        listeners=listeners(request.endpoints),
        kraft_version_feature=rpc.KRaftVersionFeature(*request.kraft_versions),
    )
    return rpc.UpdateRaftVoterRequest.schema.encode(body, version)


def _decode_update(version: int, body: Body, position: int) -> UpdateRaftVoterRequest:
    schema = rpc.UpdateRaftVoterRequest.schema
    made = cast(rpc.UpdateRaftVoterRequest, schema.decode(body, version, position))
    feature = made.kraft_version_feature
    return UpdateRaftVoterRequest(
        cluster_id=made.cluster_id,
        epoch=made.current_leader_epoch,
        voter=replica_key(made.voter_id, made.voter_directory_id),
        endpoints=endpoints(made.listeners),
        kraft_versions=VersionRange(feature.min_supported_version, feature.max_supported_version),
    )


# -- UpdateFeatures, as far as it is of kraft.version


def _encode_kraft_version(request: UpdateKRaftVersionRequest, version: int) -> bytes:
    if version == 0:
        update = rpc.FeatureUpdate(
            KRAFT_VERSION, request.level, allow_downgrade=not request.is_upgrade
        )
    else:
        upgrade_type = _UPGRADE if request.is_upgrade else _SAFE_DOWNGRADE
        update = rpc.FeatureUpdate(KRAFT_VERSION, request.level, upgrade_type=upgrade_type)
    body = rpc.UpdateFeaturesRequest(feature_updates=[update], validate_only=request.validate_only)
    return rpc.UpdateFeaturesRequest.schema.encode(body, version)


def _decode_kraft_version(
    version: int, body: Body, position: int
) -> UpdateKRaftVersionRequest | Refused:
    schema = rpc.UpdateFeaturesRequest.schema
    made = cast(rpc.UpdateFeaturesRequest, schema.decode(body, version, position))
    updates = made.feature_updates
    if [update.feature for update in updates] == [KRAFT_VERSION]:
        is_upgrade = (
            not updates[0].allow_downgrade if version == 0 else updates[0].upgrade_type == _UPGRADE
        )
        return UpdateKRaftVersionRequest(
            updates[0].max_version_level, is_upgrade, made.validate_only
        )
    message = f"only {KRAFT_VERSION}, by itself, can be updated here"
    refusal = rpc.UpdateFeaturesResponse(error_code=INVALID_UPDATE_VERSION, error_message=message)
    if version <= 1:
        refusal.results = [
            rpc.FeatureResult(update.feature, INVALID_UPDATE_VERSION, message) for update in updates
        ]
    return Refused(rpc.UpdateFeaturesResponse.schema.encode(refusal, version))


_ENCODERS: dict[type[Request], Callable[[Any, int], bytes]] = {
    VoteRequest: _encode_vote,
    BeginQuorumEpochRequest: _encode_begin,
    EndQuorumEpochRequest: _encode_end,
    FetchRequest: _encode_fetch,
    FetchSnapshotRequest: _encode_fetch_snapshot,
    DescribeQuorumRequest: _encode_describe,
    AddRaftVoterRequest: _encode_add,
    RemoveRaftVoterRequest: _encode_remove,
    UpdateRaftVoterRequest: _encode_update,
    UpdateKRaftVersionRequest: _encode_kraft_version,
}

_DECODERS: dict[int, Callable[[int, Body, int], Request | Refused]] = {
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
