"""Storage: the disk of a simulated node, and the effects of a crash on it.

It holds the batches, snapshots, downloads and ``quorum-state`` of one node. The rules of a crash:

- ``quorum-state``, truncations and installed snapshots are durable at once, in order;
- appended batches are durable after the sync that ends a job; a crash before it keeps any number of
  them, and may tear the next, which recovery removes;
- a download that is not installed is lost at a restart.

`boot` recovers the disk at the start of a node and returns the log view for its `Node`. `cluster`
performs one job of writes at a time; `batch_tree` checks each batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from kraft._core.log.epoch_cache import EpochCache
from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    AppendBatches,
    DropSnapshotDownload,
    InstallSnapshot,
    StoreSnapshotChunk,
    TruncateLog,
    Write,
    WriteElectionState,
)
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT, LogView
from kraft.raft.rpc import LogSlice, OffsetAndEpoch
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.simulation.batch_tree import BatchTree, Entry, Violation


class Snapshot(NamedTuple):
    """A complete snapshot: its bytes and the last batch that it covers."""

    content: bytes
    last: Entry


#: A byte that no undamaged snapshot contains; it stands for a failing checksum.
DAMAGED_BYTE = b"\xff"


def snapshot_content(id: OffsetAndEpoch) -> bytes:
    """Return the content of a snapshot: the same on every node, of an odd size."""
    number = id.offset * 7919 + id.epoch * 104729
    size = 200 + number % 1800
    if number % 3 == 0:
        size *= 15
    return (b"%d-%d;" % id * (size // 4))[:size]


class Storage:
    """The disk of one node."""

    def __init__(self, owner_id: int, tree: BatchTree, static_voters: VoterSet) -> None:
        self.owner_id = owner_id
        self.tree = tree
        self.static_voters = static_voters
        self.election = ElectionState()
        #: The last epoch in which quorum-state named the owner as leader.
        self.led_epoch = -1
        self.start_offset = 0
        self.entries: list[Entry] = []
        self._bases: list[int] = []
        #: The predecessor of the first batch of the log.
        self.floor: Entry = tree.root
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.downloads: dict[OffsetAndEpoch, bytearray] = {}
        self.torn_writes = self.lost_batches = self.truncations = self.installs = 0

    # -- what is on disk

    @property
    def last(self) -> Entry:
        return self.entries[-1] if self.entries else self.floor

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else self.floor.end_offset

    def entry_at(self, offset: int) -> Entry | None:
        """Return the batch that contains ``offset``."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            return None
        entry = self.entries[index]
        return entry if offset < entry.end_offset else None

    def index_of(self, offset: int) -> int:
        """Return the index of the batch that contains ``offset``, or the number of batches."""
        index = bisect_right(self._bases, offset) - 1
        if index >= 0 and self.entries[index].end_offset <= offset:
            index += 1
        return max(index, 0)

    def holds(self, entry: Entry) -> bool:
        """Return whether the log, or the snapshot that it begins with, has this committed batch."""
        if entry.end_offset <= self.floor.end_offset:
            return entry.is_committed or entry is self.floor
        index = bisect_right(self._bases, entry.base_offset) - 1
        return index >= 0 and self.entries[index] is entry

    def read(self, slice: LogSlice) -> bytes:
        """Return the batches of a slice; raise Violation if they are not durable."""
        if slice.end_offset > self.end_offset:
            raise Violation(
                "sent_only_after_durable",
                f"{slice} is sent, and the disk ends at {self.end_offset}",
            )
        index = bisect_right(self._bases, slice.offset) - 1
        if index < 0:
            raise Violation("sent_only_after_durable", f"{slice} is before the log's start")
        entries, end, left = self.entries, slice.end_offset, slice.max_size
        first = entries[index]
        if first.end_offset > end:
            return b""
        data = [first.data]
        left -= len(first.data)
        for at in range(index + 1, len(entries)):
            entry = entries[at]
            left -= len(entry.data)
            if left < 0 or entry.end_offset > end:
                break
            data.append(entry.data)
        return data[0] if len(data) == 1 else b"".join(data)

    def voters_in_force(self) -> list[VoterSet]:
        """Return the voters at the log's end, and those before each uncommitted change."""
        found: list[VoterSet] = []
        entry: Entry | None = self.last
        while entry is not None:
            if entry.voters is not None and (not found or entry.voters is not found[-1]):
                found.append(entry.voters)
            if entry.is_committed:
                break
            entry = entry.previous
        return found

    # -- writing

    def perform(self, write: Write) -> None:
        if type(write) is AppendBatches:
            self._append(write)
        elif type(write) is WriteElectionState:
            self._write_election(write)
        elif type(write) is TruncateLog:
            self._truncate(write.end_offset)
        elif type(write) is StoreSnapshotChunk:
            if write.position == 0:
                self.downloads[write.snapshot_id] = bytearray()
            download = self.downloads.setdefault(write.snapshot_id, bytearray())
            if len(download) != write.position:
                raise Violation(
                    "snapshot_is_whole",
                    f"chunk at {write.position} of {write.snapshot_id}, {len(download)} are there",
                )
            download += write.data
        elif type(write) is InstallSnapshot:
            if self.rename_download(write.snapshot_id):
                self.begin_at(write.snapshot_id)
        elif type(write) is DropSnapshotDownload:
            self.downloads.pop(write.snapshot_id, None)
        else:
            raise AssertionError(f"an unknown write {write!r}")

    def sync(self) -> None:
        """End a job: all its writes are durable."""

    def _append(self, write: AppendBatches) -> None:
        last = self.last
        if write.base_offset != last.end_offset:
            raise Violation("logs_match", f"append at {write.base_offset} after {last}")
        entries = self.tree.append(last, write.batches)
        if entries[-1].end_offset != write.end_offset:
            raise Violation("logs_match", f"{entries[-1]} was said to end at {write.end_offset}")
        self.entries += entries
        self._bases += [entry.base_offset for entry in entries]

    def _write_election(self, write: WriteElectionState) -> None:
        voted = None
        if write.voted_id >= 0:
            voted = ReplicaKey(write.voted_id, write.voted_directory_id)
        state = ElectionState(write.epoch, write.leader_id, voted)
        if state.epoch < self.election.epoch:
            raise Violation("epoch_never_goes_back", f"{self.election} became {state} on disk")
        voted = self.election.voted
        if state.epoch == self.election.epoch and voted is not None and state.voted != voted:
            raise Violation("vote_once_per_epoch", f"{self.election} became {state} on disk")
        self.election = state
        if state.leader_id == self.owner_id:
            self.led_epoch = state.epoch

    def _truncate(self, end_offset: int) -> None:
        count = self.index_of(end_offset)
        if self.last.end_offset == end_offset:
            return
        if count < len(self.entries) and self.entries[count].base_offset != end_offset:
            raise Violation("logs_match", f"{self.entries[count]} is cut in its middle")
        if count < len(self.entries):
            self._check_removable(self.entries[count])
        self._keep(count)
        self.truncations += 1

    def _check_removable(self, entry: Entry) -> None:
        """Check that a batch may be removed.

        A node that knows the epoch in which a batch was committed keeps the batch. A node that does
        not was not in the majority, and an older leader without the batch may have it truncated.
        """
        if entry.is_committed and entry.committed_epoch <= self.election.epoch:
            raise Violation("committed_never_lost_or_changed", f"{entry} was truncated")

    def _keep(self, count: int) -> None:
        """Remove all batches but the first ``count``."""
        del self.entries[count:]
        del self._bases[count:]

    def rename_download(self, id: OffsetAndEpoch) -> bool:
        """Give a download its final name, before the log changes; return False if it is damaged."""
        content = bytes(self.downloads.pop(id, b""))
        if self._is_damaged(content):
            return False
        last = self.tree.committed_at.get(id.offset)
        if not self._is_genuine(id, content):
            raise Violation("snapshot_is_whole", f"{len(content)} bytes installed as {id}")
        if last is None or last.epoch != id.epoch:
            raise Violation("snapshot_at_log_start", f"{id} does not end at a committed batch")
        self.snapshots = {id: Snapshot(content, last)}
        self.installs += 1
        return True

    def _is_damaged(self, content: bytes) -> bool:
        """Return whether the checksums of a snapshot fail."""
        return DAMAGED_BYTE in content

    def _is_genuine(self, id: OffsetAndEpoch, content: bytes) -> bool:
        return content == snapshot_content(id)

    def begin_at(self, id: OffsetAndEpoch) -> None:
        """Empty the log and start it at the end of a snapshot."""
        last = self.snapshots[id].last
        kept = self.index_of(id.offset)
        if kept < len(self.entries):
            self._check_removable(self.entries[kept])
        self.entries, self._bases = [], []
        self.floor = last
        self.start_offset = id.offset
        self.snapshots = {id: self.snapshots[id]}

    # -- snapshots made here

    def add_snapshot(self, entry: Entry) -> OffsetAndEpoch:
        """Store a snapshot that ends with this committed batch; return its id."""
        id = OffsetAndEpoch(entry.end_offset, entry.epoch)
        self.snapshots[id] = Snapshot(snapshot_content(id), entry)
        self.snapshots = dict(sorted(self.snapshots.items()))
        return id

    def clean(self, keep: int, start_offset: int) -> OffsetAndEpoch:
        """Remove all but the last ``keep`` snapshots, and the log before ``start_offset``."""
        kept = list(self.snapshots)[-keep:]
        self.snapshots = {id: self.snapshots[id] for id in kept}
        index = self.index_of(start_offset)
        if index:
            self.floor = self.entries[index - 1]
            del self.entries[:index]
            del self._bases[:index]
        self.start_offset = max(self.start_offset, start_offset)
        return kept[0]

    def check_snapshot_at_log_start(self) -> None:
        """Check that a snapshot covers the offsets before the log (KAFKA-14238)."""
        if self.start_offset and not any(id.offset >= self.start_offset for id in self.snapshots):
            raise Violation(
                "snapshot_at_log_start",
                f"the log begins at {self.start_offset}, snapshots are {list(self.snapshots)}",
            )

    # -- crash and restart

    def crash(self, writes: Iterable[Write], random: Random) -> None:
        """Stop the node while it performs these writes in order, before their sync."""
        synced = len(self.entries)
        for write in list(writes)[: int(random.random() * 6)]:
            if type(write) is InstallSnapshot and random.random() < 0.5:
                self.rename_download(write.snapshot_id)
                break
            self.perform(write)
            if type(write) is not AppendBatches and type(write) is not StoreSnapshotChunk:
                # A truncation syncs the file first, and an empty file has nothing to lose.
                synced = (
                    len(self.entries)
                    if type(write) in (TruncateLog, InstallSnapshot)
                    else min(synced, len(self.entries))
                )
        before = len(self.entries)
        self._lose(synced, random)
        lost = before - len(self.entries)
        self.lost_batches += lost
        self.torn_writes += lost > 0
        self.downloads.clear()

    def _lose(self, synced: int, random: Random) -> None:
        """Remove any number of the batches after the first ``synced``, the last ones first."""
        unsynced = len(self.entries) - synced
        if unsynced > 0:
            self._keep(len(self.entries) - int(random.random() * (unsynced + 1)))

    def boot(self) -> LogView:
        """Recover the disk by Kafka's rules of a restart; return the log view of the node."""
        self.downloads.clear()
        self.snapshots = {
            id: snapshot
            for id, snapshot in self.snapshots.items()
            if id.offset >= self.start_offset
        }
        latest = next(reversed(self.snapshots), BOOTSTRAP_SNAPSHOT)
        if latest.offset > self.end_offset or latest.epoch > self.last.epoch:
            self.begin_at(latest)
        self.check_snapshot_at_log_start()
        epochs = EpochCache()
        for entry in self.entries:
            if entry.epoch > epochs.last_epoch:
                epochs.assign(entry.epoch, entry.base_offset)
        view = LogView(
            static_voters=self.static_voters,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            durable_end_offset=self.end_offset,
            epochs=epochs,
            snapshots={id: len(snapshot.content) for id, snapshot in self.snapshots.items()},
        )
        base: Entry | None = None
        if self.snapshots:
            base = self.snapshots[latest].last
            view.load_snapshot_voters(base.voters, base.level)
        replayed_from = base.end_offset if base is not None else 0
        for entry in self.entries:
            if entry.is_control and entry.base_offset >= replayed_from:
                view.replay_control_batch(entry.data)
        return view
