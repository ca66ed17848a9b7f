"""Recover the metadata log's directory when a node starts.

Applies Kafka's rules of a restart (``KafkaMetadataLog.apply``, ``recoverSnapshots``,
``truncateToLatestSnapshot``), and rules of kraft that distinguish damage from interruption:

- Files of an interrupted download, deletion or replacement are removed.
- A torn tail is truncated. Damage before the synced offset is an error, and, where that offset is
  unknown, damage that valid batches follow: the records may be committed (FAST'18).
- The leader epoch of a batch is outside its CRC. Every epoch begins with a LeaderChange, and every
  LeaderChange begins an epoch; a batch that contradicts this is an error.
- A log that does not begin at 0 needs a snapshot at its start or later; earlier snapshots are
  removed.
- A snapshot ahead of the log (a crash after a download was renamed into place) empties the log.

Every error says what to do. Called by ``store``.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, scan
from kraft._core.bytes.batch_records import iterate
from kraft._core.codec.fetch import METADATA_TOPIC_ID
from kraft._core.log.disk import Disk
from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.log import Log
from kraft.errors import CorruptRecordError, DamagedLogError, StorageError
from kraft.metadata.directory import replaces_log
from kraft.raft.election_state import ElectionState
from kraft.raft.log_view import LogView
from kraft.raft.voters import VoterSet
from kraft.server.disk.files import SyncedOffset, add_quorum_state_checksum, read_quorum_state
from kraft.server.disk.snapshots import SnapshotFiles, is_unfinished

LEADER_CHANGE = 2
_WHOLE_SEGMENT = (1 << 63) - 1

#: What to do about a damaged directory.
CATCH_UP = (
    "The disk or another program damaged the files. Keep a copy of the directory. If a majority of "
    "the other controllers runs, this one can catch up from them: remove it from the voters "
    "(kraft quorum remove-controller), format an empty directory for it, start it, and add it again"
)


class Recovered(NamedTuple):
    """The recovered content of a directory."""

    log: Log
    snapshots: SnapshotFiles
    synced_offset: SyncedOffset
    view: LogView
    election: ElectionState


class ControlBatch(NamedTuple):
    base_offset: int
    data: memoryview


def recover(
    disk: Disk,
    directory: str,
    static_voters: VoterSet,
    *,
    segment_bytes: int,
    segment_ms: int,
    loads_latest_snapshot: bool = False,
) -> Recovered:
    """Open a metadata log's directory and recover it; create it where missing.

    With ``loads_latest_snapshot`` the records of that snapshot are left to the caller to check.
    Raises CorruptRecordError (DamagedLogError) and StorageError; the message says what to do.
    """
    _make_directory(disk, directory)
    _remove_unfinished(disk, directory)
    try:
        stored = read_quorum_state(disk, directory)
    except CorruptRecordError as error:
        error.add_advice(
            "It holds this node's vote; without it the node could vote twice in an epoch. "
            + CATCH_UP
        )
        raise
    synced_offset = SyncedOffset(disk, directory)
    if stored is not None and not stored.is_ours:
        synced_offset.forget()
    try:
        log = Log.open(
            directory,
            disk=disk,
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            synced_offset=synced_offset.offset,
        )
    except CorruptRecordError as error:
        raise error.add_advice(CATCH_UP) from None
    try:
        controls = _check_epochs(log, synced_offset)
        snapshots = SnapshotFiles(disk, directory)
        _load_snapshots(log, snapshots, loads_latest=loads_latest_snapshot)
        latest = snapshots.latest
        if latest is not None and replaces_log(*latest.id, log.log_end_offset, log.last_epoch):
            if loads_latest_snapshot:
                # All of it, before the log is emptied for it.
                snapshots.add(latest.id)
            # Remove the synced offset first: the log is emptied segment by segment.
            synced_offset.forget()
            log.truncate_fully_and_start_at(latest.id.offset)
            snapshots.remove_before(latest.id)
            controls = []
        synced_offset.begin(log.log_end_offset, log.last_epoch)
        if stored is not None and not stored.is_ours:
            # The next start then trusts the synced offset, as kraft wrote the log last.
            add_quorum_state_checksum(disk, directory)
    except CorruptRecordError as error:
        log.close()
        raise error.add_advice(CATCH_UP) from None
    except BaseException:
        log.close()
        raise
    view = LogView(
        static_voters=static_voters,
        start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        durable_end_offset=log.log_end_offset,
        epochs=EpochCache(list(log.epochs)),
        snapshots={**snapshots.unchecked, **{id: one.size for id, one in snapshots.all.items()}},
    )
    base_offset = 0
    if latest is not None:
        view.load_snapshot_voters(latest.voters, latest.kraft_version)
        base_offset = latest.id.offset
    for batch in controls:
        if batch.base_offset >= base_offset:
            view.replay_control_batch(batch.data)
    election = ElectionState() if stored is None else stored.state
    return Recovered(log, snapshots, synced_offset, view, election)


def _make_directory(disk: Disk, directory: str) -> None:
    """Create it and its missing parents, and sync their directory entries."""
    parents: list[str] = []
    path = directory
    while not disk.exists(path) and (parent := os.path.dirname(path) or ".") != path:
        parents.append(parent)
        path = parent
    disk.make_directory(directory)
    for parent in parents:
        disk.sync_directory(parent)


def _remove_unfinished(disk: Disk, directory: str) -> None:
    unfinished = [name for name in disk.list(directory) if is_unfinished(name)]
    for name in unfinished:
        disk.remove(f"{directory}/{name}")
    if unfinished:
        disk.sync_directory(directory)


def _check_epochs(log: Log, synced_offset: SyncedOffset) -> list[ControlBatch]:
    """Check the leader epochs of the whole log; return its control batches."""
    if log.topic_id != METADATA_TOPIC_ID:
        raise CorruptRecordError(
            f"partition.metadata names the topic {log.topic_id!s}, which is not the metadata log's",
            path=log.directory,
        )
    controls: list[ControlBatch] = []
    epoch = -1
    for segment in log.segments:
        if not segment.size:
            continue
        data = log.fetch(segment.base_offset, _WHOLE_SEGMENT)
        table = scan(data, verify_crc=False)
        for base_offset, position, length, batch_epoch, attributes in zip(
            table.base_offsets.tolist(),
            table.positions.tolist(),
            table.batch_lengths.tolist(),
            table.partition_leader_epochs.tolist(),
            table.attributes.tolist(),
            strict=True,
        ):
            is_control = attributes & ATTRIBUTE_CONTROL
            if not is_control and batch_epoch == epoch:
                continue
            batch = data[position : position + length + 12]
            begins_epoch = bool(is_control) and _begins_epoch(batch)
            # The log's first batch may be of any kind: the log starts where a snapshot ends.
            if begins_epoch != (batch_epoch > epoch) and epoch >= 0:
                raise DamagedLogError(
                    f"leader epoch {batch_epoch} follows {epoch} "
                    f"{'at' if begins_epoch else 'without'} a LeaderChange",
                    path=segment.path,
                    offset=base_offset,
                    position=position,
                )
            epoch = batch_epoch
            if is_control:
                controls.append(ControlBatch(base_offset, batch))
    offset, synced_epoch = synced_offset.offset, synced_offset.epoch
    # -1 where the log was truncated to its start: the epochs before the start were removed, while
    # its first segment still has batches of them.
    if offset > log.log_start_offset and -1 != synced_epoch != log.epoch_at(offset - 1):
        raise DamagedLogError(
            f"the record before offset {offset} is of leader epoch {log.epoch_at(offset - 1)}, "
            f"and was of {synced_epoch} when the log was synced",
            path=log.directory,
            offset=offset - 1,
        )
    return controls


def _begins_epoch(batch: memoryview) -> bool:
    for record_batch in iterate(batch, verify_crc=False):
        for record in record_batch:
            return record.control_type == LEADER_CHANGE
    return False


def _load_snapshots(log: Log, snapshots: SnapshotFiles, *, loads_latest: bool) -> None:
    """Check and add the latest snapshot, and remove those before the log's start.

    The others are expected: they are checked later.
    """
    ids, start = snapshots.find(), log.log_start_offset
    kept = [id for id in ids if id.offset >= start]
    if start > 0 and not kept:
        raise StorageError(
            f"{log.directory}: the log begins at offset {start}, and no snapshot has the records "
            f"before it ({len(ids)} end earlier). Restore the newest .checkpoint file, or: "
            + CATCH_UP
        )
    for id in kept[:-1]:
        snapshots.expect(id)
    for id in kept[-1:]:
        snapshots.add(id, is_loaded_next=loads_latest)
    if len(kept) < len(ids):
        snapshots.remove_before(kept[0])
    snapshots.remove_lone_columns()
