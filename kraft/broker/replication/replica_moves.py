"""Replica moves: copies of logs that will replace them, in other directories of this broker.

A `ReplicaMove` is one copy, KIP-113's future replica: it follows the partition's log record by
record, also into truncations, and replaces it once it has everything and the metadata assign its
directory (KIP-858). `ReplicaMoves` has those of a broker.

Invariants:
- The epochs of both logs decide what they have in common; the log may have lost records that were
  copied, while this broker was down.
- Records that were read before the log was cut are not appended: others may be in their place.
- A directory that was reported, and does not get the log, is reported to be another one.

Called by `replica_manager`, and by ``kraft.broker.replica_mover``, which does the reading. Rules:
Kafka's ``ReplicaAlterLogDirsThread``, ``Partition`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from typing_extensions import Buffer

from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.ports import DataSlice, LogStore, ReplicatedLog, StoredLog
from kraft.broker.replication.replication_output import ReplicaDirectory
from kraft.broker.replication.truncation import truncation_offset

#: The id of a directory that is not known.
UNKNOWN_DIRECTORY = bytes(16)


class PartToCopy(NamedTuple):
    """Records that follow the copy's end at ``offset``, in a log that was cut ``cuts`` times."""

    offset: int
    cuts: int
    records: DataSlice


class ReplicaMove:
    """The move of one replica; its log is ``partition.log`` until the move is over."""

    __slots__ = ("copy", "directory", "failure", "is_reported", "partition")

    def __init__(self, partition: HostedPartition, stored: StoredLog) -> None:
        self.partition = partition
        self.copy = stored.log
        #: The id of the directory of the copy.
        self.directory = stored.directory
        #: Whether the controller was asked to assign the directory.
        self.is_reported = False
        #: Why the copy cannot go on, or None.
        self.failure: str | None = None

    @property
    def is_assigned(self) -> bool:
        """Whether the metadata assign the directory of the copy."""
        assignment = self.partition.assignment
        return assignment is not None and assignment.directory == self.directory

    @property
    def has_caught_up(self) -> bool:
        return self.copy.end_offset == self.partition.local_log.end_offset

    def next_part(self, max_bytes: int) -> PartToCopy | None:
        """Return the records that follow; None if the copy has all. Cut the copy before, if needed.

        Raises `StorageError`.
        """
        log, copy = self.partition.local_log, self.copy
        _align(log, copy)
        end = log.end_offset
        if copy.end_offset == end:
            return None
        records = log.read(copy.end_offset, max_bytes, end)
        return PartToCopy(copy.end_offset, self.partition.cuts, records)

    def append(self, part: PartToCopy, records: Buffer) -> bool:
        """Append the records of a part; return False if it does not follow any more.

        Raises `CorruptRecordError`, `StorageError`.
        """
        partition, copy = self.partition, self.copy
        if (
            partition.log is None
            or partition.cuts != part.cuts
            or copy.end_offset != part.offset
            or not len(memoryview(records))
        ):
            return False
        first = int.from_bytes(memoryview(records)[:8], "big", signed=True)
        if first < copy.end_offset and copy.start_offset == copy.end_offset:
            # The log starts within its first batch, after DeleteRecords.
            copy.restart_at(first)
        copy.append_as_follower(records)
        self.follow_start()
        return True

    def follow_start(self) -> None:
        """Raise the start offset of the copy to that of the log."""
        start = self.partition.local_log.start_offset
        if self.copy.start_offset < start <= self.copy.end_offset:
            self.copy.raise_start_offset(start)


class ReplicaMoves:
    """The moves on one broker.

    ``partitions`` are its replicas; ``report`` gets directories for AssignReplicasToDirs.
    ``before_replacement`` is called with each partition whose log is about to be replaced.
    """

    def __init__(
        self,
        partitions: dict[PartitionId, HostedPartition],
        store: LogStore,
        *,
        report: Callable[[ReplicaDirectory], None],
        before_replacement: Callable[[PartitionId], None],
    ) -> None:
        self._partitions = partitions
        self._store = store
        self._report = report
        self._before_replacement = before_replacement
        self.moves: dict[PartitionId, ReplicaMove] = {}

    def resume(self, partition: HostedPartition) -> None:
        """Go on with a move, if the store has a copy of the partition's log."""
        self.moves.pop(partition.id, None)
        stored = self._store.future(partition.id, partition.topic)
        if stored is not None and partition.log is not None:
            self.moves[partition.id] = ReplicaMove(partition, stored)

    def reported_directory(self, partition: HostedPartition) -> bytes:
        """Return the directory that the controller should assign to a replica."""
        move = self.moves.get(partition.id)
        # An earlier process of this broker may have reported it.
        if move is not None and (move.is_reported or move.is_assigned):
            return move.directory
        return partition.directory

    def check_directory(self, partition: HostedPartition) -> None:
        """Report the directory of a replica if it is not the assigned one.

        Also one that has failed: the controller may have assigned that of a move meanwhile.
        """
        assignment = partition.assignment
        directory = self.reported_directory(partition)
        if assignment is not None and directory not in (UNKNOWN_DIRECTORY, assignment.directory):
            self._report(ReplicaDirectory(partition.id, directory))

    def report(self, move: ReplicaMove) -> None:
        """Ask the controller to assign the directory of a copy that has caught up."""
        if not move.is_reported:
            move.is_reported = True
            self._report(ReplicaDirectory(move.partition.id, move.directory))

    def finish(self, move: ReplicaMove) -> None:
        """Let a copy that has caught up replace the log. Raises `StorageError`."""
        partition = move.partition
        move.follow_start()
        self._before_replacement(partition.id)
        stored = self._store.promote(partition.id, partition.topic)
        partition.log, partition.directory = stored.log, stored.directory
        del self.moves[partition.id]

    def cancel(self, id: PartitionId) -> None:
        """Give a move up, and delete the copy."""
        partition = self._partitions[id]
        self.lose(id)
        self._store.delete_future(id, partition.topic)

    def lose(self, id: PartitionId) -> None:
        """Forget a move whose copy, or whose log, is not there any more."""
        move = self.moves.pop(id, None)
        if move is not None and (move.is_reported or move.is_assigned):
            self._report(ReplicaDirectory(id, move.partition.directory))

    def directory_failed(self, directory: bytes) -> None:
        """Forget the moves from and to a directory that has failed."""
        for id, move in list(self.moves.items()):
            if directory in (move.directory, move.partition.directory):
                self.lose(id)


def _align(log: ReplicatedLog, copy: ReplicatedLog) -> None:
    """Cut records from the copy that the log does not have; empty it if they have none in common.

    Raises `StorageError`.
    """
    while copy.latest_epoch >= 0:
        found = log.end_offset_of(min(copy.latest_epoch, log.latest_epoch))
        if found is None:
            break
        if found.epoch == copy.latest_epoch and found.end_offset >= copy.end_offset:
            break
        end = truncation_offset(copy, found)
        if end <= copy.start_offset:
            copy.restart_at(end)
        else:
            copy.truncate_to(end)
    if not log.start_offset <= copy.end_offset <= log.end_offset:
        copy.restart_at(log.start_offset)
