"""Ports of the replication: the log of a partition, the store of logs, settings of topics.

``kraft.broker.log`` implements `ReplicatedLog` (``partition_log``) and `LogStore` (``log_store``)
on disk, ``kraft.simulation`` in virtual time. Offsets are log offsets, ends exclusive. A high
watermark belongs to the replication; the store only keeps the last checkpointed one.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from typing_extensions import Buffer

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.replication.messages import OffsetAtTime, PartitionId


class DataSlice(Protocol):
    """Whole batches of one segment's file, not copied."""

    @property
    def size(self) -> int:
        """Bytes."""

    def read(self) -> Buffer:
        """Return the bytes; may wait for the disk, and may run in another thread."""


class AppendOutcome(Protocol):
    """The offsets of an appended batch; of a duplicate, those of the batch that is in the log."""

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def append_time_ms(self) -> int:
        """The time of the records under LogAppendTime, else -1."""

    @property
    def is_duplicate(self) -> bool:
        """Whether the log had the batch already, and is unchanged."""


class ReplicatedLog(Protocol):
    """The log of one replica."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 without one."""

    def append_as_leader(self, batch: Buffer, epoch: int) -> AppendOutcome:
        """Append a validated batch at the end, in a leader epoch.

        A batch that an idempotent producer sends again is not appended. Raises a `KraftError`, such
        as `OutOfOrderSequenceError`, for a batch that may not be appended.
        """

    def append_as_follower(self, batches: Buffer) -> None:
        """Append batches of the leader, with their offsets and epochs."""

    def read(self, offset: int, max_bytes: int, end: int) -> DataSlice:
        """Return batches from the one with ``offset`` on, none beyond ``end``; at least one."""

    def end_offset_of(self, epoch: int) -> EpochEndOffset | None:
        """Return the largest epoch at or below ``epoch`` and the offset at which the next begins.

        None if ``epoch`` is above `latest_epoch`, or the log has no epochs.
        """

    def truncate_to(self, offset: int) -> None:
        """Drop the records at and after ``offset``."""

    def restart_at(self, offset: int) -> None:
        """Drop all records; the log begins again at ``offset``."""

    def raise_start_offset(self, offset: int) -> None:
        """Hide the records before ``offset``; retention removes them."""

    def offset_at_time(self, timestamp_ms: int) -> OffsetAtTime | None:
        """Return the first record whose timestamp is at least ``timestamp_ms``."""

    def offset_of_largest_time(self) -> OffsetAtTime | None:
        """Return the first record with the largest timestamp (KIP-734)."""


class StoredLog(NamedTuple):
    """An open log, its directory's id and its checkpointed high watermark (0 if unknown)."""

    log: ReplicatedLog
    directory: bytes
    high_watermark: int


class LogStore(Protocol):
    """The logs of a broker, in its directories."""

    def open(self, partition: PartitionId, topic: str, directory: bytes) -> StoredLog:
        """Return the log of a partition; create it if no online directory has it.

        ``directory`` is the assigned one; the store chooses if it is unassigned or unknown. Raises
        `StorageError` if the log may be in an offline directory.
        """

    def delete(self, partition: PartitionId) -> None:
        """Delete the log of a partition, if there is one, and its copy."""

    def future(self, partition: PartitionId, topic: str) -> StoredLog | None:
        """Return the copy that will replace a partition's log, None without one."""

    def delete_future(self, partition: PartitionId, topic: str) -> None:
        """Delete that copy, if there is one."""

    def promote(self, partition: PartitionId, topic: str) -> StoredLog:
        """Let the copy replace the partition's log; return it.

        Raises `StorageError`; if the directory of the copy has failed, the log stays as it was.
        """


class TopicSettings(Protocol):
    """Effective settings of topics, by name."""

    def min_insync_replicas(self, topic: str) -> int: ...

    def is_deleting(self, topic: str) -> bool:
        """Return whether cleanup.policy contains ``delete``."""
