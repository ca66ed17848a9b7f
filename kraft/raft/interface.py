"""The interface between a raft node and its driver: events, writes, messages and `RaftReady`.

The driver calls ``Node.step(event, now_ms)`` and carries out the `RaftReady` that it returns:

- It performs the writes of one ``RaftReady`` in order, makes them durable (fsync) and then passes
  `Written` with the ``write_sequence`` of that ``RaftReady``. It may perform the writes of several
  in their order before one fsync, and pass only the last sequence.
- It may send everything in ``to_send`` at once: the node holds back each message that depends on a
  write until that write is durable.
- ``wake_at_ms``: the driver calls ``step(None, now_ms)`` at this time if no event comes before.
- It answers each sent request with one `ResponseReceived` or `RequestFailed` of the same
  ``correlation``. The node gives a request up after the request timeout and ignores both then.

The messages of every step are dataclasses, which are created faster. The others are named tuples,
whose classes are imported faster.

Times are milliseconds since 1970 and never go back: the driver adds a monotonic clock to the wall
clock's reading at its start. A leader also stamps its batches with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kraft.raft.rpc import OffsetAndEpoch, Request, Response
from kraft.raft.voters import Endpoint, VoterSet
from kraft.records import Uuid


class Role(IntEnum):
    """The state of a node in its epoch; Kafka's ``EpochState`` classes."""

    UNATTACHED = 0
    PROSPECTIVE = 1
    CANDIDATE = 2
    LEADER = 3
    FOLLOWER = 4
    RESIGNED = 5


# -- events: what a driver passes to a node


@dataclass(slots=True)
class RequestReceived:
    """A request of another node or of a client; its `SendResponse` has the same ``reply_to``."""

    request: Request
    reply_to: int


class RequestsReceived(NamedTuple):
    """Requests that came at the same time, in their order: a step for each would cost more."""

    requests: Sequence[RequestReceived]


class RequestAbandoned(NamedTuple):
    """The sender of a request is gone; the response to ``reply_to`` would be dropped.

    Optional: it lets a leader forget waiting fetches.
    """

    reply_to: int


@dataclass(slots=True)
class ResponseReceived:
    """The response to the `SendRequest` of the same ``correlation``."""

    correlation: int
    response: Response


class RequestFailed(NamedTuple):
    """A request got no response.

    ``is_unsupported``: the peer supports no version of the API that can express the request (a
    pre-vote before Vote v2, an unknown API). Otherwise the connection was refused or lost.
    """

    correlation: int
    is_unsupported: bool = False


@dataclass(slots=True)
class Written:
    """Everything up to this ``write_sequence`` is durable."""

    write_sequence: int


@dataclass(slots=True)
class Append:
    """Records of the controller, for the leader of ``epoch`` to append.

    Either ``values`` (encoded metadata records, which share one batch) or ``batches`` (finished v2
    batches with offsets from 0; writable, as their offsets and epoch are set in place). The
    `RaftReady` of the same step has an `Appended` with the same ``token``.
    """

    token: int
    epoch: int
    values: tuple[bytes, ...] = ()
    batches: memoryview | bytearray | None = None


class SnapshotStored(NamedTuple):
    """A snapshot is complete and durable under its final name.

    This node made it, or installed it (``is_installed``, after `InstallSnapshot`). For an installed
    one, ``voters`` and ``kraft_version`` come from its control records (None and 0 without them).
    """

    snapshot_id: OffsetAndEpoch
    size: int
    is_installed: bool = False
    voters: VoterSet | None = None
    kraft_version: int = 0


class SnapshotRejected(NamedTuple):
    """The download of an `InstallSnapshot` was damaged and is removed.

    Log and other snapshots are unchanged.
    """

    snapshot_id: OffsetAndEpoch
    reason: str


class SnapshotsCleaned(NamedTuple):
    """Old snapshots were removed and the log now starts at ``log_start_offset``."""

    log_start_offset: int
    earliest_snapshot_id: OffsetAndEpoch


class Resign(NamedTuple):
    """The controller gives up leadership of ``epoch``; ignored in any other."""

    epoch: int


class Shutdown(NamedTuple):
    """Stop the node: a leader first resigns and notifies the other voters.

    ``RaftReady.is_shut_down`` is set when the node may stop, at the latest after ``timeout_ms``.
    """

    timeout_ms: int = 5000


Event = (
    RequestReceived
    | RequestsReceived
    | RequestAbandoned
    | ResponseReceived
    | RequestFailed
    | Written
    | Append
    | SnapshotStored
    | SnapshotRejected
    | SnapshotsCleaned
    | Resign
    | Shutdown
    | None
)


# -- writes and messages: what a node asks of its driver


class WriteElectionState(NamedTuple):
    """Replace the quorum-state file durably, before any later write."""

    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: Uuid | None
    kraft_version: int


@dataclass(slots=True)
class AppendBatches:
    """Append batches to the log; they are validated and have their final offsets and epoch."""

    base_offset: int
    end_offset: int
    batches: memoryview | bytes | bytearray


class TruncateLog(NamedTuple):
    """Truncate the log: ``end_offset`` is the first offset to remove."""

    end_offset: int


class StoreSnapshotChunk(NamedTuple):
    """Write bytes of a snapshot download; position 0 begins a new file."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes | memoryview


class InstallSnapshot(NamedTuple):
    """Install a complete download as the snapshot that the log begins with.

    The driver syncs and validates the file, renames it, empties the log and starts it at the
    snapshot's end. Then it passes `SnapshotStored` with ``is_installed``, or `SnapshotRejected` if
    the file is damaged; and after it `Written`.
    """

    snapshot_id: OffsetAndEpoch


class DropSnapshotDownload(NamedTuple):
    """Remove the file of a download that was given up."""

    snapshot_id: OffsetAndEpoch


Write = (
    WriteElectionState
    | AppendBatches
    | TruncateLog
    | StoreSnapshotChunk
    | InstallSnapshot
    | DropSnapshotDownload
)


@dataclass(slots=True)
class SendRequest:
    """A request to a node; ``destination`` is its id, below -1 for a bootstrap server."""

    destination: int
    endpoint: Endpoint
    request: Request
    correlation: int


@dataclass(slots=True)
class SendResponse:
    """The response to the `RequestReceived` of the same ``reply_to``."""

    reply_to: int
    response: Response


Send = SendRequest | SendResponse


@dataclass(slots=True)
class RoleChange:
    """Role, epoch or leader has changed.

    ``is_active``: the leader's LeaderChange record is committed. Only then may the controller of
    this node become active. ``reason`` is for the log: the causes since the last `RoleChange`.
    """

    role: Role
    epoch: int
    leader_id: int
    is_active: bool = False
    reason: str = field(default="", compare=False)


@dataclass(slots=True)
class Appended:
    """The result of an `Append`: the offset of its last record, or an error.

    ``error`` is NOT_LEADER_OR_FOLLOWER, MESSAGE_TOO_LARGE if the records do not fit into one batch,
    or THROTTLING_QUOTA_EXCEEDED if too many appends wait for the disk.
    """

    token: int
    last_offset: int
    error: int = 0


@dataclass(slots=True)
class RaftReady:
    """The result of one step."""

    to_write: list[Write] = field(default_factory=list)
    #: The sequence of these writes; of the last writes before if there are none.
    write_sequence: int = 0
    to_send: list[Send] = field(default_factory=list)
    #: The high watermark if it has moved: all records below it are committed.
    committed: int | None = None
    role_change: RoleChange | None = None
    appended: list[Appended] = field(default_factory=list)
    wake_at_ms: float = float("inf")
    is_shut_down: bool = False
