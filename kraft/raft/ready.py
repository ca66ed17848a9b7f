"""What goes into ``Node.step`` and what comes out of it.

Owns the events that a driver tells a node, and `Ready`, the node's answer. The contract:

- The driver does the writes of one ``Ready`` in their order, and then makes them durable (fsync).
  Then it tells ``Written`` with that Ready's ``write_sequence``. It may do the writes of several
  Readys before one fsync, in the order in which they came, and tell only the last sequence.
- Whatever is in ``to_send`` may be sent at once: messages that speak of what has been written are
  held back by the node until it is durable.
- ``wake_at_ms``: when the node wants to be stepped (with ``None``) even if nothing happens.
- A request that was sent is answered by one ``ResponseReceived`` or ``RequestFailed`` with its
  ``correlation``; a node gives it up by itself after the request timeout, and then ignores both.

Times are milliseconds since 1970 that never go back: the driver adds a monotonic clock to the
wall clock's reading at its start. They also stamp the batches that a leader writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from kraft.raft.messages import OffsetAndEpoch, Request, Response
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


# -- what a driver tells a node


@dataclass(slots=True)
class RequestReceived:
    """A request of another node or of a client; ``reply_to`` names it in the `SendResponse`."""

    request: Request
    reply_to: int


@dataclass(slots=True)
class RequestAbandoned:
    """The sender of a request is gone: nobody reads the answer to ``reply_to`` any more.

    A driver need not tell: an answer that nobody reads is dropped. It lets a leader forget fetches
    that wait.
    """

    reply_to: int


@dataclass(slots=True)
class ResponseReceived:
    correlation: int
    response: Response


@dataclass(slots=True)
class RequestFailed:
    """A request got no answer.

    ``is_unsupported``: the peer knows no version of this API that can say it (a pre-vote before
    Vote v2, an API that it does not have); otherwise the connection was refused or lost.
    """

    correlation: int
    is_unsupported: bool = False


@dataclass(slots=True)
class Written:
    """Everything up to this ``write_sequence`` is durable."""

    write_sequence: int


@dataclass(slots=True)
class Append:
    """Records of the controller, for the leader of ``epoch`` to write.

    Either ``values`` (metadata records, encoded; they stay together in one batch) or ``batches``
    (finished v2 batches whose offsets count from 0; writable, stamped in place). The answer is an
    `Appended` with the same ``token`` in the same Ready.
    """

    token: int
    epoch: int
    values: tuple[bytes, ...] = ()
    batches: memoryview | bytearray | None = None


@dataclass(slots=True)
class SnapshotStored:
    """A snapshot is complete and durable under its name.

    Either one that was made here, or one that an `InstallSnapshot` put in its place; then
    ``voters`` and ``kraft_version`` are those of its control records (None and 0 without them).
    """

    snapshot_id: OffsetAndEpoch
    size: int
    is_installed: bool = False
    voters: VoterSet | None = None
    kraft_version: int = 0


@dataclass(slots=True)
class SnapshotRefused:
    """What an `InstallSnapshot` was to put in place is no sound snapshot: it is gone, log and
    snapshots are as they were.
    """

    snapshot_id: OffsetAndEpoch
    reason: str


@dataclass(slots=True)
class SnapshotsCleaned:
    """Old snapshots were removed and the log now starts at ``log_start_offset``."""

    log_start_offset: int
    earliest_snapshot_id: OffsetAndEpoch


@dataclass(slots=True)
class Resign:
    """The controller gives up leadership of ``epoch``; ignored in any other."""

    epoch: int


@dataclass(slots=True)
class Shutdown:
    """Leave in good order: a leader resigns and tells the others (``Ready.is_shut_down`` at the
    end).
    """

    timeout_ms: int = 5000


Event = (
    RequestReceived
    | RequestAbandoned
    | ResponseReceived
    | RequestFailed
    | Written
    | Append
    | SnapshotStored
    | SnapshotRefused
    | SnapshotsCleaned
    | Resign
    | Shutdown
    | None
)


# -- what a node asks of its driver


@dataclass(slots=True)
class WriteElectionState:
    """Replace the quorum-state file, durably, before any later write."""

    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: Uuid | None
    kraft_version: int


@dataclass(slots=True)
class AppendBatches:
    """Append batches, stamped and checked, to the log; they begin at ``base_offset``."""

    base_offset: int
    end_offset: int
    batches: memoryview | bytes | bytearray


@dataclass(slots=True)
class TruncateLog:
    """Cut the log's end: ``end_offset`` is the first offset that goes."""

    end_offset: int


@dataclass(slots=True)
class StoreSnapshotChunk:
    """Bytes of a snapshot that is being downloaded. At position 0 the file begins anew."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes | memoryview


@dataclass(slots=True)
class InstallSnapshot:
    """The download is whole: sync it, check it, put it under its name, empty the log and start it
    at the snapshot's end. Then tell `SnapshotStored`, ``is_installed``, or `SnapshotRefused` where
    the bytes are no sound snapshot; and after it `Written`.
    """

    snapshot_id: OffsetAndEpoch


@dataclass(slots=True)
class DropSnapshotDownload:
    """The download was given up: remove what there is of it."""

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
    """A request for a node; ``destination`` is its id, below -1 for a bootstrap server."""

    destination: int
    endpoint: Endpoint
    request: Request
    correlation: int


@dataclass(slots=True)
class SendResponse:
    reply_to: int
    response: Response


Send = SendRequest | SendResponse


@dataclass(slots=True)
class RoleChange:
    """The role, epoch or leader has changed.

    ``is_active`` is set once a leader's epoch has begun for good, when its LeaderChange record is
    committed: only then may the controller take up its work.
    """

    role: Role
    epoch: int
    leader_id: int
    is_active: bool = False


@dataclass(slots=True)
class Appended:
    """The answer to an `Append`: the offset of its last record, or why it was refused.

    ``error`` is NOT_LEADER_OR_FOLLOWER, or MESSAGE_TOO_LARGE where the records do not fit into one
    batch, or THROTTLING_QUOTA_EXCEEDED where too many batches wait (Kafka's exceptions of the same
    meaning).
    """

    token: int
    last_offset: int
    error: int = 0


@dataclass(slots=True)
class Ready:
    """What one step brought forth."""

    to_write: list[Write] = field(default_factory=list)
    #: Of these writes; the last one so far where there are none.
    write_sequence: int = 0
    to_send: list[Send] = field(default_factory=list)
    #: The high watermark, where it moved: everything below it is committed.
    committed: int | None = None
    role_change: RoleChange | None = None
    appended: list[Appended] = field(default_factory=list)
    wake_at_ms: float = float("inf")
    is_shut_down: bool = False
