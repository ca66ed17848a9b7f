"""The logs of a broker as its replication sees them: by topic id, with their directories' ids.

`PartitionLogStore` is the `LogStore` of ``kraft.broker.replication.ports`` over a `LogManager`.

Invariants:
- A log is opened for the topic whose id is in its `partition.metadata`. The log of an earlier topic
  of the same name is renamed to `-stray`, as Kafka does with logs that the metadata does not know.
- No log is created while an offline directory may have it.
- Of two logs of a partition the one in the assigned directory is opened: `LogManager.choose_copy`.
- A future log without the log that it replaces is that log, if the metadata assign its directory or
  no directory is offline: the process ended between the two renames of `LogManager.promote`. Kafka
  also lets it replace a log that is there, and loses the records that were not copied.

Creating many logs and setting stray ones aside waits for the disk: ``metadata_steps`` does both in
a thread. Rules: Kafka's ``LogManager.isStrayKraftReplica``, ``recoverAbandonedFutureLogs`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from logging import getLogger

from kraft._core.decide.placement import UNASSIGNED_DIRECTORY
from kraft.broker.log.checkpoint_files import PartitionKey
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.replication.local_changes import LocalPartition
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.ports import StoredLog
from kraft.errors import StorageError
from kraft.records import Uuid

#: Creating 200 logs takes 3 to 5 s in one thread, 0.6 s in 4 and 0.4 s in 16.
CREATING_THREADS = 4

_log = getLogger(__name__)


class PartitionLogStore:
    """The logs in the directories of a loaded `LogManager`."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._opened: dict[PartitionId, PartitionLog] = {}
        #: The directories that AlterReplicaLogDirs named for logs that do not exist yet.
        self._preferred: dict[PartitionKey, LogDirectory] = {}

    def open(self, partition: PartitionId, topic: str, directory: bytes) -> StoredLog:
        """Return the log of a partition; create it if no online directory has it.

        ``directory`` is the id of the assigned directory. The store chooses one if it is unassigned
        or unknown. Raises `StorageError` if the log may be in an offline directory, or its own
        fails.
        """
        topic_id = Uuid(partition.topic_id)
        self._manager.choose_copy(topic, partition.partition, directory)
        log = self._manager.get(topic, partition.partition)
        if log is not None:
            known = log.topic_id
            if known is None:
                log.set_topic_id(topic_id)
            elif known != topic_id:
                self._manager.set_aside(topic, partition.partition)
                log = None
        if log is None:
            log = self._abandoned(partition, topic, directory)
        if log is None:
            log = self._manager.create(
                topic,
                partition.partition,
                topic_id,
                self._preferred_for(topic, partition.partition) or self._directory_for(directory),
            )
            self._preferred.pop((topic, partition.partition), None)
        self._opened[partition] = log
        return StoredLog(log, log.directory.id, log.high_watermark)

    def _abandoned(
        self, partition: PartitionId, topic: str, directory: bytes
    ) -> PartitionLog | None:
        """Return the future log of a partition without another one, which it replaces."""
        manager, future = self._manager, self._future(partition, topic)
        if future is None:
            return None
        if manager.is_offline(topic, partition.partition) or (
            self.has_offline and future.directory.id != directory
        ):
            raise StorageError("the log may be in a log directory that is offline")
        _log.info("%s is the log of %s-%d from now on", future.path, topic, partition.partition)
        return manager.promote(topic, partition.partition)

    def _preferred_for(self, topic: str, partition: int) -> LogDirectory | None:
        """Return the online directory that was asked for, unless it was cordoned since."""
        preferred = self._preferred.get((topic, partition))
        if preferred is None or preferred.failure is not None or preferred.is_cordoned:
            return None
        return preferred

    def _directory_for(self, id: bytes) -> LogDirectory | None:
        """Return the directory of a new log; None: the manager chooses."""
        for directory in self._manager.online:
            if directory.id == id:
                return directory
        if id != UNASSIGNED_DIRECTORY and self.has_offline:
            raise StorageError("the log may be in a log directory that is offline")
        return None

    def delete(self, partition: PartitionId) -> None:
        """Delete the log of a partition, if there is one; a failure takes its directory offline."""
        log = self._opened.pop(partition, None)
        if log is None:
            return
        self.delete_future(partition, log.topic)
        if self._manager.get(log.topic, log.partition) is not log:
            return
        try:
            self._manager.delete(log.topic, log.partition)
        except StorageError as error:
            _log.error("Deletion of %s: %s", log.path, error)

    # Moves to another directory ------------------------------------------------------------------

    def directory_at(self, path: str) -> LogDirectory | None:
        """Return the log directory with a path, None for a path that is not in log.dirs."""
        for directory in self._manager.directories:
            if directory.path == path:
                return directory
        return None

    @property
    def has_offline(self) -> bool:
        """Whether a log directory is offline."""
        return len(self._manager.online) < len(self._manager.directories)

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """Create the log of a partition in this directory, when it is assigned to this broker."""
        self._preferred[topic, partition] = directory

    def future(self, partition: PartitionId, topic: str) -> StoredLog | None:
        """Return the log that will replace the one of a partition, None without one."""
        log = self._future(partition, topic)
        return None if log is None else StoredLog(log, log.directory.id, log.high_watermark)

    def _future(self, partition: PartitionId, topic: str) -> PartitionLog | None:
        """Return the future log; set aside one of an earlier topic. Raises `StorageError`."""
        log = self._manager.future(topic, partition.partition)
        if log is not None and log.topic_id not in (None, Uuid(partition.topic_id)):
            self._manager.set_aside(topic, partition.partition, is_future=True)
            return None
        return log

    def create_future(self, partition: PartitionId, topic: str, directory: LogDirectory) -> None:
        """Create the future log of a partition; may run in a thread as `create_missing`.

        Raises `StorageError`.
        """
        self._manager.create_future(topic, partition.partition, Uuid(partition.topic_id), directory)

    def delete_future(self, partition: PartitionId, topic: str) -> None:
        """Delete the future log of a partition, if there is one that is online."""
        try:
            self._manager.delete_future(topic, partition.partition)
        except StorageError as error:
            _log.error("Deletion of the future log of %s-%d: %s", topic, partition.partition, error)

    def is_flushed(self, partition: PartitionId, topic: str) -> bool:
        """Return whether the future log is as far on the device as the log that it replaces."""
        future = self._manager.future(topic, partition.partition)
        log = self._manager.get(topic, partition.partition)
        return future is None or log is None or future.recovery_point >= log.recovery_point

    def flush_future(self, partition: PartitionId, topic: str) -> None:
        """Flush the future log; may run in another thread. Raises `StorageError`."""
        future = self._manager.future(topic, partition.partition)
        if future is not None:
            future.flush()

    def rolled_future_flush(self, partition: PartitionId, topic: str) -> Callable[[], None] | None:
        """Return the flush of the future log's rolled segments, None if none wait for one.

        The flush may run in another thread; it raises `StorageError`.
        """
        future = self._manager.future(topic, partition.partition)
        if future is None or not future.has_unflushed_segments:
            return None
        return future.flush_rolled

    def promote(self, partition: PartitionId, topic: str) -> StoredLog:
        """Let the future log replace the partition's log; return it. Raises `StorageError`."""
        old = self._manager.get(topic, partition.partition)
        log = self._manager.promote(topic, partition.partition)
        if old is not None:
            log.high_watermark = min(old.high_watermark, log.end_offset)
        self._opened[partition] = log
        return StoredLog(log, log.directory.id, log.high_watermark)

    # Many logs -----------------------------------------------------------------------------------

    def create_missing(self, partitions: Iterable[LocalPartition]) -> None:
        """Create the logs of partitions that have none: each takes some writes to the device.

        May run in another thread, while no other call of the store runs. A failure is not raised:
        `open` meets it again. Several threads wait for the device, which writes for all of them at
        once.
        """

        def create(placed: tuple[LocalPartition, bytes]) -> None:
            local, directory = placed
            with suppress(StorageError):
                self.open(local.id, local.topic, directory)

        with ThreadPoolExecutor(CREATING_THREADS, "log creation") as threads:
            for _ in threads.map(create, list(self._placed(partitions))):
                pass

    def _placed(
        self, partitions: Iterable[LocalPartition]
    ) -> Iterator[tuple[LocalPartition, bytes]]:
        """Yield each partition with the id of its directory: the assigned one, else a chosen one.

        The threads cannot choose: each would take the same directory with the fewest partitions.
        """
        counts = {directory.id: len(directory.partitions) for directory in self._manager.online}
        choices = [directory.id for directory in self._manager.choices]
        has_all = not self.has_offline
        for local in partitions:
            preferred = self._preferred_for(local.topic, local.id.partition)
            id = local.assignment.directory if preferred is None else preferred.id
            may_choose = has_all or id == UNASSIGNED_DIRECTORY
            if (
                id not in counts
                and choices
                and may_choose
                and self._manager.get(local.topic, local.id.partition) is None
            ):
                id = min(choices, key=counts.__getitem__)
            if id in counts:
                counts[id] += 1
            yield local, id

    def strays(self, hosted: Iterable[HostedPartition]) -> list[PartitionLog]:
        """Return the logs of the partitions that are not ``hosted``.

        After the first metadata these are partitions that were deleted, or moved to other brokers,
        while this broker was down.
        """
        known = {(partition.topic, partition.id.partition) for partition in hosted}
        return [
            log
            for log in self._manager.with_future_logs()
            if (log.topic, log.partition) not in known
        ]

    def set_aside(self, strays: Iterable[PartitionLog]) -> None:
        """Rename the directories of logs to `-stray`; may run in a thread as `create_missing`."""
        for log in strays:
            key = (log.topic, log.partition)
            with suppress(StorageError):
                self._manager.set_aside(*key, is_future=log.directory.future.get(key) is log)

    def set_high_watermarks(self, high_watermarks: Mapping[PartitionId, int]) -> None:
        """Note the high watermarks of the replication, for retention and the next checkpoint."""
        for partition, high_watermark in high_watermarks.items():
            log = self._opened.get(partition)
            if log is not None:
                log.high_watermark = high_watermark
        for future in self._manager.future_logs():
            log = self._manager.get(future.topic, future.partition)
            if log is not None and future.is_open:
                future.high_watermark = min(log.high_watermark, future.end_offset)
