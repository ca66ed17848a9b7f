"""The disk of one node of a scenario: durable and unsynced writes, and recovery.

A crash loses unsynced writes. A start uses kraft's real log: the batches become a segment file and
`Log.open` recovers them, so that it removes a torn tail and rejects damage as in a real directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.log import Log
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
from kraft.raft.log_view import LogView
from kraft.raft.rpc import LogSlice, OffsetAndEpoch, SnapshotSlice
from kraft.raft.voters import ReplicaKey, VoterSet


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


class Snapshot(NamedTuple):
    """A snapshot's bytes, and the voters and kraft.version of its control records."""

    data: bytes
    voters: VoterSet | None
    kraft_version: int


def sealed(data: bytes) -> bytes:
    """Return the bytes of a valid snapshot; the last four are a checksum of the others."""
    return data[:-4] + crc32(data[:-4]).to_bytes(4, "big")


def is_sound(data: bytes | bytearray) -> bool:
    return sealed(bytes(data)) == data


class RefusedStartError(Exception):
    """The node cannot start from its disk."""


class Disk:
    """The files of a node: ``batches`` from ``start_offset`` on, ``snapshots``, ``election``."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.batches: list[Batch] = []
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        #: The bytes of quorum-state, None before the first.
        self.quorum_state: bytes | None = None
        #: A batch that an interrupted write left unfinished.
        self.torn = b""
        self.downloads: dict[OffsetAndEpoch, bytearray] = {}
        self.written: list[tuple[int, list[Write]]] = []
        self.is_stalled = False

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start_offset

    # -- writing

    def sync(self, voter_ids: frozenset[int]) -> tuple[int, list[OffsetAndEpoch]]:
        """Sync all writes; return the last sequence and the snapshots to install.

        Their downloads still exist.
        """
        sequence = self.written[-1][0] if self.written else 0
        installed = []
        for _, writes in self.written:
            for write in writes:
                self._do(write, voter_ids)
                if isinstance(write, InstallSnapshot):
                    installed.append(write.snapshot_id)
        self.written = []
        return sequence, installed

    def _do(self, write: Write, voter_ids: frozenset[int]) -> None:
        if isinstance(write, WriteElectionState):
            voted = None
            if write.voted_id >= 0:
                voted = ReplicaKey(write.voted_id, write.voted_directory_id)
            state = ElectionState(write.epoch, write.leader_id, voted)
            self.quorum_state = state.to_bytes(write.kraft_version, voter_ids)
        elif isinstance(write, AppendBatches):
            assert write.base_offset == self.end_offset, (write.base_offset, self.end_offset)
            self.batches += split_batches(bytes(write.batches))
            assert self.end_offset == write.end_offset, (self.end_offset, write.end_offset)
        elif isinstance(write, TruncateLog):
            assert write.end_offset in (self.start_offset, *(b.end_offset for b in self.batches))
            self.batches = [b for b in self.batches if b.end_offset <= write.end_offset]
        elif isinstance(write, StoreSnapshotChunk):
            if write.position == 0:
                self.downloads[write.snapshot_id] = bytearray()
            download = self.downloads[write.snapshot_id]
            assert len(download) == write.position, (len(download), write.position)
            download += write.data
        elif isinstance(write, InstallSnapshot):
            assert write.snapshot_id in self.downloads, "this snapshot has no download"
            if is_sound(self.downloads[write.snapshot_id]):
                self.start_offset, self.batches = write.snapshot_id.offset, []
        else:
            assert isinstance(write, DropSnapshotDownload)
            self.downloads.pop(write.snapshot_id, None)

    def clean(self, log_start_offset: int, earliest: OffsetAndEpoch) -> None:
        self.snapshots = {id: s for id, s in self.snapshots.items() if id >= earliest}
        self.batches = [b for b in self.batches if b.base_offset >= log_start_offset]
        self.start_offset = log_start_offset

    def crash(self, *, is_torn: bool) -> None:
        """Lose unsynced writes; a torn write leaves half of its first batch."""
        if is_torn:
            appends = [
                write
                for _, writes in self.written
                for write in writes
                if isinstance(write, AppendBatches)
            ]
            data = bytes(appends[0].batches)
            self.torn = data[: len(data) // 2]
        self.written, self.downloads = [], {}

    # -- reading

    def read(self, at: LogSlice) -> bytes:
        """Return the batches of a slice, which must be durable."""
        assert at.end_offset <= self.end_offset, "a leader sends unsynced records"
        found: list[Batch] = []
        size = 0
        for batch in self.batches:
            if batch.end_offset <= at.offset or batch.end_offset > at.end_offset:
                continue
            size += len(batch.data)
            if found and size > at.max_size:
                break
            found.append(batch)
        return b"".join(batch.data for batch in found)

    def read_snapshot(self, at: SnapshotSlice) -> bytes:
        return self.snapshots[at.snapshot_id].data[at.position : at.position + at.max_size]

    # -- starting

    def load(self, directory: Path, static_voters: VoterSet) -> tuple[LogView, ElectionState, str]:
        """Recover the disk for a start; report the recovery. Raises `RefusedStartError`."""
        latest = max(self.snapshots) if self.snapshots else None
        earliest = min(self.snapshots) if self.snapshots else None
        if self.start_offset and (
            earliest is None or latest is None or latest.offset < self.start_offset
        ):
            raise RefusedStartError(f"the log starts at {self.start_offset} without a snapshot")
        content = b"".join(batch.data for batch in self.batches) + self.torn
        (directory / f"{self.start_offset:020d}.log").write_bytes(content)
        try:
            log = Log.open(directory)
        except Exception as error:
            raise RefusedStartError(type(error).__name__) from error
        with log:
            note = "" if log.torn_tail is None else f" torn tail of {log.torn_tail.size} bytes cut"
            self.torn = b""
            self.batches = split_batches(b"".join(bytes(batch.data) for batch in log.batches()))
            epochs = EpochCache(list(log.epochs))
        if latest is not None and (
            latest.offset > self.end_offset or (self.batches and latest.epoch > epochs.last_epoch)
        ):
            note += f" log emptied for snapshot {latest.offset}-{latest.epoch}"
            self.start_offset, self.batches = latest.offset, []
            epochs = EpochCache()
        view = LogView(
            static_voters=static_voters,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            durable_end_offset=self.end_offset,
            epochs=epochs,
            snapshots={id: len(self.snapshots[id].data) for id in sorted(self.snapshots)},
        )
        bases = [id for id in self.snapshots if id.offset <= self.start_offset]
        if bases:
            base = self.snapshots[max(bases)]
            view.load_snapshot_voters(base.voters, base.kraft_version)
        for batch in self.batches:
            view.replay_control_batch(batch.data)
        election = ElectionState()
        if self.quorum_state is not None:
            election = ElectionState.from_bytes(self.quorum_state)
        return view, election, note


def split_batches(data: bytes) -> list[Batch]:
    """Split bytes into whole batches."""
    batches = []
    while data:
        base_offset = int.from_bytes(data[:8], "big")
        size = 12 + int.from_bytes(data[8:12], "big")
        epoch = int.from_bytes(data[12:16], "big")
        end_offset = base_offset + int.from_bytes(data[23:27], "big") + 1
        batches.append(Batch(base_offset, end_offset, epoch, data[:size]))
        data = data[size:]
    return batches
