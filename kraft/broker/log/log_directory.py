"""A log directory of a broker: its partitions, its checkpoints, and what becomes of both.

`LogDirectory.load` reads the names and the checkpoints, and opens no partition. After a clean
shutdown (`.kafka_cleanshutdown`) nothing is read before it is used. After any other stop each log
is checked from its recovery point on when it is first used, or by `recover`.

Invariants:
- The mark of a clean shutdown is removed before any log can change.
- The recovery points on disk are never after what is on the device: a truncation writes them before
  the next append.
- No checkpoint on disk names an offset of an earlier log of a partition once the log of the present
  one can be written: a start would cut or empty the present log by it.
- After the first failed operation the directory is offline, and nothing is written to it.

The caller holds `meta.properties` and the lock of the directory (``kraft.server``). Rules:
``storage/.../log/LogManager.java``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from logging import getLogger
from random import Random
from threading import RLock
from uuid import uuid4

from kraft._core.log.disk import Disk, OsDisk
from kraft._core.log.partition_directory import write_topic_id
from kraft._core.log.segment import SegmentPool
from kraft.broker.log.checkpoint_files import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    PartitionKey,
    read_checkpoint,
    read_clean_shutdown,
    remove_clean_shutdown,
    write_checkpoint,
    write_clean_shutdown,
)
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.partition_names import (
    PartitionDirectoryKind,
    directory_name,
    future_name,
    parse_name,
    renamed,
)
from kraft.broker.log.settings import LogSettings
from kraft.errors import CorruptRecordError, StorageError
from kraft.records import Uuid

METADATA_TOPIC = "__cluster_metadata"
DEFAULT_EXPIRATION_MS = 86_400_000

_log = getLogger(__name__)


class LogDirectory:
    """One of the directories of ``log.dirs``."""

    def __init__(
        self,
        path: str,
        *,
        id: bytes = bytes(16),
        now_ms: Callable[[], int],
        pool: SegmentPool | None = None,
        disk: Disk | None = None,
        random: Random | None = None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        on_failure: Callable[[LogDirectory], None] = lambda _: None,
    ) -> None:
        """Prepare the directory at ``path``; `load` reads it.

        ``id`` are the 16 bytes of directory.id in `meta.properties` (KIP-858). ``now_ms`` is the
        clock, in ms since the epoch. Directories share the ``pool``, which bounds open files.
        ``on_failure`` is called once, when the directory goes offline.
        """
        self.path = path
        self.id = id
        self.disk: Disk = OsDisk() if disk is None else disk
        self.pool = SegmentPool(1000) if pool is None else pool
        self.now_ms = now_ms
        self.random = Random() if random is None else random
        self.producer_expiration_ms = producer_expiration_ms
        #: Whether it takes no new logs (cordoned.log.dirs).
        self.is_cordoned = False
        #: Why the directory is offline, or None.
        self.failure: StorageError | None = None
        self.partitions: dict[PartitionKey, PartitionLog] = {}
        #: Copies that will replace logs of other directories (AlterReplicaLogDirs).
        self.future: dict[PartitionKey, PartitionLog] = {}
        #: The broker epoch of the last clean shutdown, -1 if unknown; None after any other stop.
        self.clean_broker_epoch: int | None = None
        self.cleaner_offsets: dict[PartitionKey, int] = {}
        self._on_failure = on_failure
        #: A checkpoint is written with the facts of now: the event loop writes after a truncation,
        #: while the upkeep's thread may be writing those from before.
        self._checkpointing = RLock()
        #: The partitions that each checkpoint on disk may name.
        self._noted: dict[str, set[PartitionKey]] = {}
        #: (due time in ms, order, path) of files and directories to remove.
        self._doomed: list[tuple[int, int, str]] = []
        self._order = 0

    def __repr__(self) -> str:
        state = "offline" if self.failure else f"{len(self.partitions)} partitions"
        return f"<LogDirectory {self.path}, {state}>"

    # Loading ----------------------------------------------------------------------------------

    def load(self, settings_of: Callable[[str], LogSettings]) -> None:
        """Find the partitions; ``settings_of`` returns the settings of a topic by its name.

        A failure takes the directory offline and is not raised.
        """
        try:
            self._load(settings_of)
        except StorageError as error:
            self.fail(error)

    def _load(self, settings_of: Callable[[str], LogSettings]) -> None:
        disk = self.disk
        self.clean_broker_epoch = read_clean_shutdown(disk, self.path)
        is_clean = self.clean_broker_epoch is not None
        recovery_points = self._checkpoint(RECOVERY_POINTS)
        start_offsets = self._checkpoint(START_OFFSETS)
        high_watermarks = self._checkpoint(HIGH_WATERMARKS)
        self.cleaner_offsets = self._checkpoint(CLEANER_OFFSETS)
        known: dict[str, LogSettings] = {}
        for name in disk.list(self.path):
            found = parse_name(name)
            if found is None or found.topic == METADATA_TOPIC:
                continue
            if found.kind is PartitionDirectoryKind.DELETED:
                self.remove_later([f"{self.path}/{name}"], 0)
                continue
            if found.kind is PartitionDirectoryKind.STRAY:
                continue
            key = (found.topic, found.partition)
            settings = known.get(found.topic)
            if settings is None:
                settings = known[found.topic] = settings_of(found.topic)
            log = PartitionLog(
                self,
                found.topic,
                found.partition,
                settings,
                name=name,
                start_offset=start_offsets.get(key, 0),
                recovery_point=recovery_points.get(key, 0),
                is_clean=is_clean and key in recovery_points,
                is_start_known=key in start_offsets,
                high_watermark=high_watermarks.get(key, 0),
            )
            logs = self.future if found.kind is PartitionDirectoryKind.FUTURE else self.partitions
            logs[key] = log
        remove_clean_shutdown(disk, self.path)

    def _checkpoint(self, name: str) -> dict[PartitionKey, int]:
        """Read a checkpoint; a malformed one is ignored, as by Kafka."""
        offsets: dict[PartitionKey, int] = {}
        try:
            offsets = read_checkpoint(self.disk, self.path, name)
        except CorruptRecordError as error:
            _log.warning("Ignoring a checkpoint: %s", error)
        self._noted[name] = set(offsets)
        return offsets

    def recover(self) -> Iterator[PartitionLog]:
        """Open every log after an unclean stop, one after the other; yield each.

        A failure takes the directory offline and ends the iteration.
        """
        if self.clean_broker_epoch is not None:
            return
        for log in self.logs():
            try:
                log.open()
            except StorageError as error:
                self.fail(error)
                return
            yield log

    # Partitions -------------------------------------------------------------------------------

    def logs(self) -> list[PartitionLog]:
        """Return all logs, future ones too; no partition has both here.

        Another thread may call this: a future log that becomes the partition's meanwhile is in the
        list once or twice.
        """
        return [*self.future.values(), *self.partitions.values()]

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        settings: LogSettings,
        *,
        is_future: bool = False,
    ) -> PartitionLog:
        """Create the directory of a partition, with its `partition.metadata`; return its log.

        Raises `StorageError`.
        """
        self._check_online()
        key = (topic, partition)
        logs = self.future if is_future else self.partitions
        if key in logs:
            return logs[key]
        name = directory_name(topic, partition)
        if is_future:
            name = future_name(topic, partition, uuid4().hex)
        log = PartitionLog(self, topic, partition, settings, name=name)
        self._forget_checkpoints(key)
        try:
            self.disk.make_directory(log.path)
            if topic_id is not None:
                write_topic_id(self.disk, log.path, topic_id)
            log.open()
            self.disk.sync_directory(self.path)
        except StorageError as error:
            self.fail(error)
            raise
        logs[key] = log
        return log

    def _forget_checkpoints(self, key: PartitionKey) -> None:
        """Write the checkpoints that name an earlier log of a partition again, without it."""
        self.cleaner_offsets.pop(key, None)
        with self._checkpointing:
            for name, keys in list(self._noted.items()):
                if key in keys:
                    self._writer_of(name)()

    def delete(self, topic: str, partition: int, *, is_future: bool = False) -> None:
        """Rename a partition's directory to `-delete`; `remove_due` removes it later."""
        self.drop(self.take_out(topic, partition, is_future=is_future))

    def drop(self, log: PartitionLog) -> None:
        """Remove the files of a log that was taken out, after its file.delete.delay.ms."""
        self.remove_later([log.path], log.settings.file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int, *, is_future: bool = False) -> str:
        """Rename the directory of a partition that should not be here to `-stray`.

        Kafka keeps these directories for the operator. Returns the new path.
        """
        kind = PartitionDirectoryKind.STRAY
        return self.take_out(topic, partition, kind, is_future=is_future).path

    def take_out(
        self,
        topic: str,
        partition: int,
        kind: PartitionDirectoryKind = PartitionDirectoryKind.DELETED,
        *,
        is_future: bool = False,
    ) -> PartitionLog:
        """Rename a partition's directory to that of another kind; return its log, which is closed.

        Raises `StorageError`.
        """
        self._check_online()
        logs = self.future if is_future else self.partitions
        log = logs[topic, partition]
        try:
            if kind is PartitionDirectoryKind.DELETED:
                log.discard()
            else:
                log.close()
            log.move_to(renamed(topic, partition, kind, uuid4().hex))
            self.disk.sync_directory(self.path)
        except StorageError as error:
            self.fail(error)
            raise
        del logs[topic, partition]
        if not is_future:
            self.cleaner_offsets.pop((topic, partition), None)
        return log

    def put_back(self, log: PartitionLog) -> None:
        """Let a log that was taken out be the partition's log again. Raises `StorageError`."""
        self._check_online()
        self._rename(log)

    def promote(self, topic: str, partition: int) -> PartitionLog:
        """Let the future log become the partition's log of this directory; return it.

        The caller has taken the log of the other directory out.
        """
        self._check_online()
        log = self.future[topic, partition]
        self._rename(log)
        del self.future[topic, partition]
        return log

    def _rename(self, log: PartitionLog) -> None:
        try:
            log.move_to(directory_name(log.topic, log.partition))
            self.disk.sync_directory(self.path)
        except StorageError as error:
            self.fail(error)
            raise
        self.partitions[log.topic, log.partition] = log

    # Checkpoints ------------------------------------------------------------------------------

    def _writer_of(self, checkpoint: str) -> Callable[[], None]:
        return {
            RECOVERY_POINTS: self.write_recovery_points,
            START_OFFSETS: self.write_start_offsets,
            HIGH_WATERMARKS: self.write_high_watermarks,
            CLEANER_OFFSETS: self.write_cleaner_offsets,
        }[checkpoint]

    def write_recovery_points(self) -> None:
        """Write `recovery-point-offset-checkpoint`."""
        with self._checkpointing:
            points = [(log, log.recovery_point) for log in self.logs()]
            self._write_checkpoint(RECOVERY_POINTS, {_key(log): point for log, point in points})
            for log, point in points:
                log.recovery_point_written(point)

    def write_start_offsets(self) -> None:
        """Write `log-start-offset-checkpoint`, of every log whose start is known.

        Kafka writes only the starts inside of the first segment; it takes the larger one of both.
        With all of them the next start needs not look at the names of the segments.
        """
        with self._checkpointing:
            starts = {_key(log): log.known_start_offset for log in self.logs()}
            self._write_checkpoint(
                START_OFFSETS, {key: start for key, start in starts.items() if start is not None}
            )

    def write_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint`."""
        with self._checkpointing:
            self._write_checkpoint(
                HIGH_WATERMARKS, {_key(log): log.high_watermark for log in self.logs()}
            )

    def write_cleaner_offsets(self) -> None:
        """Write `cleaner-offset-checkpoint`: the first dirty offset of compacted logs."""
        with self._checkpointing:
            self._write_checkpoint(CLEANER_OFFSETS, dict(self.cleaner_offsets))

    def cut_cleaner_offset(self, key: PartitionKey, last_base_offset: int) -> None:
        """Follow a truncation: the last segment, which is written to, is dirty.

        Raises `StorageError`.
        """
        if self.cleaner_offsets.get(key, 0) > last_base_offset:
            self.cleaner_offsets[key] = last_base_offset
            self.write_cleaner_offsets()

    def _write_checkpoint(self, name: str, offsets: Mapping[PartitionKey, int]) -> None:
        self._check_online()
        try:
            write_checkpoint(self.disk, self.path, name, offsets)
        except StorageError as error:
            self.fail(error)
            raise
        self._noted[name] = set(offsets)

    # Removal ----------------------------------------------------------------------------------

    def remove_later(self, paths: list[str], delay_ms: int) -> None:
        """Remove files or directories of partitions when `delay_ms` have passed."""
        for path in paths:
            self._order += 1
            heappush(self._doomed, (self.now_ms() + delay_ms, self._order, path))

    @property
    def next_removal_ms(self) -> int | None:
        """The time at which `remove_due` has something to do, None without anything."""
        return self._doomed[0][0] if self._doomed else None

    def remove_due(self, now_ms: int) -> int:
        """Remove what is due; return the number of removed files and directories.

        May run in another thread, one at a time.
        """
        self._check_online()
        removed = 0
        try:
            while self._doomed and self._doomed[0][0] <= now_ms:
                self._remove(self._doomed[0][2])
                heappop(self._doomed)
                removed += 1
        except StorageError as error:
            self.fail(error)
            raise
        return removed

    def _remove(self, path: str) -> None:
        disk = self.disk
        # The partition, and all that is in it, may have been removed meanwhile.
        if not disk.exists(path):
            return
        if path.count("/") == self.path.count("/") + 1:
            for name in disk.list(path):
                disk.remove(f"{path}/{name}")
            disk.remove_directory(path)
        else:
            disk.remove(path)

    # The end ----------------------------------------------------------------------------------

    def offline_error(self) -> StorageError:
        """Return the error of an operation on a directory that is offline."""
        return StorageError(f"log directory {self.path} is offline: {self.failure}")

    def _check_online(self) -> None:
        if self.failure is not None:
            raise self.offline_error()

    def fail(self, error: StorageError) -> None:
        """Take the directory offline; the first error is kept."""
        if self.failure is not None:
            return
        self.failure = error
        _log.error("Log directory %s goes offline: %s", self.path, error)
        for log in self.logs():
            log.abandon()
        self._on_failure(self)

    def close(self, broker_epoch: int = -1) -> None:
        """Close all logs, write the checkpoints, and mark the shutdown as clean.

        A directory that is offline, or fails now, is not marked: its logs are checked at the next
        start.
        """
        if self.failure is not None:
            return
        try:
            for log in self.logs():
                log.close()
            self.write_recovery_points()
            self.write_start_offsets()
            self.write_high_watermarks()
            if self._is_all_known():
                write_clean_shutdown(self.disk, self.path, broker_epoch)
        except StorageError as error:
            self.fail(error)

    def _is_all_known(self) -> bool:
        """Whether every log was opened since an unclean stop."""
        return all(log.is_clean for log in self.logs())


def _key(log: PartitionLog) -> PartitionKey:
    return log.topic, log.partition
