"""The schemas of the RPCs that the raft layer speaks, in their flexible versions.

Owns the wire's structs: what Kafka nests in topics and partitions, field by field, in all versions
of Kafka 4.3. The few versions that are older than flexible encoding (KIP-482) lie in
``classic_versions``; Fetch, and the response of FetchSnapshot, in ``kraft._core.messages``. The
mapping to and from the messages of ``kraft.raft`` is in ``requests`` and ``responses``.

A class is named after Kafka's message, a field after Kafka's field; ``topic_name`` and
``partition_index`` are called so everywhere. Sources: the message schemas of Kafka 4.3.1 (KIP-595,
630, 853, 996, 1186, 584, 919), which ``tests/interop`` compares byte for byte.
"""

from __future__ import annotations

from kraft._core.message_schema import Uuid, field
from kraft._core.metadata_codec import Struct


class Listener(Struct):
    """Where a node listens, by the listener's name."""

    name: str = field("string")
    host: str = field("string")
    port: int = field("uint16")


class NodeEndpoint(Struct):
    """Where a node is reached through the listener that the request came by."""

    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("uint16")


# -- Vote


class VotePartition(Struct):
    partition_index: int = field("int32")
    replica_epoch: int = field("int32")
    replica_id: int = field("int32")
    replica_directory_id: Uuid = field("uuid", since=1)
    voter_directory_id: Uuid = field("uuid", since=1)
    last_offset_epoch: int = field("int32")
    last_offset: int = field("int64")
    pre_vote: bool = field("bool", since=2)


class VoteTopic(Struct):
    topic_name: str = field("string")
    partitions: list[VotePartition] = field("[]struct", of=VotePartition)


class VoteRequest(Struct, versions=(0, 2)):
    cluster_id: str | None = field("string", None, nullable=True)
    voter_id: int = field("int32", -1, since=1)
    topics: list[VoteTopic] = field("[]struct", of=VoteTopic)


class VotedPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    vote_granted: bool = field("bool")


class VotedTopic(Struct):
    topic_name: str = field("string")
    partitions: list[VotedPartition] = field("[]struct", of=VotedPartition)


class VoteResponse(Struct, versions=(0, 2)):
    error_code: int = field("int16")
    topics: list[VotedTopic] = field("[]struct", of=VotedTopic)
    node_endpoints: list[NodeEndpoint] = field("[]struct", since=1, tag=0, of=NodeEndpoint)


# -- BeginQuorumEpoch and EndQuorumEpoch, from version 1


class BeginPartition(Struct):
    partition_index: int = field("int32")
    voter_directory_id: Uuid = field("uuid")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class BeginTopic(Struct):
    topic_name: str = field("string")
    partitions: list[BeginPartition] = field("[]struct", of=BeginPartition)


class BeginQuorumEpochRequest(Struct, versions=(1, 1)):
    cluster_id: str | None = field("string", None, nullable=True)
    voter_id: int = field("int32", -1)
    topics: list[BeginTopic] = field("[]struct", of=BeginTopic)
    leader_endpoints: list[Listener] = field("[]struct", of=Listener)


class Candidate(Struct):
    candidate_id: int = field("int32")
    candidate_directory_id: Uuid = field("uuid")


class EndPartition(Struct):
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    preferred_candidates: list[Candidate] = field("[]struct", of=Candidate)


class EndTopic(Struct):
    topic_name: str = field("string")
    partitions: list[EndPartition] = field("[]struct", of=EndPartition)


class EndQuorumEpochRequest(Struct, versions=(1, 1)):
    cluster_id: str | None = field("string", None, nullable=True)
    topics: list[EndTopic] = field("[]struct", of=EndTopic)
    leader_endpoints: list[Listener] = field("[]struct", of=Listener)


class EpochPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class EpochTopic(Struct):
    topic_name: str = field("string")
    partitions: list[EpochPartition] = field("[]struct", of=EpochPartition)


class QuorumEpochResponse(Struct, versions=(1, 1)):
    """BeginQuorumEpochResponse and EndQuorumEpochResponse, which are laid out alike."""

    error_code: int = field("int16")
    topics: list[EpochTopic] = field("[]struct", of=EpochTopic)
    node_endpoints: list[NodeEndpoint] = field("[]struct", tag=0, of=NodeEndpoint)


# -- FetchSnapshot, whose response is in kraft._core.messages


class SnapshotId(Struct):
    end_offset: int = field("int64")
    epoch: int = field("int32")


class SnapshotPartition(Struct):
    partition_index: int = field("int32")
    current_leader_epoch: int = field("int32")
    snapshot_id: SnapshotId = field("struct", of=SnapshotId)
    position: int = field("int64")
    replica_directory_id: Uuid = field("uuid", since=1, tag=0)


class SnapshotTopic(Struct):
    topic_name: str = field("string")
    partitions: list[SnapshotPartition] = field("[]struct", of=SnapshotPartition)


class FetchSnapshotRequest(Struct, versions=(0, 1)):
    cluster_id: str | None = field("string", None, nullable=True, tag=0)
    replica_id: int = field("int32", -1)
    max_bytes: int = field("int32", 0x7FFFFFFF)
    topics: list[SnapshotTopic] = field("[]struct", of=SnapshotTopic)


class RefusedLeader(Struct):
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")


class RefusedSnapshotPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    snapshot_id: SnapshotId = field("struct", of=SnapshotId)
    current_leader: RefusedLeader = field("struct", tag=0, of=RefusedLeader)
    size: int = field("int64")
    position: int = field("int64")
    unaligned_records: bytes = field("bytes")


class RefusedSnapshotTopic(Struct):
    topic_name: str = field("string")
    partitions: list[RefusedSnapshotPartition] = field("[]struct", of=RefusedSnapshotPartition)


class RefusedFetchSnapshotResponse(Struct, versions=(0, 1)):
    """A FetchSnapshotResponse of other topics than the metadata log: it carries no data."""

    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    topics: list[RefusedSnapshotTopic] = field("[]struct", of=RefusedSnapshotTopic)


# -- DescribeQuorum


class DescribePartition(Struct):
    partition_index: int = field("int32")


class DescribeTopic(Struct):
    topic_name: str = field("string")
    partitions: list[DescribePartition] = field("[]struct", of=DescribePartition)


class DescribeQuorumRequest(Struct, versions=(0, 2)):
    topics: list[DescribeTopic] = field("[]struct", of=DescribeTopic)


class ReplicaState(Struct):
    replica_id: int = field("int32")
    replica_directory_id: Uuid = field("uuid", since=2)
    log_end_offset: int = field("int64")
    last_fetch_timestamp: int = field("int64", -1, since=1)
    last_caught_up_timestamp: int = field("int64", -1, since=1)


class QuorumPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, since=2, nullable=True)
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    high_watermark: int = field("int64")
    current_voters: list[ReplicaState] = field("[]struct", of=ReplicaState)
    observers: list[ReplicaState] = field("[]struct", of=ReplicaState)


class QuorumTopic(Struct):
    topic_name: str = field("string")
    partitions: list[QuorumPartition] = field("[]struct", of=QuorumPartition)


class QuorumNode(Struct):
    node_id: int = field("int32")
    listeners: list[Listener] = field("[]struct", of=Listener)


class DescribeQuorumResponse(Struct, versions=(0, 2)):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, since=2, nullable=True)
    topics: list[QuorumTopic] = field("[]struct", of=QuorumTopic)
    nodes: list[QuorumNode] = field("[]struct", since=2, of=QuorumNode)


# -- AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter


class AddRaftVoterRequest(Struct, versions=(0, 1)):
    cluster_id: str | None = field("string", None, nullable=True)
    timeout_ms: int = field("int32")
    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid")
    listeners: list[Listener] = field("[]struct", of=Listener)
    ack_when_committed: bool = field("bool", True, since=1)


class RemoveRaftVoterRequest(Struct, versions=(0, 0)):
    cluster_id: str | None = field("string", None, nullable=True)
    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid")


class RaftVoterResponse(Struct, versions=(0, 1)):
    """AddRaftVoterResponse and RemoveRaftVoterResponse, which are laid out alike."""

    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field("int16")
    max_supported_version: int = field("int16")


class UpdateRaftVoterRequest(Struct, versions=(0, 0)):
    cluster_id: str | None = field("string", None, nullable=True)
    current_leader_epoch: int = field("int32")
    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid")
    listeners: list[Listener] = field("[]struct", of=Listener)
    kraft_version_feature: KRaftVersionFeature = field("struct", of=KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = field("int32", -1)
    leader_epoch: int = field("int32", -1)
    host: str = field("string")
    port: int = field("int32")


class UpdateRaftVoterResponse(Struct, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    current_leader: CurrentLeader = field("struct", tag=0, of=CurrentLeader)


# -- ApiVersions, from version 3


class ApiVersionsRequest(Struct, versions=(3, 4)):
    client_software_name: str = field("string")
    client_software_version: str = field("string")


class ApiVersion(Struct):
    api_key: int = field("int16")
    min_version: int = field("int16")
    max_version: int = field("int16")


class SupportedFeature(Struct):
    name: str = field("string")
    min_version: int = field("int16")
    max_version: int = field("int16")


class FinalizedFeature(Struct):
    name: str = field("string")
    max_version_level: int = field("int16")
    min_version_level: int = field("int16")


class ApiVersionsResponse(Struct, versions=(3, 4)):
    error_code: int = field("int16")
    api_keys: list[ApiVersion] = field("[]struct", of=ApiVersion)
    throttle_time_ms: int = field("int32")
    supported_features: list[SupportedFeature] = field("[]struct", tag=0, of=SupportedFeature)
    finalized_features_epoch: int = field("int64", -1, tag=1)
    finalized_features: list[FinalizedFeature] = field("[]struct", tag=2, of=FinalizedFeature)
    zk_migration_ready: bool = field("bool", tag=3)


# -- UpdateFeatures


class FeatureUpdate(Struct):
    feature: str = field("string")
    max_version_level: int = field("int16")
    allow_downgrade: bool = field("bool", until=0)
    upgrade_type: int = field("int8", 1, since=1)


class UpdateFeaturesRequest(Struct, versions=(0, 2)):
    timeout_ms: int = field("int32", 60000)
    feature_updates: list[FeatureUpdate] = field("[]struct", of=FeatureUpdate)
    validate_only: bool = field("bool", since=1)


class FeatureResult(Struct):
    feature: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class UpdateFeaturesResponse(Struct, versions=(0, 2)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    results: list[FeatureResult] = field("[]struct", until=1, of=FeatureResult)


# -- DescribeCluster, by which a client finds the active controller (KIP-919)


class DescribeClusterRequest(Struct, versions=(0, 2)):
    include_cluster_authorized_operations: bool = field("bool")
    endpoint_type: int = field("int8", 1, since=1)
    include_fenced_brokers: bool = field("bool", since=2)


class DescribedNode(Struct):
    broker_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", None, nullable=True)
    is_fenced: bool = field("bool", since=2)


class DescribeClusterResponse(Struct, versions=(0, 2)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    endpoint_type: int = field("int8", 1, since=1)
    cluster_id: str = field("string")
    controller_id: int = field("int32", -1)
    brokers: list[DescribedNode] = field("[]struct", of=DescribedNode)
    cluster_authorized_operations: int = field("int32", -2147483648)
