"""A disk whose snapshots hold the cluster's metadata, in Kafka's format.

Owns the making and the checking of such snapshots in the simulated storage; everything else is as
in `storage`. Two nodes may write the same state in a different order, so that a snapshot has
several forms: what is installed has to be one that somebody made. Fed by `cluster` and by the
controllers, which say when they hold a state that a snapshot may be made of.
"""

from __future__ import annotations

from kraft._core.snapshot_file import SnapshotReader, SnapshotWriter
from kraft.errors import CorruptRecordError
from kraft.image.replay import Cluster
from kraft.raft.messages import OffsetAndEpoch
from kraft.raft.voters import VoterSet
from kraft.records import (
    KRaftVersion,
    Record,
    control_type,
    encode_control,
)
from kraft.simulation.history import Entry, History
from kraft.simulation.memory_disk import MemoryDisk
from kraft.simulation.storage import Snapshot, Storage

_DIRECTORY = "/snapshots"


def bootstrap_snapshot(voters: VoterSet) -> bytes:
    """What formatting leaves of a dynamic quorum: its voters, before the first record."""
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


def load_snapshot(content: bytes, end_offset: int) -> Cluster:
    """The state that a snapshot holds, with a journal; as ``kraft.server.controller`` loads it."""
    cluster = Cluster()
    with cluster.loading_snapshot(end_offset) as callbacks:
        SnapshotReader(content).read(cluster.table, **callbacks)
    cluster.start_journal()
    return cluster


class StateHistory(History):
    """A history that remembers which snapshots were made."""

    def __init__(self, voters: VoterSet | None, level: int) -> None:
        super().__init__(voters, level)
        self.made: dict[OffsetAndEpoch, list[bytes]] = {}

    def note_snapshot(self, id: OffsetAndEpoch, content: bytes) -> None:
        made = self.made.setdefault(id, [])
        if content not in made:
            made.append(content)


class StateStorage(Storage):
    """See the module's docstring."""

    history: StateHistory

    def add_state(self, entry: Entry, content: bytes) -> OffsetAndEpoch:
        """A snapshot that ends with this committed batch, complete and durable."""
        id = OffsetAndEpoch(entry.end_offset, entry.epoch)
        self.history.note_snapshot(id, content)
        self.snapshots[id] = Snapshot(content, entry)
        self.snapshots = dict(sorted(self.snapshots.items()))
        return id

    def load_latest(self) -> Cluster:
        """The state of the latest snapshot, empty where there is none."""
        if self.snapshots:
            id = next(reversed(self.snapshots))
            return load_snapshot(self.snapshots[id].content, id.offset)
        cluster = Cluster()
        cluster.start_journal()
        return cluster

    def _is_damaged(self, content: bytes) -> bool:
        try:
            load_snapshot(content, 0)
        except CorruptRecordError:
            return True
        return False

    def _is_one_that_was_made(self, id: OffsetAndEpoch, content: bytes) -> bool:
        return content in self.history.made.get(id, ())
