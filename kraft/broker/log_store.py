"""The logs of a broker as its replication sees them, over the log directories.

`DirectoryLogStore` finds, creates and deletes the logs of partitions by topic id, and chooses their
directories. `LocalReplicaLog` is a `PartitionLog` on disk with the port's signatures.

Invariant: a log is used only for the topic id in its ``partition.metadata``; the directory of an
earlier topic of the same name is set aside. Called by ``replication`` on the event loop. Rules:
Kafka's ``LogManager.getOrCreateLog``, ``Partition.createLogInAssignedDirectoryId``,
``LogManager.isStrayKraftReplica``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from typing_extensions import Buffer

from kraft._core.bytes.produced_batch import ProducedBatch
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.partition_log import Appended, PartitionLog
from kraft.broker.replication.local_changes import LocalPartition
from kraft.broker.replication.messages import OffsetAtTime, PartitionId
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.ports import DataSlice, StoredLog
from kraft.errors import StorageError
from kraft.records import Uuid

#: Directory ids that name no directory: migrating, unassigned and lost (``DirectoryId``).
_RESERVED = frozenset(bytes(15) + bytes([number]) for number in range(3))


class LocalReplicaLog:
    """The log of a replica on this broker; ``stored`` is the log on disk."""

    __slots__ = ("stored",)

    def __init__(self, stored: PartitionLog) -> None:
        self.stored = stored

    @property
    def high_watermark(self) -> int:
        """The high watermark as of the last note, for checkpoints and retention."""
        return self.stored.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self.stored.high_watermark = offset

    @property
    def start_offset(self) -> int:
        return self.stored.start_offset

    @property
    def end_offset(self) -> int:
        return self.stored.end_offset

    @property
    def latest_epoch(self) -> int:
        return self.stored.latest_epoch

    def append_as_leader(self, batch: ProducedBatch | Buffer, epoch: int) -> Appended:
        return self.stored.append_as_leader(batch, epoch, now_ms=self.stored.directory.now_ms())

    def append_as_follower(self, batches: Buffer) -> None:
        self.stored.append_as_follower(batches, now_ms=self.stored.directory.now_ms())

    def read(self, offset: int, max_bytes: int, end: int) -> DataSlice:
        return self.stored.read(offset, max_bytes, end)

    def end_offset_of(self, epoch: int) -> EpochEndOffset | None:
        return self.stored.end_offset_of(epoch)

    def truncate_to(self, offset: int) -> None:
        self.stored.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        self.stored.restart_at(offset)

    def raise_start_offset(self, offset: int) -> None:
        self.stored.raise_start_offset(offset)

    def offset_at_time(self, timestamp_ms: int) -> OffsetAtTime | None:
        found = self.stored.offset_at_time(timestamp_ms)
        return None if found is None else OffsetAtTime(*found)

    def offset_of_largest_time(self) -> OffsetAtTime | None:
        found = self.stored.offset_of_largest_time()
        return None if found is None else OffsetAtTime(*found)


class DirectoryLogStore:
    """The logs of a broker by topic id and partition.

    ``ids`` are the ids of the log directories by path. ``is_cordoned`` tells whether a directory
    takes no new partitions (KIP-1066).
    """

    def __init__(
        self,
        logs: LogManager,
        ids: Mapping[str, Uuid],
        is_cordoned: Callable[[LogDirectory], bool] = lambda directory: False,
    ) -> None:
        self.logs = logs
        self._ids = {directory: bytes(ids[directory.path]) for directory in logs.directories}
        self._directories = {id: directory for directory, id in self._ids.items()}
        self._is_cordoned = is_cordoned
        #: The name and the number of logs of each topic id.
        self._topics: dict[bytes, tuple[str, int]] = {}

    def id_of(self, directory: LogDirectory) -> bytes:
        """Return the id of a log directory, 16 bytes."""
        return self._ids[directory]

    def create_missing(self, partitions: Iterable[LocalPartition]) -> None:
        """Create the logs of partitions that have none: each takes some writes to the device.

        May run in another thread, while no other call of the store runs. A failure is not raised:
        `open` meets it again.
        """
        for local in partitions:
            with suppress(StorageError):
                self._found_or_created(local.id, local.topic, local.assignment.directory)

    def open(self, partition: PartitionId, topic: str, directory: bytes) -> StoredLog:
        """Return the log of a partition; see `LogStore.open`."""
        log = self._found_or_created(partition, topic, directory)
        _, count = self._topics.get(partition.topic_id, ("", 0))
        self._topics[partition.topic_id] = topic, count + 1
        return StoredLog(LocalReplicaLog(log), self._ids[log.directory], log.high_watermark)

    def _found_or_created(
        self, partition: PartitionId, topic: str, directory: bytes
    ) -> PartitionLog:
        log = self._found(topic, partition.partition)
        if log is not None and not _is_of(log, partition.topic_id):
            self.logs.set_aside(topic, partition.partition)
            log = None
        if log is None:
            log = self.logs.create(
                topic, partition.partition, Uuid(partition.topic_id), self._target(directory)
            )
        return log

    def _found(self, topic: str, partition: int) -> PartitionLog | None:
        """Return a partition's log, None without one. Raises `StorageError` if it is offline."""
        for directory in self.logs.directories:
            log = directory.partitions.get((topic, partition))
            if log is not None:
                if directory.failure is not None:
                    raise directory.offline_error()
                return log
        return None

    def _target(self, assigned: bytes) -> LogDirectory:
        """Return the directory of a new log.

        It is the assigned one, else the one with the fewest partitions. Raises `StorageError` if
        the assigned one is not online: it may have the log.
        """
        online = self.logs.online
        directory = self._directories.get(assigned)
        if directory is not None and directory.failure is None:
            return directory
        if assigned not in _RESERVED and len(online) < len(self.logs.directories):
            raise StorageError(
                f"log directory {Uuid(assigned)!s} is not online; it may have the log"
            )
        if not online:
            raise StorageError("no log directory is online")
        open_ones = [one for one in online if not self._is_cordoned(one)] or online
        return min(open_ones, key=lambda one: len(one.partitions))

    def delete(self, partition: PartitionId) -> None:
        """Delete the log of a partition, if it is open.

        A failure takes the directory offline and is not raised; the log is set aside at the next
        start.
        """
        topic, count = self._topics.get(partition.topic_id, ("", 0))
        if not count:
            return
        if count == 1:
            del self._topics[partition.topic_id]
        else:
            self._topics[partition.topic_id] = topic, count - 1
        log = self.logs.get(topic, partition.partition)
        # The failure of a directory that is offline from now on is not the caller's.
        with suppress(StorageError):
            if log is not None and _is_of(log, partition.topic_id):
                self.logs.delete(topic, partition.partition)

    def strays(self, hosted: Iterable[HostedPartition]) -> list[PartitionLog]:
        """Return the logs of the partitions that are not ``hosted``.

        After the first metadata these are partitions that were deleted, or moved to other brokers,
        while this broker was down.
        """
        known = {(partition.topic, partition.id.partition) for partition in hosted}
        return [log for log in self.logs.logs() if (log.topic, log.partition) not in known]

    def set_aside(self, strays: Iterable[PartitionLog]) -> None:
        """Rename the directories of logs to `-stray`; may run in a thread as `create_missing`."""
        for log in strays:
            with suppress(StorageError):
                self.logs.set_aside(log.topic, log.partition)


def _is_of(log: PartitionLog, topic_id: bytes) -> bool:
    """Return whether a log belongs to the topic with this id; a log without an id does."""
    known = log.topic_id
    return known is None or bytes(known) == topic_id
