"""The log store of a broker: also creates many logs ahead, and sets stray logs aside.

`DirectoryLogStore` is the store of ``kraft.broker.log`` with the two kinds of work on the disk that
``metadata_steps`` does in a thread. Rules: Kafka's ``LogManager.isStrayKraftReplica`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.replication.local_changes import LocalPartition
from kraft.broker.replication.partition import HostedPartition
from kraft.errors import StorageError


class DirectoryLogStore(PartitionLogStore):
    """The logs in the directories of a loaded `LogManager`."""

    def __init__(self, logs: LogManager) -> None:
        super().__init__(logs)
        self.logs = logs

    def create_missing(self, partitions: Iterable[LocalPartition]) -> None:
        """Create the logs of partitions that have none: each takes some writes to the device.

        May run in another thread, while no other call of the store runs. A failure is not raised:
        `open` meets it again.
        """
        for local in partitions:
            with suppress(StorageError):
                self.open(local.id, local.topic, local.assignment.directory)

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
