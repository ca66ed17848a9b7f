"""Read one surviving metadata directory: its log after a restart, its voters, its election state.

A `Survivor` is what the node of that directory would have after a restart, by the rules of
``kraft.server.disk.recovery``: without the torn tail of the log, and with an empty log where the
latest snapshot is ahead of it. Nothing on disk changes.

A directory is refused where such a start would fail or lose acknowledged records: damage, a missing
``meta.properties``, a process that uses it. Called by ``assessment``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kraft._core.log.disk import OsDisk
from kraft.errors import CorruptRecordError, KraftError, MissingFileError, StorageError
from kraft.image.replay import MetadataState
from kraft.metadata.directory import (
    QUORUM_STATE,
    MetadataDirectory,
    SnapshotFile,
    replaces_log,
    without_checksum,
)
from kraft.metadata.snapshots import load_snapshot
from kraft.metadata.source import MetadataSource
from kraft.raft.voters import ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid, control
from kraft.server.disk.directory_lock import DirectoryLock, is_locked
from kraft.server.disk.files import SyncedOffset


class RescueRefusedError(KraftError):
    """A rescue is not possible, or not the right thing to do; the message says what is."""


class LogEnd(NamedTuple):
    """The end of a log, in KRaft's order of elections: leader epoch, then end offset."""

    epoch: int
    offset: int


class CommittedEnd(NamedTuple):
    """The end of a snapshot: all records below ``offset`` are committed, the last in ``epoch``."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Survivor:
    """One directory that is left, as its node would have it after a restart.

    Offsets from ``start_offset`` to ``end.offset`` (exclusive) are in its log; a snapshot has the
    records before. ``election_epoch`` and ``election_leader`` are those of ``quorum-state`` (-1:
    none). ``open_transaction`` is the offset of a metadata transaction without an end, or None.
    """

    path: Path
    cluster_id: str
    node_id: int
    directory_id: Uuid | None
    source: MetadataSource
    start_offset: int
    end: LogEnd
    #: The latest snapshot is ahead of the log, so that a restart empties the log.
    is_log_replaced: bool
    snapshots: tuple[CommittedEnd, ...]
    voters: VoterSet
    kraft_version: int
    election_epoch: int
    election_leader: int
    open_transaction: int | None
    last_record_ms: int
    torn_bytes: int

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def is_voter(self) -> bool:
        """Whether this directory's own log lists it as a voter."""
        return self.voters.is_voter(self.key)

    @property
    def log_dir(self) -> Path:
        """The directory with ``meta.properties``."""
        directory = self.source.directory
        return directory.log_dir or directory.path

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before ``offset``; -1 where the log lacks it."""
        log = self.source.log
        if log is None or self.is_log_replaced or not self.start_offset < offset <= self.end.offset:
            return -1
        return log.epoch_at(offset - 1)

    def holds(self, snapshot: CommittedEnd) -> bool:
        """Return whether this log has exactly the records that ``snapshot`` covers."""
        if snapshot.offset <= self.start_offset:
            # Only a snapshot moves the start of a log, so that all before it is committed as well.
            return True
        return self.epoch_before(snapshot.offset) == snapshot.epoch


def read_survivor(path: Path) -> Survivor:
    """Read the directory at ``path``. Raises RescueRefusedError; the message says what to do."""
    try:
        source = MetadataSource(path)
        directory = source.directory
        if directory.log_dir is None:
            raise RescueRefusedError(f"{path} is one file: name the log.dir that has it")
        properties = directory.meta_properties
        if properties is None or properties.cluster_id is None or properties.node_id is None:
            raise RescueRefusedError(
                f"{directory.log_dir} has no meta.properties with the ids of cluster and node. "
                f"Write them into a copy, and name the copy: kraft salvage {path} --to DIR "
                "--cluster-id ID --node-id N"
            )
        check_unused(directory.log_dir)
        replaced = _snapshot_ahead(source)
        state = _load(source, replaced)
        _check_synced(source, replaced)
    except RescueRefusedError:
        raise
    except MissingFileError as error:
        raise RescueRefusedError(str(error)) from error
    except (KraftError, OSError) as error:
        raise RescueRefusedError(
            f"{path} cannot be used as it is: {error}. See what is damaged with: kraft verify "
            f"{path}. Write its sound part to a new directory, and name that instead: kraft "
            f"salvage {path} --to DIR"
        ) from error
    quorum, election = state.state.quorum, directory.quorum_state
    end = _log_end(source, replaced)
    return Survivor(
        path,
        properties.cluster_id,
        properties.node_id,
        properties.directory_id,
        source,
        max(source.log_start_offset, 0) if replaced is None else replaced.end_offset,
        end,
        replaced is not None,
        tuple(CommittedEnd(each.epoch, each.end_offset) for each in directory.snapshots),
        _voters(state, directory),
        quorum.kraft_version,
        -1 if election is None else election.leader_epoch,
        -1 if election is None else election.leader_id,
        state.dropped_transaction,
        source.timestamp_ms_before(end.offset)
        if replaced is None
        else quorum.last_contained_log_timestamp_ms,
        0 if source.torn_tail is None else source.torn_tail.size,
    )


def check_unused(log_dir: Path) -> None:
    """Raise RescueRefusedError where a process uses the directory; create no file."""
    if is_locked(log_dir):
        raise RescueRefusedError(
            f"{log_dir} is in use by a running process: stop that node first. If it is a "
            "controller that runs, it may be part of a majority that lives"
        )


def lock(log_dir: Path) -> DirectoryLock:
    """Lock a directory against its node. Raises RescueRefusedError where it is in use."""
    try:
        return DirectoryLock(log_dir)
    except StorageError as error:
        raise RescueRefusedError(str(error)) from error


def _snapshot_ahead(source: MetadataSource) -> SnapshotFile | None:
    """Return the latest snapshot where a restart would empty the log for it."""
    snapshots, log = source.directory.snapshots, source.log
    if not snapshots:
        return None
    latest = snapshots[-1]
    end_offset, last_epoch = (-1, -1) if log is None else (log.log_end_offset, log.last_epoch)
    is_ahead = replaces_log(latest.end_offset, latest.epoch, end_offset, last_epoch)
    return latest if is_ahead else None


def _load(source: MetadataSource, replaced: SnapshotFile | None) -> MetadataState:
    """Return the state at the end of the log; replaying it checks every record."""
    if source.is_partial and replaced is None:
        raise CorruptRecordError(
            f"the log begins at offset {source.log_start_offset}, and no snapshot has the records "
            "before it",
            path=source.directory.path,
        )
    if replaced is not None:
        return load_snapshot(replaced, use_column_cache=False)
    state, _ = source.load(use_column_cache=False)
    return state


def _log_end(source: MetadataSource, replaced: SnapshotFile | None) -> LogEnd:
    if replaced is not None:
        return LogEnd(replaced.epoch, replaced.end_offset)
    if source.log is None or source.log_end_offset <= 0:
        return LogEnd(0, 0)
    epoch = source.log.last_epoch
    if epoch < 0:
        # An empty log after a snapshot.
        epoch = source.directory.snapshots[-1].epoch
    return LogEnd(epoch, source.log_end_offset)


def _check_synced(source: MetadataSource, replaced: SnapshotFile | None) -> None:
    """Reject a log that ends before what kraft has acknowledged: a torn tail does not."""
    directory = source.directory
    if directory.metadata_dir is None or directory.quorum_state is None or replaced is not None:
        return
    path = directory.metadata_dir / QUORUM_STATE
    _, is_ours = without_checksum(path.read_bytes(), path)
    if not is_ours:
        # Kafka wrote the log last: the file of kraft is out of date.
        return
    synced = SyncedOffset(OsDisk(), os.fspath(directory.metadata_dir)).offset
    if synced > source.log_end_offset:
        raise CorruptRecordError(
            f"the log ends at offset {source.log_end_offset}, and was on the disk up to offset "
            f"{synced} once: its last records are damaged",
            path=directory.metadata_dir,
        )


def _voters(state: MetadataState, directory: MetadataDirectory) -> VoterSet:
    """Return the voters of the log; at kraft.version 0 those of the last election."""
    quorum = state.state.quorum
    for record in quorum.snapshot_records():
        if isinstance(record, control.KRaftVoters):
            return VoterSet.from_record(record)
    election = directory.quorum_state
    ids = None if election is None else election.voters
    return VoterSet(VoterNode(ReplicaKey(id)) for id in ids or quorum.leader_change_voter_ids)
