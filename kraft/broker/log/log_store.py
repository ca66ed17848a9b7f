"""The logs of a broker as its replication sees them: by topic id, with their directories' ids.

`PartitionLogStore` is the `LogStore` of ``kraft.broker.replication.ports`` over a `LogManager`.

Invariants:
- A log is opened for the topic whose id is in its `partition.metadata`. The log of an earlier topic
  of the same name is renamed to `-stray`, as Kafka does with logs that the metadata does not know.
- No log is created while an offline directory may have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger

from kraft._core.decide.placement import UNASSIGNED_DIRECTORY
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.ports import StoredLog
from kraft.errors import StorageError
from kraft.records import Uuid

_log = getLogger(__name__)


class PartitionLogStore:
    """The logs in the directories of a loaded `LogManager`."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._opened: dict[PartitionId, PartitionLog] = {}

    def open(self, partition: PartitionId, topic: str, directory: bytes) -> StoredLog:
        """Return the log of a partition; create it if no online directory has it.

        ``directory`` is the id of the assigned directory. The store chooses one if it is unassigned
        or unknown. Raises `StorageError` if the log may be in an offline directory, or its own
        fails.
        """
        topic_id = Uuid(partition.topic_id)
        log = self._manager.get(topic, partition.partition)
        if log is not None:
            known = log.topic_id
            if known is None:
                log.set_topic_id(topic_id)
            elif known != topic_id:
                self._manager.set_aside(topic, partition.partition)
                log = None
        if log is None:
            log = self._manager.create(
                topic, partition.partition, topic_id, self._directory_for(directory)
            )
        self._opened[partition] = log
        return StoredLog(log, log.directory.id, log.high_watermark)

    def _directory_for(self, id: bytes) -> LogDirectory | None:
        """Return the directory of a new log; None: the manager chooses."""
        online = self._manager.online
        for directory in online:
            if directory.id == id:
                return directory
        if id != UNASSIGNED_DIRECTORY and len(online) < len(self._manager.directories):
            raise StorageError("the log may be in a log directory that is offline")
        return None

    def delete(self, partition: PartitionId) -> None:
        """Delete the log of a partition, if there is one; a failure takes its directory offline."""
        log = self._opened.pop(partition, None)
        if log is None or self._manager.get(log.topic, log.partition) is not log:
            return
        try:
            self._manager.delete(log.topic, log.partition)
        except StorageError as error:
            _log.error("Deletion of %s: %s", log.path, error)

    def set_high_watermarks(self, high_watermarks: Mapping[PartitionId, int]) -> None:
        """Note the high watermarks of the replication, for retention and the next checkpoint."""
        for partition, high_watermark in high_watermarks.items():
            log = self._opened.get(partition)
            if log is not None:
                log.high_watermark = high_watermark
