"""The store of a node's metadata directory, filled by a test."""

from __future__ import annotations

from pathlib import Path

from kraft._core.bytes.batch import assign_offsets
from kraft._core.snapshot.snapshot_file import SnapshotWriter, snapshot_name
from kraft.raft.interface import AppendBatches
from kraft.raft.rpc import OffsetAndEpoch
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Record, Uuid, control
from kraft.records.batches import encode_control_records, encode_records
from kraft.records.classes import NoOp
from kraft.server.disk.store import MetadataStore

DYNAMIC = VoterSet(
    [
        VoterNode(
            ReplicaKey(2, Uuid(b"\2" * 16)), (Endpoint("C", "host", 9),), KRaftVersionRange(0, 1)
        )
    ]
)
STATIC = VoterSet.parse("1@localhost:9093", "CONTROLLER")
NOW_MS = 1_700_000_000_000


def open_store(path: Path, segment_bytes: int = 4000) -> MetadataStore:
    return MetadataStore.open(path, static_voters=STATIC, segment_bytes=segment_bytes)


def metadata_dir(path: Path) -> Path:
    return path / "__cluster_metadata-0"


def stamped(records: list[Record], base_offset: int, epoch: int, *, is_control: bool) -> bytes:
    encode = encode_control_records if is_control else encode_records
    data = encode(records, timestamp_ms=NOW_MS)
    assign_offsets(data, base_offset, epoch)
    return bytes(data)


def begin_epoch(store: MetadataStore, epoch: int, *more: Record) -> None:
    """Append a leader's first batch."""
    base = store.log.log_end_offset
    records = [control.LeaderChange(leader_id=1), *more]
    data = stamped(records, base, epoch, is_control=True)
    store.perform(AppendBatches(base, base + len(records), data))


def append_of(count: int, base: int, epoch: int) -> bytes:
    return stamped([NoOp() for _ in range(count)], base, epoch, is_control=False)


def append(store: MetadataStore, count: int = 10, epoch: int = 1) -> bytes:
    base = store.log.log_end_offset
    data = append_of(count, base, epoch)
    store.perform(AppendBatches(base, base + count, data))
    return data


def make_snapshot(store: MetadataStore, id: OffsetAndEpoch) -> None:
    with store.snapshot_writer(
        id, last_contained_log_timestamp_ms=NOW_MS, timestamp_ms=NOW_MS
    ) as writer:
        fill(writer, id)


def fill(writer: SnapshotWriter, id: OffsetAndEpoch) -> None:
    writer.append_batches(stamped([NoOp()] * 500, 0, id.epoch, is_control=False))
    writer.finish()


def snapshot_bytes(
    path: Path, id: OffsetAndEpoch, voters: VoterSet | None, *more: tuple[int, bytes]
) -> bytes:
    """Return a snapshot as another node would send it; ``more`` control records by type."""
    head = list(more)
    if voters is not None:
        head += [
            (5, control.encode_control(control.KRaftVersion(kraft_version=1))),
            (6, control.encode_control(voters.to_record())),
        ]
    path.mkdir(exist_ok=True)
    with SnapshotWriter(
        path,
        *id,
        last_contained_log_timestamp_ms=NOW_MS,
        timestamp_ms=NOW_MS,
        control_records=head,
    ) as writer:
        fill(writer, id)
    return (path / snapshot_name(*id)).read_bytes()
