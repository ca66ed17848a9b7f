"""The disk of a simulated node: what is on it, and what a crash leaves there.

Owns the log's batches, snapshots, downloads and ``quorum-state`` of one node, and the rules of what
a crash may do to them:

- ``quorum-state``, truncations and installed snapshots are durable where they are done, in order;
- appended batches are durable at the sync that ends a job; a crash before it leaves any number of
  them, and may tear the next, which recovery cuts;
- a download that is not installed is gone after a restart.

`boot` does what starting a node means (facts 4.6): what it gives is what a `Node` is made of. Fed
by `cluster`, one job of writes at a time; checked by `history` at each batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from kraft._core.epoch_cache import EpochCache
from kraft.raft.election_state import ElectionState
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT, LogView
from kraft.raft.messages import LogSlice, OffsetAndEpoch
from kraft.raft.ready import (
    AppendBatches,
    DropSnapshotDownload,
    InstallSnapshot,
    StoreSnapshotChunk,
    TruncateLog,
    Write,
    WriteElectionState,
)
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.simulation.history import Entry, History, Violation


class Snapshot(NamedTuple):
    """A complete snapshot: its bytes, and the batch that it ends with."""

    content: bytes
    last: Entry


#: What no snapshot's content has: it stands for bytes that their checksums do not fit.
DAMAGED_BYTE = b"\xff"


def snapshot_content(id: OffsetAndEpoch) -> bytes:
    """What a snapshot of these batches holds: the same on every node, and of an odd size."""
    number = id.offset * 7919 + id.epoch * 104729
    size = 200 + number % 1800
    if number % 3 == 0:
        size *= 15
    return (b"%d-%d;" % id * (size // 4))[:size]


class Storage:
    """See the module's docstring."""

    def __init__(self, owner_id: int, history: History, static_voters: VoterSet) -> None:
        self.owner_id = owner_id
        self.history = history
        self.static_voters = static_voters
        self.election = ElectionState()
        #: The last epoch in which quorum-state named the owner as leader.
        self.led_epoch = -1
        self.start_offset = 0
        self.entries: list[Entry] = []
        self._bases: list[int] = []
        #: What the first batch of the log follows.
        self.floor: Entry = history.root
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
        """The batch that holds ``offset``."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            return None
        entry = self.entries[index]
        return entry if offset < entry.end_offset else None

    def index_of(self, offset: int) -> int:
        """The index in ``entries`` of the batch that holds ``offset``, or behind the last."""
        index = bisect_right(self._bases, offset) - 1
        if index >= 0 and self.entries[index].end_offset <= offset:
            index += 1
        return max(index, 0)

    def holds(self, entry: Entry) -> bool:
        """Whether the log, or the snapshot that it begins with, has this committed batch."""
        if entry.end_offset <= self.floor.end_offset:
            return entry.is_committed or entry is self.floor
        index = bisect_right(self._bases, entry.base_offset) - 1
        return index >= 0 and self.entries[index] is entry

    def read(self, slice: LogSlice) -> bytes:
        """The batches of a slice; the node may only speak of what is durable."""
        if slice.end_offset > self.end_offset:
            raise Violation(
                "durable_before_visible",
                f"{slice} is sent, and the disk ends at {self.end_offset}",
            )
        index = bisect_right(self._bases, slice.offset) - 1
        if index < 0:
            raise Violation("durable_before_visible", f"{slice} lies before the log's start")
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
        """The voters at the log's end, and those before the last change that is not committed."""
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
        """The end of a job; here everything that was performed is durable then."""

    def _append(self, write: AppendBatches) -> None:
        last = self.last
        if write.base_offset != last.end_offset:
            raise Violation("logs_match", f"append at {write.base_offset} behind {last}")
        entries = self.history.append(last, write.batches)
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
            self._check_may_go(self.entries[count])
        self._keep(count)
        self.truncations += 1

    def _check_may_go(self, entry: Entry) -> None:
        """What is committed stays with whoever has heard of the epoch in which it was.

        Others may be told to cut it off by an older leader that did not have it. They were not of
        the majority.
        """
        if entry.is_committed and entry.committed_epoch <= self.election.epoch:
            raise Violation("committed_never_lost_or_changed", f"{entry} was truncated")

    def _keep(self, count: int) -> None:
        """Cuts off all batches but the first ``count``."""
        del self.entries[count:]
        del self._bases[count:]

    def rename_download(self, id: OffsetAndEpoch) -> bool:
        """The first half of installing: the snapshot has its name, the log is as it was. False
        where it was refused, as a byte of it arrived damaged.
        """
        content = bytes(self.downloads.pop(id, b""))
        if self._is_damaged(content):
            return False
        last = self.history.committed_at.get(id.offset)
        if not self._is_one_that_was_made(id, content):
            raise Violation("snapshot_is_whole", f"{len(content)} bytes installed as {id}")
        if last is None or last.epoch != id.epoch:
            raise Violation("snapshot_at_log_start", f"{id} does not end at a committed batch")
        self.snapshots = {id: Snapshot(content, last)}
        self.installs += 1
        return True

    def _is_damaged(self, content: bytes) -> bool:
        """What the checks of a snapshot's bytes say."""
        return DAMAGED_BYTE in content

    def _is_one_that_was_made(self, id: OffsetAndEpoch, content: bytes) -> bool:
        return content == snapshot_content(id)

    def begin_at(self, id: OffsetAndEpoch) -> None:
        """The log is emptied and begins at the end of a snapshot."""
        last = self.snapshots[id].last
        kept = self.index_of(id.offset)
        if kept < len(self.entries):
            self._check_may_go(self.entries[kept])
        self.entries, self._bases = [], []
        self.floor = last
        self.start_offset = id.offset
        self.snapshots = {id: self.snapshots[id]}

    # -- snapshots made here

    def add_snapshot(self, entry: Entry) -> OffsetAndEpoch:
        """A snapshot that ends with this committed batch, complete and durable."""
        id = OffsetAndEpoch(entry.end_offset, entry.epoch)
        self.snapshots[id] = Snapshot(snapshot_content(id), entry)
        self.snapshots = dict(sorted(self.snapshots.items()))
        return id

    def clean(self, keep: int, start_offset: int) -> OffsetAndEpoch:
        """Removes all but the last ``keep`` snapshots, and the log before ``start_offset``."""
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
        """What the log does not hold, a snapshot does (KAFKA-14238)."""
        if self.start_offset and not any(id.offset >= self.start_offset for id in self.snapshots):
            raise Violation(
                "snapshot_at_log_start",
                f"the log begins at {self.start_offset}, snapshots are {list(self.snapshots)}",
            )

    # -- a crash, and the start after it

    def crash(self, writes: Iterable[Write], random: Random) -> None:
        """The node stops while these writes are being done, in order, before their sync."""
        synced = len(self.entries)
        for write in list(writes)[: int(random.random() * 6)]:
            if type(write) is InstallSnapshot and random.random() < 0.5:
                self.rename_download(write.snapshot_id)
                break
            self.perform(write)
            if type(write) is not AppendBatches and type(write) is not StoreSnapshotChunk:
                # Truncating a file syncs it first, and an emptied one has nothing to lose.
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
        """What a crash leaves of the batches behind the first ``synced``: any number of them."""
        unsynced = len(self.entries) - synced
        if unsynced > 0:
            self._keep(len(self.entries) - int(random.random() * (unsynced + 1)))

    def boot(self) -> LogView:
        """What a node finds at its start, by Kafka's rules of a restart."""
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
