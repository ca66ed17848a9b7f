"""Requests and responses of the raft RPCs, and the error codes that they carry.

Each RPC has one request and one response class; all are about the one partition of the metadata
log, without the nesting of topics and partitions on the wire. ``kraft.server`` converts them to and
from Kafka's messages in the version that the peer supports. It answers malformed requests (another
topic, no partition) itself.

``error`` is Kafka's error code. On the wire, INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION and
CLUSTER_AUTHORIZATION_FAILED are the top-level error of a response, every other code is the
partition's. In every response ``leader_id`` is -1 if no leader is known, and ``leader_endpoints``
are the known endpoints of that leader. Sources: KIP-595, 630, 853, 996, 1166, 1186.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INCONSISTENT_CLUSTER_ID,
    UNSUPPORTED_VERSION,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey

#: The errors that are the top-level error of a response, not the partition's.
TOP_LEVEL_ERRORS = frozenset(
    {CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION, INCONSISTENT_CLUSTER_ID}
)

#: In a Fetch: respond without waiting for a higher high watermark (versions below 18).
ANY_HIGH_WATERMARK = (1 << 63) - 1
UNKNOWN_OFFSET = -1


class OffsetAndEpoch(NamedTuple):
    """The id of a snapshot (its end offset is exclusive), or a log offset with its epoch."""

    offset: int
    epoch: int


class LogSlice(NamedTuple):
    """Whole batches of the sender's log; the driver puts their bytes into the response.

    They begin with the batch that contains ``offset`` and end at or before ``end_offset``: at most
    ``max_size`` bytes, but at least one batch.
    """

    offset: int
    end_offset: int
    max_size: int


class SnapshotSlice(NamedTuple):
    """At most ``max_size`` bytes of one of the sender's snapshot files, from ``position`` on."""

    snapshot_id: OffsetAndEpoch
    position: int
    max_size: int


@dataclass(slots=True)
class VoteRequest:
    """A request for a vote, or with ``is_pre_vote`` for the promise of one."""

    cluster_id: str | None
    epoch: int
    candidate: ReplicaKey
    #: The receiver, as the sender knows it; None before Vote v1.
    voter: ReplicaKey | None
    last_epoch: int
    last_offset: int
    is_pre_vote: bool = False


@dataclass(slots=True)
class VoteResponse:
    """Whether the vote is granted."""

    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    is_granted: bool = False


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    """The announcement of a new leader to a voter."""

    cluster_id: str | None
    epoch: int
    leader_id: int
    #: The receiver, as the sender knows it; None before v1.
    voter: ReplicaKey | None
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class BeginQuorumEpochResponse:
    """Whether the voter accepts the leader."""

    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class EndQuorumEpochRequest:
    """The announcement of a leader that resigns."""

    cluster_id: str | None
    epoch: int
    leader_id: int
    #: The voters that should lead next, the best first.
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class EndQuorumEpochResponse:
    """Whether the voter accepts the end of the epoch."""

    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class FetchRequest:
    """A replica's request for the log from ``offset`` on."""

    cluster_id: str | None
    #: The leader serves an id below 0 and does not record its progress.
    replica: ReplicaKey
    epoch: int
    offset: int
    last_fetched_epoch: int
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024
    high_watermark: int = ANY_HIGH_WATERMARK


@dataclass(slots=True)
class FetchResponse:
    """A part of the log; or the point where the logs diverge, or the snapshot to fetch first."""

    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging_epoch: EpochEndOffset | None = None
    snapshot_id: OffsetAndEpoch | None = None
    #: A slice as the leader sends it, bytes as the follower receives it.
    records: bytes | memoryview | LogSlice = b""


@dataclass(slots=True)
class FetchSnapshotRequest:
    """A replica's request for the bytes of a snapshot from ``position`` on."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int = 8 * 1024 * 1024


@dataclass(slots=True)
class FetchSnapshotResponse:
    """A part of a snapshot."""

    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    snapshot_id: OffsetAndEpoch | None = None
    #: Bytes of the whole snapshot.
    size: int = 0
    position: int = 0
    data: bytes | memoryview | SnapshotSlice = b""


@dataclass(slots=True)
class DescribeQuorumRequest:
    """A request for the state of the quorum."""


class DescribedReplica(NamedTuple):
    """A voter or observer as its leader describes it; unknown times are -1."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


@dataclass(slots=True)
class DescribeQuorumResponse:
    """The state of the quorum, as its leader knows it."""

    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    voters: tuple[DescribedReplica, ...] = ()
    observers: tuple[DescribedReplica, ...] = ()
    #: The endpoints of the voters, by id.
    nodes: dict[int, tuple[Endpoint, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class AddRaftVoterRequest:
    """A request to the leader to add a voter."""

    cluster_id: str | None
    timeout_ms: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    #: False (KIP-1186): respond as soon as the new voters are in the leader's log.
    ack_when_committed: bool = True


@dataclass(slots=True)
class AddRaftVoterResponse:
    """Whether the voter was added."""

    error: int
    message: str | None = None


@dataclass(slots=True)
class RemoveRaftVoterRequest:
    """A request to the leader to remove a voter."""

    cluster_id: str | None
    voter: ReplicaKey


@dataclass(slots=True)
class RemoveRaftVoterResponse:
    """Whether the voter was removed."""

    error: int
    message: str | None = None


@dataclass(slots=True)
class UpdateRaftVoterRequest:
    """A voter's new endpoints and kraft.version range, for the leader."""

    cluster_id: str | None
    epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_versions: KRaftVersionRange


@dataclass(slots=True)
class UpdateRaftVoterResponse:
    """Whether the leader updated the voter."""

    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class ApiVersionsRequest:
    """The leader's request to a node that is to become a voter."""


@dataclass(slots=True)
class ApiVersionsResponse:
    """The part of ApiVersions that the leader needs."""

    error: int
    #: The node's range of the feature kraft.version; None if the response lacks it.
    kraft_versions: KRaftVersionRange | None = None


@dataclass(slots=True)
class UpdateKRaftVersionRequest:
    """The part of UpdateFeatures that the raft layer decides: the level of kraft.version."""

    level: int
    is_upgrade: bool = True
    validate_only: bool = False


@dataclass(slots=True)
class UpdateKRaftVersionResponse:
    """Whether the level was changed."""

    error: int
    message: str | None = None


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | DescribeQuorumRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest
    | ApiVersionsRequest
    | UpdateKRaftVersionRequest
)

Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | DescribeQuorumResponse
    | AddRaftVoterResponse
    | RemoveRaftVoterResponse
    | UpdateRaftVoterResponse
    | ApiVersionsResponse
    | UpdateKRaftVersionResponse
)
