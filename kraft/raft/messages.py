"""What raft nodes say to each other, without the wire's nesting of topics and partitions.

Owns the message classes: one request and one response class for each RPC, all of the one partition
of the metadata log. ``kraft.server`` turns them into Kafka's messages of the version that a peer
knows, and back; it answers requests of a wrong shape (another topic, no partition) by itself.

``error`` is Kafka's error code. INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION and
CLUSTER_AUTHORIZATION_FAILED stand at the top of a response on the wire, every other code at the
partition. In every response ``leader_id`` is -1 where none is known, and ``leader_endpoints`` are
those of that leader, as far as they are known. Sources: KIP-595, 630, 853, 996, 1166, 1186.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kraft._core.epoch_cache import EpochEndOffset
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange

NONE = 0
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
BROKER_NOT_AVAILABLE = 8
MESSAGE_TOO_LARGE = 10
CLUSTER_AUTHORIZATION_FAILED = 31
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
THROTTLING_QUOTA_EXCEEDED = 89
INVALID_UPDATE_VERSION = 95
SNAPSHOT_NOT_FOUND = 98
POSITION_OUT_OF_RANGE = 99
INCONSISTENT_CLUSTER_ID = 104
INVALID_VOTER_KEY = 125
DUPLICATE_VOTER = 126
VOTER_NOT_FOUND = 127
UNKNOWN_SERVER_ERROR = -1

#: The errors that stand at the top of a response rather than at the partition.
TOP_LEVEL_ERRORS = frozenset(
    {CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION, INCONSISTENT_CLUSTER_ID}
)

#: In a Fetch: the fetcher does not care about high watermarks (versions below 18).
ANY_HIGH_WATERMARK = (1 << 63) - 1
UNKNOWN_OFFSET = -1


class OffsetAndEpoch(NamedTuple):
    """The id of a snapshot (its end offset is exclusive), or a place in the log with its epoch."""

    offset: int
    epoch: int


class LogSlice(NamedTuple):
    """Whole batches of the sender's log, to be put into the response as they lie on disk.

    From the batch that holds ``offset`` on, none that ends behind ``end_offset``, at most
    ``max_size`` bytes but at least one batch.
    """

    offset: int
    end_offset: int
    max_size: int


class SnapshotSlice(NamedTuple):
    """Bytes of one of the sender's snapshot files; ``max_size`` bytes at most."""

    snapshot_id: OffsetAndEpoch
    position: int
    max_size: int


@dataclass(slots=True)
class VoteRequest:
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
    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    is_granted: bool = False


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    cluster_id: str | None
    epoch: int
    leader_id: int
    #: The receiver, as the sender knows it; None before v1.
    voter: ReplicaKey | None
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class BeginQuorumEpochResponse:
    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class EndQuorumEpochRequest:
    cluster_id: str | None
    epoch: int
    leader_id: int
    #: Who should lead next, the best first.
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class EndQuorumEpochResponse:
    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class FetchRequest:
    cluster_id: str | None
    #: An id below 0 is served but not remembered.
    replica: ReplicaKey
    epoch: int
    offset: int
    last_fetched_epoch: int
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024
    high_watermark: int = ANY_HIGH_WATERMARK


@dataclass(slots=True)
class FetchResponse:
    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging_epoch: EpochEndOffset | None = None
    snapshot_id: OffsetAndEpoch | None = None
    #: What the leader sends is a slice, what a follower receives is its bytes.
    records: bytes | memoryview | LogSlice = b""


@dataclass(slots=True)
class FetchSnapshotRequest:
    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int = 8 * 1024 * 1024


@dataclass(slots=True)
class FetchSnapshotResponse:
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
    pass


class ReplicaState(NamedTuple):
    """How far a voter or observer is, as its leader sees it; times are -1 where unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


@dataclass(slots=True)
class DescribeQuorumResponse:
    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    voters: tuple[ReplicaState, ...] = ()
    observers: tuple[ReplicaState, ...] = ()
    #: The endpoints of the voters, by id.
    nodes: dict[int, tuple[Endpoint, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class AddRaftVoterRequest:
    cluster_id: str | None
    timeout_ms: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    #: False (KIP-1186): answer as soon as the new voters are in the leader's log.
    ack_when_committed: bool = True


@dataclass(slots=True)
class AddRaftVoterResponse:
    error: int
    message: str | None = None


@dataclass(slots=True)
class RemoveRaftVoterRequest:
    cluster_id: str | None
    voter: ReplicaKey


@dataclass(slots=True)
class RemoveRaftVoterResponse:
    error: int
    message: str | None = None


@dataclass(slots=True)
class UpdateRaftVoterRequest:
    cluster_id: str | None
    epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_versions: VersionRange


@dataclass(slots=True)
class UpdateRaftVoterResponse:
    error: int
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class ApiVersionsRequest:
    """What a leader asks a node that wants to become a voter."""


@dataclass(slots=True)
class ApiVersionsResponse:
    error: int
    #: What the node says of the feature kraft.version; None where it does not name it.
    kraft_versions: VersionRange | None = None


@dataclass(slots=True)
class UpdateKRaftVersionRequest:
    """The part of UpdateFeatures that the raft layer decides: the level of kraft.version."""

    level: int
    is_upgrade: bool = True
    validate_only: bool = False


@dataclass(slots=True)
class UpdateKRaftVersionResponse:
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
