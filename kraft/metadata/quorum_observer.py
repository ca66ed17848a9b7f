"""``QuorumObserver``: the committed metadata of a running quorum, piece by piece.

Chooses the requests (DescribeQuorum, Fetch, FetchSnapshot) and reads the responses. It has no
socket: its methods are generators that yield requests and receive their responses, for any client
that handles the error of a node that does not lead. ``kraft.metadata.quorum_reader`` reads once
with it; ``kraft.live`` keeps reading.

The observer is not a replica: it fetches with the replica id -1, and the leader records no progress
for it (KIP-595, KIP-630). It keeps the records that are not committed yet, as a replica does: a
fetch that asked for them again would be answered at once, again and again. The fetch names the
observer's high watermark, so that a leader from Fetch version 18 on answers when it rises
(KIP-1166). Earlier leaders answer at the next record; until then the observer waits shortly.

Invariants: the pieces have no gap and only committed records; ``next_offset`` never decreases. A
snapshot larger than ``MAX_SNAPSHOT_BYTES`` is rejected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from kraft._core.bytes.batch import BatchTable, scan
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    CorruptRecordError,
    KraftError,
)
from kraft.image.replay import MetadataState
from kraft.metadata.snapshot_stream import SnapshotStream
from kraft.network.quorum_client import QuorumRefusedError
from kraft.raft.rpc import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogSlice,
    OffsetAndEpoch,
    Request,
    Response,
    SnapshotSlice,
)
from kraft.raft.voters import ReplicaKey

R = TypeVar("R")
#: Receives the fraction of the snapshot that was downloaded, from 0 to 1.
OnProgress = Callable[[float], object]


class Ahead(NamedTuple):
    """A request that is yielded again next, to receive its response: it may be sent already."""

    request: Request


#: Yields a request and receives its response; yields None to wait for `PAUSE_S`, and `Ahead`.
Asking = Generator[Request | Ahead | None, Response | None, R]

PAUSE_S = 0.1
#: The largest snapshot that is downloaded, in bytes: enough for 20 million partitions.
MAX_SNAPSHOT_BYTES = 2 << 30
FETCH_BYTES = 8 << 20
#: The bytes of a snapshot that one request asks for. The processor's caches hold a part from the
#: socket to the columns. kraft's leader sends no more by default
#: (controller.quorum.fetch.snapshot.max.bytes).
PART_BYTES = 1 << 20
_READER = ReplicaKey(-1)
#: Records that are not committed are kept up to this size. Beyond it they are fetched again later.
_MAX_TAIL_BYTES = 64 << 20
#: How long a fetch waits while there are such records, in ms: a leader below Fetch version 18 does
#: not answer when they are committed.
_TAIL_WAIT_MS = 20
#: Errors that mean that the leader or its epoch changed, and that its snapshot was replaced.
_LEADER_CHANGED = (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH)
_SNAPSHOT_GONE = (SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE)


class CommittedBatches(NamedTuple):
    """Whole committed batches that follow the piece before; the first may begin before its end."""

    batches: memoryview


class LoadedSnapshot(NamedTuple):
    """The state of a snapshot, without a journal; it replaces all pieces before."""

    state: MetadataState


Piece = CommittedBatches | LoadedSnapshot


class _Fetched(NamedTuple):
    """Whole batches of one response, and their headers."""

    batches: memoryview
    table: BatchTable


class QuorumObserver:
    """The position of an observer in the log of a quorum, and its requests.

    With ``cluster_id`` a quorum of another cluster rejects the requests.
    """

    def __init__(
        self, cluster_id: str | None = None, on_progress: OnProgress = lambda fraction: None
    ) -> None:
        #: The offset after the last piece.
        self.next_offset = 0
        #: The highest that a leader reported; -1 before it reported one.
        self.high_watermark = -1
        #: The most bytes that a fetch asks for; one batch may be larger.
        self.fetch_bytes = FETCH_BYTES
        self._cluster_id = cluster_id
        self._on_progress = on_progress
        #: The epoch of the leader; -1 if it has to be asked for.
        self._leader_epoch = -1
        #: The epoch of the last record below `next_offset`.
        self._last_epoch = 0
        #: Fetched records from `next_offset` on that are not committed.
        self._tail: deque[_Fetched] = deque()
        self._tail_size = 0

    def describe(self) -> Asking[None]:
        """Ask for the epoch of the leader, and its high watermark."""
        described = yield DescribeQuorumRequest()
        assert isinstance(described, DescribeQuorumResponse)
        _check(described.error, "DescribeQuorum")
        self._leader_epoch = described.epoch
        self.high_watermark = max(self.high_watermark, described.high_watermark)

    def next_piece(self, max_wait_ms: int = 0) -> Asking[Piece | None]:
        """Fetch once; return what is newly committed, or a snapshot where the leader has only that.

        Returns None if there is nothing new within ``max_wait_ms``, or if the leader changed.
        Raises QuorumRefusedError for another error of the leader, CorruptRecordError for invalid
        bytes and for a leader without committed records.
        """
        if self._leader_epoch < 0:
            yield from self.describe()
        offset, epoch = self._fetch_position()
        fetched = yield FetchRequest(
            self._cluster_id,
            _READER,
            self._leader_epoch,
            offset,
            epoch,
            min(max_wait_ms, _TAIL_WAIT_MS) if self._tail else max_wait_ms,
            self.fetch_bytes,
            self.high_watermark,
        )
        assert isinstance(fetched, FetchResponse)
        if fetched.error in _LEADER_CHANGED:
            yield from self._wait_for_leader()
            return None
        _check(fetched.error, "Fetch")
        self.high_watermark = max(self.high_watermark, fetched.high_watermark)
        if fetched.diverging_epoch is not None or fetched.snapshot_id is not None:
            if self._tail:
                # The new leader does not have them; no committed record is dropped.
                self._drop_tail()
                return None
            return (yield from self._leave_log(fetched))
        self._add_to_tail(fetched, offset)
        batches = self._take_committed()
        if batches is not None:
            return CommittedBatches(batches)
        if self._tail_size > _MAX_TAIL_BYTES:
            self._drop_tail()
            yield None
        return None

    def _fetch_position(self) -> tuple[int, int]:
        """Return the offset to fetch from, and the epoch of the record before."""
        if not self._tail:
            return self.next_offset, self._last_epoch
        table = self._tail[-1].table
        return int(table.last_offsets[-1]) + 1, int(table.partition_leader_epochs[-1])

    def _wait_for_leader(self) -> Asking[None]:
        self._leader_epoch = -1
        yield None

    # -- records

    def _add_to_tail(self, fetched: FetchResponse, offset: int) -> None:
        """Keep the whole batches of a response; Kafka's leader may cut the last batch short."""
        records = fetched.records
        assert not isinstance(records, LogSlice)
        if not records:
            return
        table = scan(records, verify_crc=False)
        if not len(table):
            raise CorruptRecordError(
                f"the leader sent {len(records)} bytes for offset {offset}, which begin with no "
                f"batch ({table.tail_reason})"
            )
        if table.base_offsets[0] > offset:
            raise CorruptRecordError(
                f"the leader sent records from offset {table.base_offsets[0]} on for a fetch of "
                f"offset {offset}"
            )
        size = int(table.positions[-1] + table.sizes[-1])
        self._tail.append(_Fetched(memoryview(records)[:size], table))
        self._tail_size += size

    def _take_committed(self) -> memoryview | None:
        """Return the batches below the high watermark, None without one; they leave the tail."""
        taken: list[memoryview] = []
        while self._tail:
            batches, table = self._tail.popleft()
            count = int(table.last_offsets.searchsorted(self.high_watermark))
            size = int(table.positions[count]) if count < len(table) else len(batches)
            if count:
                taken.append(batches[:size])
                self.next_offset = int(table.last_offsets[count - 1]) + 1
                self._last_epoch = int(table.partition_leader_epochs[count - 1])
            if count < len(table):
                rest = batches[size:]
                self._tail.appendleft(_Fetched(rest, scan(rest, verify_crc=False)))
                break
        self._tail_size -= sum(map(len, taken))
        if not taken:
            return None
        return taken[0] if len(taken) == 1 else memoryview(b"".join(taken))

    def _drop_tail(self) -> None:
        self._tail.clear()
        self._tail_size = 0

    # -- snapshots

    def _leave_log(self, fetched: FetchResponse) -> Asking[Piece | None]:
        """Load the snapshot of a leader whose log does not continue at `next_offset`."""
        snapshot_id = fetched.snapshot_id
        if snapshot_id is None or snapshot_id.offset <= self.next_offset > 0:
            raise CorruptRecordError(
                f"the leader of epoch {self._leader_epoch} does not have the committed record "
                f"before offset {self.next_offset} in epoch {self._last_epoch}: it has lost "
                "committed records, or it leads another cluster"
            )
        state = yield from self._download(snapshot_id)
        if state is None:
            yield from self._wait_for_leader()
            return None
        self.next_offset, self._last_epoch = snapshot_id.offset, snapshot_id.epoch
        return LoadedSnapshot(state)

    def _download(self, snapshot_id: OffsetAndEpoch) -> Asking[MetadataState | None]:
        """Return the state of the leader's snapshot; None if the leader no longer has it."""
        request = self._part_request(snapshot_id, 0)
        position = 0
        state = MetadataState()
        with state.loading_snapshot(snapshot_id.offset) as callbacks:
            stream = SnapshotStream(state.table, callbacks, snapshot_id.epoch)
            while True:
                fetched = yield request
                assert isinstance(fetched, FetchSnapshotResponse)
                if fetched.error in _LEADER_CHANGED or fetched.error in _SNAPSHOT_GONE:
                    return None
                _check(fetched.error, "FetchSnapshot")
                part = fetched.data
                assert not isinstance(part, SnapshotSlice)
                size = fetched.size
                if size > MAX_SNAPSHOT_BYTES:
                    raise KraftError(
                        f"the snapshot has {size} bytes; at most {MAX_SNAPSHOT_BYTES} are read"
                    )
                end = position + len(part)
                if (
                    (fetched.snapshot_id, fetched.position) != (snapshot_id, position)
                    or not part
                    or end > size
                ):
                    raise CorruptRecordError(
                        f"the leader sent {len(part)} bytes of snapshot {fetched.snapshot_id} from "
                        f"position {fetched.position} of {size} on, not {snapshot_id} from "
                        f"{position} on"
                    )
                if end < size:
                    # The leader reads the next part while this one is loaded.
                    request = self._part_request(snapshot_id, end)
                    yield Ahead(request)
                stream.add(part, size)
                self._on_progress(end / size)
                position = end
                if end == size:
                    break
            stream.finish()
        return state

    def _part_request(self, snapshot_id: OffsetAndEpoch, position: int) -> FetchSnapshotRequest:
        return FetchSnapshotRequest(
            self._cluster_id, _READER, self._leader_epoch, snapshot_id, position, PART_BYTES
        )


def _check(error: int, asked: str) -> None:
    if error != NONE:
        raise QuorumRefusedError(error, f"reading the metadata: {asked}", None)
