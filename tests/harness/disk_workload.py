"""Disk workload: the operations of a node's disk, and what a restart may find.

Defines a random workload over a `MetadataStore` (appends in several epochs, election states,
truncations, snapshots made and downloaded, cleaning), and a model of the promises: the records, the
election state and the snapshots that must exist after a crash at this moment, and the others that
may exist.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from kraft._core.bytes.batch import assign_offsets
from kraft._core.log.disk import Disk
from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft.metadata.directory import METADATA_LOG
from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    AppendBatches,
    DropSnapshotDownload,
    InstallSnapshot,
    SnapshotRejected,
    SnapshotStored,
    StoreSnapshotChunk,
    TruncateLog,
    Write,
    WriteElectionState,
)
from kraft.raft.rpc import LogSlice, OffsetAndEpoch
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Record, Uuid, control
from kraft.records.batches import encode_control_records, encode_records
from kraft.records.classes import NoOp
from kraft.server.disk.files import SyncedOffset
from kraft.server.disk.store import MetadataStore

ROOT = "/var/node"
SEGMENT_BYTES = 3000
NOW_MS = 1_700_000_000_000


class BrokenPromiseError(Exception):
    """The disk broke a promise."""


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes
    #: The voters of a control batch; None without any.
    voters: VoterSet | None = None


class Snapshot(NamedTuple):
    content: bytes
    voters: VoterSet | None


class Held(NamedTuple):
    """A possible content of the log: batches without gaps, from the base of the first."""

    start_offset: int
    batches: list[Batch]


def voter_set(random: Random) -> VoterSet:
    ids = random.sample(range(1, 9), random.randint(1, 4))
    return VoterSet(
        VoterNode(
            ReplicaKey(id, Uuid(bytes([id]) * 16)),
            (Endpoint("CONTROLLER", f"host-{id}", 9000 + id),),
            KRaftVersionRange(0, 1),
        )
        for id in sorted(ids)
    )


def snapshot_content(id: OffsetAndEpoch, voters: VoterSet | None, random: Random) -> bytes:
    head: list[Record] = [control.SnapshotHeader(last_contained_log_timestamp=NOW_MS)]
    if voters is not None:
        head += [control.KRaftVersion(kraft_version=1), voters.to_record()]
    data: list[Record] = [NoOp() for _ in range(random.randint(0, 40))]
    end = len(head) + len(data)
    content = bytearray(encode_control_records(head, timestamp_ms=NOW_MS))
    content += encode_records(data, base_offset=len(head), timestamp_ms=NOW_MS)
    footer = [control.SnapshotFooter()]
    content += encode_control_records(footer, base_offset=end, timestamp_ms=NOW_MS)
    assign_offsets(content, 0, id.epoch)
    return bytes(content)


class Workload:
    """`run` performs ``count`` operations; `check` compares a disk with the promises made."""

    def __init__(self, disk: Disk, random: Random, root: str = ROOT) -> None:
        self.disk = disk
        self.root = root
        self.directory = f"{root}/{METADATA_LOG}"
        self.random = random
        self.static_voters = VoterSet.parse("1@localhost:9001,2@localhost:9002", "CONTROLLER")
        self.log = Held(0, [])
        #: The other possible log while a truncation or an installation is under way.
        self.other_log: Held | None = None
        #: Records before it were acknowledged and not truncated.
        self.acknowledged = 0
        self.high_watermark = 0
        self.election = ElectionState()
        self.other_election: ElectionState | None = None
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        #: Snapshots that are being created or removed.
        self.unsure: dict[OffsetAndEpoch, Snapshot] = {}
        self.voters: VoterSet | None = None
        #: The least value of `synced-offset-checkpoint`: it distinguishes damage from interrupted
        #: writes.
        self.known_synced = -1
        self.counts: dict[str, int] = {}

    # -- operations

    def run(self, count: int) -> None:
        self._start()
        work, weights = zip(*self.choices(), strict=True)
        for _ in range(count):
            chosen = self.random.choices(work, weights)[0]
            self.counts[chosen.__name__] = self.counts.get(chosen.__name__, 0) + 1
            chosen()
        self._stop()

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        """Return the operations of a node's disk with their weights."""
        return [
            (self._append, 55),
            (self._elect, 15),
            (self._truncate, 8),
            (self._make_snapshot, 8),
            (self._install, 4),
            (self._give_up_download, 2),
            (self._clean, 8),
            (self._start, 3),
        ]

    def open(self, disk: Disk) -> MetadataStore:
        return MetadataStore.open(
            self.root, static_voters=self.static_voters, disk=disk, segment_bytes=SEGMENT_BYTES
        )

    def _start(self) -> None:
        """Open the store as a new process after one that was killed."""
        self.store = self.open(self.disk)
        self._settle()
        self.known_synced = self.end_offset

    def _stop(self) -> None:
        self.store.close()

    def _settle(self) -> None:
        """Called after an operation, before its promises change."""

    @property
    def end_offset(self) -> int:
        return self.log.batches[-1].end_offset if self.log.batches else self.log.start_offset

    @property
    def last_epoch(self) -> int:
        if self.log.batches:
            return self.log.batches[-1].epoch
        return max((id.epoch for id in self.snapshots), default=0)

    def _append(self) -> None:
        """Append a few batches, then sync once (group commit)."""
        for _ in range(self.random.randint(1, 3)):
            batches = self._new_batches()
            data = b"".join(batch.data for batch in batches)
            before = self.log.batches
            self.log = Held(self.log.start_offset, before + batches)
            self._do(AppendBatches(batches[0].base_offset, batches[-1].end_offset, data))
        self._sync()

    def _new_batches(self) -> list[Batch]:
        random, batches = self.random, []
        offset, epoch = self.end_offset, self.last_epoch
        for _ in range(random.randint(1, 3)):
            voters = None
            # The first batch of an epoch is a LeaderChange.
            if epoch == 0 or epoch < self.election.epoch:
                epoch = self.election.epoch or 1
                records: list[Record] = [control.LeaderChange(leader_id=epoch % 3)]
                if random.random() < 0.3:
                    voters = voter_set(random)
                    records += [control.KRaftVersion(kraft_version=1), voters.to_record()]
                data = encode_control_records(records, timestamp_ms=NOW_MS)
            else:
                records = [NoOp() for _ in range(random.randint(1, 60))]
                data = encode_records(records, timestamp_ms=NOW_MS)
            assign_offsets(data, offset, epoch)
            end_offset = offset + len(records)
            batches.append(Batch(offset, end_offset, epoch, bytes(data), voters))
            offset = end_offset
        return batches

    def _elect(self) -> None:
        random, old = self.random, self.election
        state = ElectionState(old.epoch, random.randint(1, 3), old.voted)
        if random.random() < 0.7 or old.leader_id >= 0:
            voted = None
            if random.random() < 0.5:
                voted = ReplicaKey(random.randint(1, 3), Uuid(random.randbytes(16)))
            state = ElectionState(max(old.epoch, self.last_epoch) + random.randint(1, 3), -1, voted)
        self.other_election = state
        voted = state.voted
        self._do(
            WriteElectionState(
                state.epoch,
                state.leader_id,
                -1 if voted is None else voted.id,
                None if voted is None else voted.directory_id,
                kraft_version=1,
            )
        )
        self.election, self.other_election = state, None

    def _truncate(self) -> None:
        """Truncate at a batch above the high watermark; a new epoch follows."""
        ends = [batch.base_offset for batch in self.log.batches]
        ends = [end for end in ends if end >= max(self.high_watermark, self.log.start_offset)]
        if not ends:
            return
        end = self.random.choice(ends)
        kept = [batch for batch in self.log.batches if batch.end_offset <= end]
        self.other_log = Held(self.log.start_offset, kept)
        self.acknowledged = min(self.acknowledged, end)
        self.known_synced = min(self.known_synced, end)
        self._do(TruncateLog(end))
        self.log, self.other_log = self.other_log, None
        self._elect()

    def _make_snapshot(self) -> None:
        self._commit()
        ends = [
            OffsetAndEpoch(batch.end_offset, batch.epoch)
            for batch in self.log.batches
            if batch.end_offset <= self.high_watermark
        ]
        ends = [id for id in ends if id > max(self.snapshots, default=OffsetAndEpoch(0, 0))]
        if not ends:
            return
        id = self.random.choice(ends)
        snapshot = self._snapshot(id, self._voters_at(self.log, id.offset))
        self.unsure[id] = snapshot
        self._write_snapshot(id, snapshot)
        self.store.add_snapshot(id)
        self._settle()
        self.snapshots[id] = self.unsure.pop(id)

    def _write_snapshot(self, id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        path = f"{self.directory}/{snapshot_name(*id)}"
        file = self.disk.open(path + ".part", create=True)
        file.append([snapshot.content])
        file.sync()
        self.disk.rename(path + ".part", path)
        self.disk.sync_directory(self.directory)

    def _snapshot(self, id: OffsetAndEpoch, voters: VoterSet | None) -> Snapshot:
        return Snapshot(snapshot_content(id, voters, self.random), voters)

    def _install(self) -> None:
        """Replace everything by the leader's snapshot."""
        epoch = max(self.last_epoch, self.election.epoch) + 1
        id = OffsetAndEpoch(
            self.random.randint(self.high_watermark + 1, self.end_offset + 50), epoch
        )
        snapshot = self._snapshot(id, voter_set(self.random))
        self._download(id, snapshot)
        self.other_log = Held(id.offset, [])
        self.unsure[id] = snapshot
        # Uncommitted records may go; the snapshot covers the committed ones.
        self.acknowledged = min(self.acknowledged, self.high_watermark)
        self.known_synced = -1
        self.unsure.update(self.snapshots)
        self.snapshots.clear()
        stored = self._do(InstallSnapshot(id))
        assert isinstance(stored, SnapshotStored)
        assert stored.voters == snapshot.voters
        self.log, self.other_log = self.other_log, None
        self.unsure.clear()
        self.snapshots[id] = snapshot
        self.acknowledged = self.high_watermark = id.offset
        self._elect()

    def _give_up_download(self) -> None:
        id = OffsetAndEpoch(self.end_offset + 1000, self.last_epoch + 10)
        self._download(id, self._snapshot(id, None))
        self._do(DropSnapshotDownload(id))

    def _download(self, id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        position = 0
        while position < len(snapshot.content):
            chunk = snapshot.content[position : position + self.random.randint(50, 1500)]
            self._do(StoreSnapshotChunk(id, position, chunk))
            position += len(chunk)
            if self.random.random() < 0.3:
                self._sync()

    def _clean(self) -> None:
        going = sorted(self.snapshots)[:-1]
        for id in going:
            self.unsure[id] = self.snapshots.pop(id)
        cleaned = self.store.clean(NOW_MS, self.random.choice([1000, 8000, 20000]), -1)
        self._settle()
        for id in going:
            if cleaned is None or id >= cleaned.earliest_snapshot_id:
                self.snapshots[id] = self.unsure[id]
        self.unsure.clear()

    def _sync(self) -> None:
        self._await_sync()
        self._settle()
        self.acknowledged = self.end_offset

    def _await_sync(self) -> None:
        self.store.sync()

    def _commit(self) -> None:
        ends = [b.end_offset for b in self.log.batches if b.end_offset <= self.acknowledged]
        if ends:
            chosen = self.random.choice(ends)
            self.high_watermark = max(self.high_watermark, chosen)

    def _do(self, write: Write) -> SnapshotStored | SnapshotRejected | None:
        return self.store.perform(write)

    def _voters_at(self, log: Held, end_offset: int) -> VoterSet | None:
        """Return the voters of the log and its snapshots, as of ``end_offset``."""
        known = {**self.snapshots, **self.unsure}
        before = [id for id in known if id.offset <= end_offset]
        latest = max(before, default=OffsetAndEpoch(0, 0))
        voters = known[latest].voters if before else None
        for batch in log.batches:
            if latest.offset <= batch.base_offset < end_offset and batch.voters is not None:
                voters = batch.voters
        return voters

    # -- checks

    def check(self, disk: Disk) -> None:
        """Open the disk as a restarted node does. Raises `BrokenPromiseError`."""
        known = -1
        if disk.exists(self.directory):
            known = SyncedOffset(disk, self.directory).offset
        try:
            store = self.open(disk)
        except Exception as error:
            raise BrokenPromiseError(f"the store does not open: {error!r}") from error
        view = store.view
        # An empty log after a snapshot is created again at each start.
        if known < self.known_synced and view.end_offset > view.start_offset:
            raise BrokenPromiseError(f"{known} is known as synced, and {self.known_synced} was")
        found: list[bytes] = []
        offset = view.start_offset
        while offset < view.end_offset:
            data = store.read(LogSlice(offset, view.end_offset, 1))
            found.append(bytes(data))
            offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
        self._check_log(view.start_offset, view.end_offset, found, set(view.snapshots))
        for id in view.snapshots:
            expected = self.snapshots.get(id) or self.unsure.get(id)
            held = store.snapshot(id)
            if expected is None or held is None or bytes(held.data) != expected.content:
                raise BrokenPromiseError(f"snapshot {id} is not what was stored")
        latest = max(view.snapshots, default=OffsetAndEpoch(0, 0))
        lost = [id for id in self.snapshots if id not in view.snapshots]
        if lost:
            raise BrokenPromiseError(f"snapshots {lost} are lost")
        if store.election not in (self.election, self.other_election):
            raise BrokenPromiseError(f"{store.election} where {self.election} was written")
        if view.end_offset >= latest.offset:
            held_log = self._held_by(found, view.start_offset)
            expected_voters = self._voters_of(held_log, latest, view.end_offset)
            if view.voters != (expected_voters or self.static_voters):
                raise BrokenPromiseError(f"voters {view.voters} in place of {expected_voters}")
        store.close()

    def _held_by(self, found: list[bytes], start_offset: int) -> Held:
        """Return the possible log that begins with the batches found."""
        for log in (self.log, self.other_log):
            if log is None:
                continue
            expected = [batch for batch in log.batches if batch.base_offset >= start_offset]
            if [batch.data for batch in expected[: len(found)]] == found:
                return log
        raise BrokenPromiseError(
            f"{len(found)} batches from {start_offset} on are not what was appended"
        )

    def _check_log(
        self, start: int, end: int, found: list[bytes], snapshots: set[OffsetAndEpoch]
    ) -> None:
        self._held_by(found, start)
        covered = max((id.offset for id in snapshots), default=0)
        if start > covered:
            raise BrokenPromiseError(f"the log begins at {start}, snapshots reach to {covered}")
        if max(end, covered) < self.acknowledged:
            raise BrokenPromiseError(
                f"records up to {self.acknowledged} were acknowledged, log and snapshots end at "
                f"{end} and {covered}"
            )

    def _voters_of(self, log: Held, latest: OffsetAndEpoch, end: int) -> VoterSet | None:
        known = {**self.snapshots, **self.unsure}
        voters = known[latest].voters if latest in known else None
        for batch in log.batches:
            if latest.offset <= batch.base_offset < end and batch.voters is not None:
                voters = batch.voters
        return voters
