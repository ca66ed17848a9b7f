"""Read the metadata of a running quorum: the leader's snapshot and the committed log after it.

`metadata_requests` chooses the requests and replays the responses. It has no socket: it is a
generator that yields requests and receives their responses, for any client. `read_metadata` runs it
with the blocking client. The reader is not a replica: it fetches with the replica id -1, and the
leader records no progress for it (KIP-595, KIP-630).

Bounds: the state ends at the high watermark that the leader had at the beginning, so that the
reader also ends while the quorum writes on. A snapshot larger than ``MAX_SNAPSHOT_BYTES`` is
rejected. The number of waits and restarts (another leader, a deleted snapshot) is limited; beyond
it the reader raises an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from kraft._core.bytes.batch import scan
from kraft._core.snapshot.snapshot_file import SnapshotReader
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
from kraft.metadata.facade import Metadata
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError, QuorumUnreachableError
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

#: Receives the fraction of the metadata that was read, from 0 to 1.
OnProgress = Callable[[float], object]
#: Yields a request and receives its response; yields None to wait for `PAUSE_S`.
Reading = Generator[Request | None, Response | None, MetadataState]

PAUSE_S = 0.1
#: The largest snapshot that is downloaded, in bytes: enough for 20 million partitions.
MAX_SNAPSHOT_BYTES = 2 << 30
_READER = ReplicaKey(-1)
_FETCH_BYTES = 8 << 20
_MOST_WAITS = 100
#: The bytes at the front of a batch that its length field does not count.
_LOG_OVERHEAD = 12
#: Errors that mean that the leader or its epoch changed, and that its snapshot was replaced.
_LEADER_CHANGED = (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH)
_SNAPSHOT_GONE = (SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE)


def read_metadata(client: QuorumClient, on_progress: OnProgress | None = None) -> Metadata:
    """Return the committed metadata of the quorum, with a journal, as `open_metadata` does.

    Raises QuorumUnreachableError, QuorumRefusedError, and CorruptRecordError or ReplayError for
    invalid metadata in a response.
    """
    reading = metadata_requests(on_progress)
    request = next(reading)
    while True:
        response = None
        if request is None:
            time.sleep(PAUSE_S)
        else:
            response = client.ask(request)
        try:
            request = reading.send(response)
        except StopIteration as end:
            return Metadata(end.value)


def metadata_requests(on_progress: OnProgress | None = None) -> Reading:
    """Yield the requests that read the metadata; return its state, with a journal.

    The client must handle the error of a node that does not lead, and ask the leader. Raises the
    errors of `read_metadata`.
    """
    on_progress = on_progress or (lambda fraction: None)
    state, last_epoch, target, waits = MetadataState(), 0, -1, 0
    while True:
        if waits > _MOST_WAITS:
            raise QuorumUnreachableError(
                f"the metadata ends at offset {state.next_offset} of {target}: the quorum has "
                "committed nothing, or elected a leader again and again"
            )
        described = yield DescribeQuorumRequest()
        assert isinstance(described, DescribeQuorumResponse)
        _check(described.error, "DescribeQuorum")
        if target < 0:
            target = described.high_watermark
        while target >= 0 and state.next_offset < target:
            fetched = yield FetchRequest(
                None, _READER, described.epoch, state.next_offset, last_epoch, 0, _FETCH_BYTES
            )
            assert isinstance(fetched, FetchResponse)
            if fetched.error in _LEADER_CHANGED:
                break
            _check(fetched.error, "Fetch")
            if fetched.diverging_epoch is not None:
                raise CorruptRecordError(
                    f"the leader of epoch {described.epoch} does not have the committed record "
                    f"before offset {state.next_offset} in epoch {last_epoch}"
                )
            if fetched.snapshot_id is not None:
                snapshot = yield from _download(fetched.snapshot_id, described.epoch, on_progress)
                if snapshot is None:
                    break
                state, last_epoch = snapshot, fetched.snapshot_id.epoch
                continue
            applied_epoch = _apply(state, fetched)
            if applied_epoch is None:
                break
            last_epoch = applied_epoch
            on_progress(min(state.next_offset / target, 1.0))
        else:
            if target >= 0:
                break
        waits += 1
        yield None
    state.drop_open_transaction()
    if not state.table.is_compact:
        state.table.compact()
    state.start_journal()
    return state


def _download(
    snapshot_id: OffsetAndEpoch, epoch: int, on_progress: OnProgress
) -> Generator[Request | None, Response | None, MetadataState | None]:
    """Return the state of the leader's snapshot; None if the leader no longer has it."""
    data = bytearray()
    while True:
        fetched = yield FetchSnapshotRequest(
            None, _READER, epoch, snapshot_id, len(data), _FETCH_BYTES
        )
        assert isinstance(fetched, FetchSnapshotResponse)
        if fetched.error in _LEADER_CHANGED or fetched.error in _SNAPSHOT_GONE:
            return None
        _check(fetched.error, "FetchSnapshot")
        part = fetched.data
        assert not isinstance(part, SnapshotSlice)
        if fetched.size > MAX_SNAPSHOT_BYTES:
            raise KraftError(
                f"the snapshot has {fetched.size} bytes; at most {MAX_SNAPSHOT_BYTES} are read"
            )
        if fetched.snapshot_id != snapshot_id or fetched.position != len(data) or not part:
            raise CorruptRecordError(
                f"the leader sent {len(part)} bytes of snapshot {fetched.snapshot_id} from "
                f"position {fetched.position} on, not {snapshot_id} from {len(data)} on"
            )
        data += part
        on_progress(min(len(data) / fetched.size, 1.0))
        if len(data) >= fetched.size:
            break
    state = MetadataState()
    reader = SnapshotReader(data)
    if len(data) != fetched.size or reader.info.epoch != snapshot_id.epoch:
        raise CorruptRecordError(
            f"snapshot {snapshot_id} has {len(data)} bytes of {fetched.size}, and epoch "
            f"{reader.info.epoch}"
        )
    with state.loading_snapshot(snapshot_id.offset) as callbacks:
        reader.read(state.table, **callbacks)
    return state


def _apply(state: MetadataState, fetched: FetchResponse) -> int | None:
    """Apply the committed batches of a response; return the epoch of the last, None without one.

    A leader also sends records that are not committed, and Kafka's may cut the last batch short.
    """
    records = fetched.records
    assert not isinstance(records, LogSlice)
    batches = scan(records, verify_crc=False)
    offset, epoch, size = state.next_offset, None, 0
    for base, delta, length, batch_epoch in zip(
        batches.base_offsets.tolist(),
        batches.last_offset_deltas.tolist(),
        batches.batch_lengths.tolist(),
        batches.partition_leader_epochs.tolist(),
        strict=True,
    ):
        if base + delta >= fetched.high_watermark:
            break
        offset, epoch, size = base + delta + 1, batch_epoch, size + length + _LOG_OVERHEAD
    if epoch is None and len(records) and not len(batches):
        raise CorruptRecordError(
            f"the leader sent {len(records)} bytes for offset {offset}, which begin with no batch "
            f"({batches.tail_reason})"
        )
    state.apply(memoryview(records)[:size])
    return epoch


def _check(error: int, asked: str) -> None:
    if error != NONE:
        raise QuorumRefusedError(error, f"reading the metadata: {asked}", None)
