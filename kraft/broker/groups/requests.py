"""Group requests and responses as plain objects, with the names of Kafka's messages.

They are the boundary of this package: a listener makes them from the messages of the RPCs. Only the
fields that a coordinator reads or answers are here. ``throttle_time_ms`` and the authorized
operations are the listener's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from kraft._core.codec.message_schema import ZERO_UUID, Uuid

#: The member id of a client that has none yet, and the leader id of a group without one.
NO_MEMBER_ID = ""
#: The generation of a commit by a client that is no member of a group.
NO_GENERATION = -1
#: The retention time of a commit that leaves it to the broker.
DEFAULT_RETENTION_MS = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Who sent a request: client id and host as DescribeGroups shows them, and the API version."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(frozen=True, slots=True)
class JoinProtocol:
    """An assignment strategy that a member supports, with its subscription as bytes."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupRequest:
    group_id: str
    session_timeout_ms: int
    #: -1 before version 1 of the RPC: the session timeout then counts for both.
    rebalance_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: list[JoinProtocol]
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader of its group sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResponse:
    error_code: int = 0
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    #: None as in Kafka where it has no protocol; the listener sends "" before version 7.
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinedMember] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SyncAssignment:
    """What the leader of a group assigns to one member."""

    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncGroupRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncAssignment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SyncGroupResponse:
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """A member that leaves; by its instance id alone if ``member_id`` is empty."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupRequest:
    group_id: str
    members: list[MemberIdentity]


@dataclass(frozen=True, slots=True)
class MemberLeft:
    member_id: str
    group_instance_id: str | None
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse:
    error_code: int = 0
    members: list[MemberLeft] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CommitPartition:
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = NO_LEADER_EPOCH
    committed_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class CommitTopic:
    name: str
    partitions: list[CommitPartition]
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """A commit; the listener has rejected topics that do not exist or are not authorized."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    topics: list[CommitTopic]
    group_instance_id: str | None = None
    retention_time_ms: int = DEFAULT_RETENTION_MS


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The error code of one partition in a response to OffsetCommit or OffsetDelete."""

    partition_index: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class CommittedTopic:
    name: str
    partitions: list[PartitionResult]
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    topics: list[CommittedTopic] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FetchOffsetsTopic:
    name: str
    partition_indexes: list[int]
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class FetchOffsetsGroup:
    """One group of an OffsetFetch; ``topics`` None asks for all its offsets.

    ``require_stable`` is the flag of the whole request.
    """

    group_id: str
    topics: list[FetchOffsetsTopic] | None = None
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    partition_index: int
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class FetchedTopic:
    name: str
    partitions: list[FetchedOffset]
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class FetchedGroup:
    group_id: str
    error_code: int = 0
    topics: list[FetchedTopic] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOffsetsTopic:
    name: str
    partition_indexes: list[int]


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest:
    group_id: str
    topics: list[DeleteOffsetsTopic]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    error_code: int = 0
    topics: list[CommittedTopic] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteGroupRequest:
    """One group of a DeleteGroups request."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    group_id: str
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class GroupSummary:
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    error_code: int = 0
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedMember] = field(default_factory=list)


GroupRequest: TypeAlias = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | FetchOffsetsGroup
    | OffsetDeleteRequest
    | DeleteGroupRequest
)
GroupResponse: TypeAlias = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | FetchedGroup
    | OffsetDeleteResponse
    | DeletedGroup
)
