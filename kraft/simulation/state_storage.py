"""State storage: a simulated disk whose snapshots hold the cluster's metadata in Kafka's format.

Two nodes may write the same state in a different order, so that one snapshot id has several
contents: an installed snapshot must be one that a node made. Everything else is as in `storage`.
`cluster` writes to it; `whole_scenario` adds the snapshots that the controllers make.
"""

from __future__ import annotations

from kraft._core.snapshot.snapshot_file import SnapshotReader, SnapshotWriter
from kraft.errors import CorruptRecordError
from kraft.image.replay import MetadataState
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.raft.rpc import OffsetAndEpoch
from kraft.raft.voters import VoterSet
from kraft.records import (
    KRaftVersion,
    Record,
    control_type,
    encode_control,
)
from kraft.simulation.batch_tree import BatchTree, Entry
from kraft.simulation.memory_disk import MemoryDisk
from kraft.simulation.storage import Snapshot, Storage

_DIRECTORY = "/snapshots"


def bootstrap_snapshot(voters: VoterSet) -> bytes:
    """Return the bootstrap snapshot of a formatted dynamic quorum: its voters."""
    disk = MemoryDisk()
    controls: list[Record] = [KRaftVersion(kraft_version=1), voters.to_record()]
    with SnapshotWriter(
        _DIRECTORY,
        0,
        0,
        last_contained_log_timestamp_ms=0,
        timestamp_ms=0,
        control_records=[(control_type(each), encode_control(each)) for each in controls],
        disk=disk,
    ) as writer:
        return bytes(disk.files[writer.finish()])


def load_snapshot(content: bytes, end_offset: int) -> MetadataState:
    """Load the state of a snapshot, with a journal, as ``kraft.server.controller`` does."""
    cluster = MetadataState()
    with cluster.loading_snapshot(end_offset) as callbacks:
        SnapshotReader(content).read(cluster.table, **callbacks)
    cluster.start_journal()
    return cluster


class StateTree(BatchTree):
    """A batch tree that records the snapshots that nodes made."""

    def __init__(self, voters: VoterSet | None, level: int) -> None:
        super().__init__(voters, level)
        self.made: dict[OffsetAndEpoch, list[bytes]] = {}

    def note_snapshot(self, id: OffsetAndEpoch, content: bytes) -> None:
        made = self.made.setdefault(id, [])
        if content not in made:
            made.append(content)


class StateStorage(Storage):
    """A disk with snapshots of the metadata."""

    tree: StateTree

    def add_bootstrap(self, voters: VoterSet) -> None:
        """Store the bootstrap snapshot, as on the disk of a formatted dynamic voter."""
        content = bootstrap_snapshot(voters)
        self.tree.note_snapshot(BOOTSTRAP_SNAPSHOT, content)
        self.snapshots[BOOTSTRAP_SNAPSHOT] = Snapshot(content, self.tree.root)

    def add_state(self, entry: Entry, content: bytes) -> OffsetAndEpoch:
        """Store a snapshot that ends with this committed batch; return its id."""
        id = OffsetAndEpoch(entry.end_offset, entry.epoch)
        self.tree.note_snapshot(id, content)
        self.snapshots[id] = Snapshot(content, entry)
        self.snapshots = dict(sorted(self.snapshots.items()))
        return id

    def load_latest(self) -> MetadataState:
        """Load the state of the latest snapshot; an empty state if there is none."""
        if self.snapshots:
            id = next(reversed(self.snapshots))
            return load_snapshot(self.snapshots[id].content, id.offset)
        cluster = MetadataState()
        cluster.start_journal()
        return cluster

    def _is_damaged(self, content: bytes) -> bool:
        try:
            load_snapshot(content, 0)
        except CorruptRecordError:
            return True
        return False

    def _is_genuine(self, id: OffsetAndEpoch, content: bytes) -> bool:
        return content in self.tree.made.get(id, ())
