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

    def load(self) -> None:
        """Load every directory; raise `StorageError` if none is online.

        A partition that is in two directories is served from the first of them.
        """
        for directory in self.directories:
            directory.load(self._settings_of)
        if not self.online:
            raise StorageError("no log directory is online")
        seen: dict[PartitionKey, LogDirectory] = {}
        for directory in self.online:
            for key in list(directory.partitions):
                other = seen.setdefault(key, directory)
                if other is not directory:
                    _log.error(
                        "Ignoring %s-%d in %s: it is in %s too", *key, directory.path, other.path
                    )
                    del directory.partitions[key]

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that have not failed."""
        return [directory for directory in self.directories if directory.failure is None]

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

    def logs(self) -> Iterator[PartitionLog]:
        """Yield the logs of all online directories; partitions may come and go meanwhile."""
        for directory in self.online:
            yield from list(directory.partitions.values())

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        directory: LogDirectory | None = None,
    ) -> PartitionLog:
        """Return the log of a partition; create it if there is none.

        It is created in ``directory``, else in the online one with the fewest partitions, as by
        Kafka. Raises `StorageError`.
        """
        log = self.get(topic, partition)
        if log is not None:
            return log
        if directory is None:
            if not self.online:
                raise StorageError("no log directory is online")
            directory = min(self.online, key=lambda one: len(one.partitions))
        return directory.create(topic, partition, topic_id, self._settings_of(topic))

    def delete(self, topic: str, partition: int) -> None:
        """Delete the log of a partition, if there is one. Raises `StorageError`."""
        log = self.get(topic, partition)
        if log is not None:
            log.directory.delete(topic, partition)

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the directory of a partition that this broker should not have to `-stray`."""
        log = self.get(topic, partition)
        if log is not None:
            _log.warning("%s-%d is stray: now %s", topic, partition, log.path)
            log.directory.set_aside(topic, partition)

    def change_settings(self, topic: str) -> None:
        """Give the logs of a topic its changed settings."""
        settings = self._settings_of(topic)
        for log in self.logs():
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
        """Flush the logs whose flush.ms has passed; return their number. Waits for the disk."""
        count = 0
        for log in self.logs():
            if log.needs_flush and now_ms - log.last_flush_ms >= log.settings.flush_ms:
                count += self._flushed(log, log.flush)
        return count

    def flush_rolled(self) -> int:
        """Flush the rolled segments of all logs; return the number of logs. Waits for the disk."""
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
