"""The store of a node: the metadata log, its snapshots and the election state on disk.

Responsible for the directory ``<metadata.log.dir>/__cluster_metadata-0``: opens it (`recovery`),
performs the raft layer's writes in order and in Kafka's file formats, reads slices of log and
snapshots, and deletes by retention.

Invariants:

- Everything appended before `sync` is on the device when `sync` returns.
- One thread at a time writes; other threads may call `read` meanwhile.
- A failed write is never retried.
- Only snapshots move the log's start (KAFKA-14238): before a record is deleted, a snapshot with it
  is durable.
- A downloaded snapshot gets its name before the log is emptied; after a crash in between, recovery
  empties the log.

Called by `writer` and `driver`; calls ``kraft._core.log`` and ``snapshot_file``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Self

from kraft._core.log.disk import Disk, OsDisk, OsFile
from kraft._core.log.group_writer import GroupWriter
from kraft._core.log.log import DEFAULT_SEGMENT_BYTES, DEFAULT_SEGMENT_MS
from kraft._core.snapshot.snapshot_file import SnapshotWriter
from kraft.errors import (
    CorruptRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageError,
)
from kraft.metadata.directory import METADATA_LOG
from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    AppendBatches,
    DropSnapshotDownload,
    InstallSnapshot,
    SnapshotRejected,
    SnapshotsCleaned,
    SnapshotStored,
    StoreSnapshotChunk,
    TruncateLog,
    Write,
    WriteElectionState,
)
from kraft.raft.rpc import LogSlice, OffsetAndEpoch, SnapshotSlice
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.server.disk.directory_lock import DirectoryLock
from kraft.server.disk.files import write_quorum_state
from kraft.server.disk.recovery import CATCH_UP, Recovered, recover
from kraft.server.disk.snapshots import INVALID_SNAPSHOT, StoredSnapshot

logger = logging.getLogger(__name__)

#: Appends that may wait in the group writer.
MAX_STAGED = 1024
DEFAULT_RETENTION_BYTES = 100 * 1024 * 1024
DEFAULT_RETENTION_MS = 7 * 24 * 3600 * 1000


class MetadataStore:
    """The store of one node; `open` creates it, `close` releases it.

    ``view`` and ``election`` are the recovered log view and election state; a raft node takes
    ownership of them.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        static_voters: VoterSet,
        recovered: Recovered,
        lock: DirectoryLock | None,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.view = recovered.view
        self.election = recovered.election
        self.log = recovered.log
        self._static_voters = static_voters
        self._snapshots = recovered.snapshots
        self._synced_offset = recovered.synced_offset
        self._lock = lock

    @classmethod
    def open(
        cls,
        metadata_log_dir: str | os.PathLike[str],
        *,
        static_voters: VoterSet | None = None,
        disk: Disk | None = None,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        segment_ms: int = DEFAULT_SEGMENT_MS,
        loads_latest_snapshot: bool = False,
    ) -> Self:
        """Open the metadata log under ``metadata_log_dir``; create it where missing.

        Without ``disk`` the directory of the operating system is locked against other processes.
        With ``loads_latest_snapshot`` the caller loads that snapshot with its CRCs before it uses
        the store, so that its records need no other check.
        Raises CorruptRecordError (DamagedLogError) for damaged files, and StorageError where the
        disk fails or is in use; the message says what to do.
        """
        root = os.fspath(metadata_log_dir)
        static_voters = static_voters or VoterSet()
        lock = None
        if disk is None:
            disk = OsDisk()
            disk.make_directory(root)
            lock = DirectoryLock(root)
        directory = f"{root}/{METADATA_LOG}"
        try:
            recovered = recover(
                disk,
                directory,
                static_voters,
                segment_bytes=segment_bytes,
                segment_ms=segment_ms,
                loads_latest_snapshot=loads_latest_snapshot,
            )
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return cls(directory, disk, static_voters, recovered, lock)

    # -- writing

    def perform(self, write: Write) -> SnapshotStored | SnapshotRejected | None:
        """Perform one write; return the event of an installed or rejected snapshot, else None.

        Election states, truncations and installed snapshots are durable at the return, appended
        batches and stored chunks with the next `sync`. An invalid download is rejected and removed,
        and nothing else changes. Raises StorageError; the process must end then.
        """
        kind = type(write)
        if kind is AppendBatches:
            self._append(write)  # type: ignore[arg-type]
        elif isinstance(write, WriteElectionState):
            self._write_election_state(write)
        elif isinstance(write, TruncateLog):
            self._truncate(write.end_offset)
        elif isinstance(write, StoreSnapshotChunk):
            self._snapshots.store_chunk(write.snapshot_id, write.position, write.data)
        elif isinstance(write, InstallSnapshot):
            return self._install(write.snapshot_id)
        else:
            assert isinstance(write, DropSnapshotDownload), write
            self._snapshots.drop_download(write.snapshot_id)
        return None

    def sync(self) -> None:
        """Sync all appended batches to the device. Raises StorageError."""
        log = self.log
        log.sync()
        self._synced_offset.raise_to(log.log_end_offset, log.last_epoch)

    def write_epochs(self) -> None:
        """Write the epochs that appends have begun to ``leader-epoch-checkpoint``, durably.

        The file is not needed to recover the log, so this may come after the appends are
        acknowledged. Raises StorageError.
        """
        self.log.write_epochs()

    def _append(self, write: AppendBatches) -> None:
        first, last = self.log.append(write.batches, write_epochs=False)
        assert (first, last + 1) == (write.base_offset, write.end_offset), (first, last, write)

    def _write_election_state(self, write: WriteElectionState) -> None:
        voted = None
        if write.voted_id >= 0:
            voted = ReplicaKey(write.voted_id, write.voted_directory_id)
        state = ElectionState(write.epoch, write.leader_id, voted)
        content = state.to_bytes(write.kraft_version, self._static_voters.ids)
        write_quorum_state(self.disk, self.directory, content)

    def _truncate(self, end_offset: int) -> None:
        log = self.log
        self._synced_offset.lower_to(end_offset, log.epoch_at(end_offset - 1))
        end = log.truncate_to(end_offset)
        assert end == end_offset, f"truncation to {end_offset} ended at {end}"

    def _install(self, id: OffsetAndEpoch) -> SnapshotStored | SnapshotRejected:
        try:
            snapshot = self._snapshots.finish_download(id)
        except INVALID_SNAPSHOT as error:
            logger.error("the leader's snapshot of offset %d, epoch %d is rejected: %s", *id, error)
            return SnapshotRejected(id, str(error))
        self._synced_offset.lower_to(0, -1)
        self.log.truncate_fully_and_start_at(id.offset)
        self._synced_offset.raise_to(id.offset, -1)
        self._snapshots.remove_before(id)
        return SnapshotStored(
            id,
            snapshot.size,
            is_installed=True,
            voters=snapshot.voters,
            kraft_version=snapshot.kraft_version,
        )

    # -- writing by a group writer

    def group_writer(self, signal_fd: int) -> GroupWriter | None:
        """Return a writer that appends to the log, and records the synced offset, without the GIL.

        None where the disk is not the operating system's.
        """
        notes = self._synced_offset.file
        return GroupWriter(signal_fd, notes) if isinstance(notes, OsFile) else None

    def stage(self, write: AppendBatches, group: GroupWriter) -> bool:
        """Queue an append in the group writer; return False where it needs `perform`, or must wait.

        Nothing else may be written until the append is done and `finish_append` was called.
        """
        log = self.log
        if group.pending >= MAX_STAGED or not log.stage(write.batches):
            return False
        if not group.pending:
            group.set_position(*log.staging_file)
        position, note = self._synced_offset.note(write.end_offset, log.last_epoch)
        return group.put(write.batches, position, note)

    def finish_append(self, write: AppendBatches) -> None:
        """Complete the oldest staged append, which is on the device."""
        self.log.add_staged(write.batches)
        assert self.log.log_end_offset == write.end_offset, write

    # -- reading

    def read(self, slice: LogSlice | SnapshotSlice) -> memoryview:
        """Return the bytes of a slice as on disk, mapped and not copied.

        A log slice has whole batches of one segment, none that ends after its ``end_offset``. Empty
        where the slice was deleted or truncated meanwhile. May be called in any thread.
        """
        if isinstance(slice, SnapshotSlice):
            return self._snapshots.read(slice)
        try:
            return self.log.fetch(slice.offset, slice.max_size, slice.end_offset)
        except OffsetOutOfRangeError:
            return memoryview(b"")

    def snapshot(self, id: OffsetAndEpoch) -> StoredSnapshot | None:
        """Return the snapshot ``id``, checked and mapped; None where there is none."""
        if id in self._snapshots.unchecked:
            return self._snapshots.check(id)
        return self._snapshots.all.get(id)

    def latest_snapshot(self) -> StoredSnapshot | None:
        """Return the newest snapshot, checked and mapped; None where there is none."""
        return next(reversed(list(self._snapshots.all.values())), None)

    # -- snapshots before the latest, own snapshots, and retention

    @property
    def unchecked_snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots before the latest that were not checked since the start, ascending."""
        return tuple(self._snapshots.unchecked)

    def check_snapshot(self, id: OffsetAndEpoch) -> StoredSnapshot | None:
        """Check one of `unchecked_snapshots`; pass the result to `resolve_snapshot`.

        May be called in any thread. Return None, after logging the error, for a file that is
        damaged or gone: neither this node nor another needs a snapshot before the latest.
        """
        try:
            return self._snapshots.check(id)
        except (*INVALID_SNAPSHOT, StorageError) as error:
            if id in self._snapshots.unchecked:
                logger.error(
                    "the snapshot of offset %d, epoch %d is not served: %s; a later snapshot has "
                    "its records",
                    *(*id, error),
                )
            return None

    def check_listed_snapshot(self, id: OffsetAndEpoch) -> None:
        """Check all of a snapshot that `open` left to its caller; in any thread.

        Raises one of INVALID_SNAPSHOT, and StorageError. Does nothing for a snapshot that was
        removed since.
        """
        try:
            self._snapshots.check(id)
        except CorruptRecordError as error:
            raise error.add_advice(CATCH_UP) from None
        except StorageError:
            if id in self._snapshots.all:
                raise

    def resolve_snapshot(self, id: OffsetAndEpoch, snapshot: StoredSnapshot | None) -> None:
        """Serve a snapshot from now on that `check_snapshot` has checked; never if it failed."""
        self._snapshots.resolve(id, snapshot)

    def snapshot_writer(
        self,
        id: OffsetAndEpoch,
        *,
        last_contained_log_timestamp_ms: int,
        timestamp_ms: int,
        control_records: Iterable[tuple[int, bytes]] = (),
    ) -> SnapshotWriter:
        """Return a writer of the snapshot ``id``; call `add_snapshot` once it is finished.

        The caller makes sure that the offset is committed. Raises InvalidRequestError where no
        snapshot of this log may end: within a batch, since a follower that loads the snapshot could
        not fetch from there (KAFKA-17713); outside the log; or in another epoch than that of ``id``
        (``KafkaMetadataLog.createNewSnapshot``).
        """
        if id.offset < self.log.log_start_offset:
            raise self._refusal(id, self._extent())
        self._check_snapshot_end(id)
        return SnapshotWriter(
            self.directory,
            id.offset,
            id.epoch,
            last_contained_log_timestamp_ms=last_contained_log_timestamp_ms,
            timestamp_ms=timestamp_ms,
            control_records=control_records,
            disk=self.disk,
        )

    def add_snapshot(self, id: OffsetAndEpoch) -> SnapshotStored | None:
        """Check and add a snapshot file that was finished; it may be served from now on.

        Return None where a leader's later snapshot has replaced it, and the log, meanwhile. Raises
        CorruptRecordError for an invalid snapshot, and InvalidRequestError as `snapshot_writer`
        does, except for a snapshot before the log's start, which may have moved meanwhile.
        """
        latest = self._snapshots.latest
        if latest is not None and id < latest.id and id.offset < self.log.log_start_offset:
            self._snapshots.remove_before(min(self._snapshots.all))
            return None
        self._check_snapshot_end(id)
        snapshot = self._snapshots.add(id)
        return SnapshotStored(id, snapshot.size)

    def _check_snapshot_end(self, id: OffsetAndEpoch) -> None:
        log = self.log
        if id.offset > log.log_end_offset:
            raise self._refusal(id, self._extent())
        if id.offset <= log.log_start_offset:
            return
        epoch = log.epoch_at(id.offset - 1)
        if epoch != id.epoch:
            raise self._refusal(id, f"the record before it is of epoch {epoch}")
        if id.offset < log.log_end_offset:
            base_offset = int.from_bytes(log.fetch(id.offset, 1)[:8], "big")
            if base_offset != id.offset:
                raise self._refusal(id, f"within the batch that begins at offset {base_offset}")

    def _extent(self) -> str:
        return f"the log holds offsets {self.log.log_start_offset} to {self.log.log_end_offset}"

    def _refusal(self, id: OffsetAndEpoch, reason: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"no snapshot may end at offset {id.offset} of epoch {id.epoch}: {reason}"
        )

    def clean(
        self,
        now_ms: float,
        max_bytes: int = DEFAULT_RETENTION_BYTES,
        max_ms: int = DEFAULT_RETENTION_MS,
    ) -> SnapshotsCleaned | None:
        """Delete the oldest snapshots, and the log before the next; return None if none was due.

        The oldest is due if there is a newer one, and log and snapshots together are larger than
        ``max_bytes``, or its last record is older than ``max_ms``. A value below 0 is unlimited
        (``KafkaMetadataLog.maybeClean``).
        """
        for id in self.unchecked_snapshots:
            self.resolve_snapshot(id, self.check_snapshot(id))
        snapshots = list(self._snapshots.all.values())
        earliest = None
        for oldest, following in pairwise(snapshots):
            size = self.log.size + sum(one.size for one in self._snapshots.all.values())
            age_ms = now_ms - oldest.last_contained_log_timestamp_ms
            if not (0 <= max_bytes < size or 0 <= max_ms < age_ms):
                break
            earliest = following.id
            self.log.advance_log_start(earliest.offset)
            self._snapshots.remove_before(earliest)
        if earliest is None:
            return None
        return SnapshotsCleaned(self.log.log_start_offset, earliest)

    def close(self) -> None:
        """Sync unsynced appends, close the files and release the lock."""
        try:
            self._snapshots.close()
            self.log.close()
            if not self.log.failed:
                self._synced_offset.raise_to(self.log.log_end_offset, self.log.last_epoch)
        finally:
            self._synced_offset.close()
            if self._lock is not None:
                self._lock.release()
