"""All logs of a broker, over its log directories, and their upkeep.

`LogManager` finds and creates logs, and does the periodic work of Kafka's LogManager, a call for
each kind. The broker's event loop calls them by its timers; those that may wait for the disk say so
and may run in another thread, as long as no two calls for one directory run at once.

A directory that fails goes offline as a whole; the others serve on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from logging import getLogger

from kraft.broker.log.checkpoint_files import PartitionKey
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from kraft.errors import StorageError
from kraft.records import Uuid

_log = getLogger(__name__)


class LogManager:
    """The log directories of a broker."""

    def __init__(
        self, directories: Sequence[LogDirectory], settings_of: Callable[[str], LogSettings]
    ) -> None:
        """Manage the directories, at least one; ``settings_of`` returns a topic's settings."""
        self.directories = tuple(directories)
        self._settings_of = settings_of
        #: Further logs of partitions that are in several directories.
        self._copies: dict[PartitionKey, list[PartitionLog]] = {}

    def load(self) -> None:
        """Load every directory; raise `StorageError` if none is online.

        A partition that is in several directories is served from the first of them until
        `choose_copy`.
        """
        for directory in self.directories:
            directory.load(self._settings_of)
        if not self.online:
            raise StorageError("no log directory is online")
        seen: dict[PartitionKey, PartitionLog] = {}
        for directory in self.online:
            for key, log in list(directory.partitions.items()):
                first = seen.setdefault(key, log)
                if first is not log:
                    _log.warning("%s-%d is in %s and in %s", *key, first.path, log.path)
                    self._copies.setdefault(key, []).append(log)
                    del directory.partitions[key]

    def choose_copy(self, topic: str, partition: int, directory: bytes) -> None:
        """Keep one log of a partition that is in several directories; rename others to `-stray`.

        It is the one in the directory with the id ``directory``, to which the metadata assign the
        replica, else the one that ends last. A directory that fails while a log is created in it
        keeps a part of that log, and the broker creates another one elsewhere. Kafka's broker does
        not start with two logs of a partition.
        """
        key = (topic, partition)
        copies = self._copies.pop(key, None)
        if copies is None:
            return
        logs = [
            log
            for log in (self.get(topic, partition), *copies)
            if log is not None and log.directory.failure is None
        ]
        if not logs:
            return
        chosen = max(logs, key=lambda log: (log.directory.id == directory, _end_of(log)))
        for log in logs:
            if log is not chosen:
                log.directory.partitions[key] = log
                try:
                    aside = log.directory.set_aside(topic, partition)
                except StorageError:
                    # Offline now; `get` must not find it there.
                    del log.directory.partitions[key]
                else:
                    _log.warning("%s-%d is served from %s: %s is stray", *key, chosen.path, aside)
        chosen.directory.partitions[key] = chosen

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that have not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def failed(self) -> list[LogDirectory]:
        """The directories that have failed."""
        return [directory for directory in self.directories if directory.failure is not None]

    @property
    def choices(self) -> list[LogDirectory]:
        """The online directories for new logs: those that are not cordoned, if there are any."""
        online = self.online
        return [directory for directory in online if not directory.is_cordoned] or online

    @property
    def clean_broker_epoch(self) -> int:
        """The broker epoch of the last shutdown if it was clean in all directories, else -1."""
        epochs = {directory.clean_broker_epoch for directory in self.directories}
        (epoch,) = epochs if len(epochs) == 1 else (None,)
        return -1 if epoch is None else epoch

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition, None without one in an online directory."""
        for directory in self.directories:
            log = directory.partitions.get((topic, partition))
            if log is not None:
                return log if directory.failure is None else None
        return None

    def future(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the copy that will replace a partition's log, None without one that is online."""
        for directory in self.online:
            log = directory.future.get((topic, partition))
            if log is not None:
                return log
        return None

    def is_offline(self, topic: str, partition: int) -> bool:
        """Return whether a directory that has failed since the start has the partition's log."""
        return any(
            directory.failure is not None and (topic, partition) in directory.partitions
            for directory in self.directories
        )

    def logs(self) -> Iterator[PartitionLog]:
        """Yield the logs of all online directories; partitions may come and go meanwhile."""
        for directory in self.online:
            yield from list(directory.partitions.values())

    def future_logs(self) -> list[PartitionLog]:
        """Return the logs of online directories that will replace others."""
        return [log for directory in self.online for log in list(directory.future.values())]

    def with_future_logs(self) -> Iterator[PartitionLog]:
        """Yield the logs as `logs` does, with those that will replace others."""
        for directory in self.online:
            yield from directory.logs()

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        directory: LogDirectory | None = None,
    ) -> PartitionLog:
        """Return the log of a partition; create it if there is none.

        It is created in ``directory``, else in the one of `choices` with the fewest partitions, as
        by Kafka. Raises `StorageError`.
        """
        log = self.get(topic, partition)
        if log is not None:
            return log
        if directory is None:
            if not self.online:
                raise StorageError("no log directory is online")
            directory = min(self.choices, key=lambda one: len(one.partitions))
        return directory.create(topic, partition, topic_id, self._settings_of(topic))

    def create_future(
        self, topic: str, partition: int, topic_id: Uuid | None, directory: LogDirectory
    ) -> PartitionLog:
        """Return the future log of a partition in a directory; create it. Raises `StorageError`."""
        settings = self._settings_of(topic)
        return directory.create(topic, partition, topic_id, settings, is_future=True)

    def delete(self, topic: str, partition: int) -> None:
        """Delete the log of a partition, if there is one. Raises `StorageError`."""
        log = self.get(topic, partition)
        if log is not None:
            log.directory.delete(topic, partition)

    def delete_future(self, topic: str, partition: int) -> None:
        """Delete the future log of a partition, if there is one. Raises `StorageError`."""
        log = self.future(topic, partition)
        if log is not None:
            log.directory.delete(topic, partition, is_future=True)

    def set_aside(self, topic: str, partition: int, *, is_future: bool = False) -> None:
        """Rename the directory of a partition that this broker should not have to `-stray`."""
        log = self.future(topic, partition) if is_future else self.get(topic, partition)
        if log is not None:
            _log.warning("%s-%d is stray: now %s", topic, partition, log.path)
            log.directory.set_aside(topic, partition, is_future=is_future)

    def promote(self, topic: str, partition: int) -> PartitionLog:
        """Let the future log of a partition replace its log, which is deleted; return it.

        The order decides what a crash leaves: only the future log, or both; never two logs of which
        none is known to be the newer one. If the directory of the old log fails now, the new one
        replaces it nevertheless; if the other one fails, the old log stays. Raises `StorageError`.
        """
        log, old = self.future(topic, partition), self.get(topic, partition)
        if log is None:
            raise StorageError(f"{topic}-{partition} has no future log that is online")
        taken = None
        if old is not None:
            try:
                taken = old.directory.take_out(topic, partition)
            except StorageError as error:
                _log.error("%s stays, it is replaced by %s: %s", old.path, log.path, error)
        try:
            log.directory.promote(topic, partition)
        except StorageError:
            if taken is not None:
                taken.directory.put_back(taken)
            raise
        if taken is not None:
            taken.directory.drop(taken)
        for directory in self.failed:
            # `get` must not find the old log there.
            directory.partitions.pop((topic, partition), None)
        return log

    def change_settings(self, topic: str) -> None:
        """Give the logs of a topic its changed settings."""
        settings = self._settings_of(topic)
        for log in self.with_future_logs():
            if log.topic == topic:
                log.change_settings(settings)

    # Upkeep -----------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> Iterator[int]:
        """Apply retention to one log after the other; yield the number of removed segments of each.

        The caller may do other work between two logs (log.retention.check.interval.ms). As in
        Kafka compacted logs lose only the segments before their start.
        """
        for log in self.logs():
            try:
                yield log.apply_retention(now_ms)
            except StorageError as error:
                _log.error("Retention of %s: %s", log.path, error)

    def flush_due(self, now_ms: int) -> int:
        """Flush the logs whose flush.ms has passed; return their number. Waits for the disk.

        Not future ones: a sync in this thread would not find their files while `promote` renames
        them.
        """
        count = 0
        for log in self.logs():
            if log.needs_flush and now_ms - log.last_flush_ms >= log.settings.flush_ms:
                count += self._flushed(log, log.flush)
        return count

    def flush_rolled(self) -> int:
        """Flush the rolled segments of logs; return the number of logs. Waits for the disk.

        Not those of future ones, as with `flush_due`.
        """
        return sum(
            self._flushed(log, log.flush_rolled)
            for log in self.logs()
            if log.has_unflushed_segments
        )

    def _flushed(self, log: PartitionLog, flush: Callable[[], None]) -> bool:
        try:
            flush()
        except StorageError as error:
            _log.error("Flush of %s: %s", log.path, error)
            return False
        return True

    def write_checkpoints(self) -> None:
        """Write the checkpoints of all online directories. Waits for the disk."""
        for directory in self.online:
            try:
                directory.write_recovery_points()
                directory.write_start_offsets()
                directory.write_high_watermarks()
            except StorageError as error:
                _log.error("Checkpoints of %s: %s", directory.path, error)

    def remove_due(self, now_ms: int) -> int:
        """Remove deleted files that are due; return their number. Waits for the disk."""
        count = 0
        for directory in self.online:
            try:
                count += directory.remove_due(now_ms)
            except StorageError as error:
                _log.error("Removal in %s: %s", directory.path, error)
        return count

    def close(self, broker_epoch: int = -1) -> None:
        """Close every log, and mark the directories; see `LogDirectory.close`."""
        for directory in self.directories:
            directory.close(broker_epoch)


def _end_of(log: PartitionLog) -> int:
    """Return the end offset of a log, -1 if its directory fails."""
    try:
        return log.end_offset
    except StorageError:
        return -1
