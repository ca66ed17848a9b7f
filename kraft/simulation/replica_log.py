"""Partition logs of a simulated broker, in memory: the ports of ``kraft.broker.replication``.

`ReplicaLog` holds real record batches and loses its unsynced end in a power failure.
`ReplicaStore` holds the logs of one broker by directory; it outlasts the broker's process, as does
the checkpoint of the high watermarks. `replica_brokers` owns the stores.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from random import Random
from typing import NamedTuple

from typing_extensions import Buffer

from kraft._core.bytes.batch import assign_offsets
from kraft._core.log.epoch_cache import EpochCache, EpochEndOffset
from kraft.broker.producer_state import ProducerStates, SequencedBatch
from kraft.broker.replication.messages import OffsetAtTime, PartitionId
from kraft.broker.replication.ports import StoredLog
from kraft.errors import CorruptRecordError, StorageError

_HEADER = struct.Struct(">qiibIhiqqqhii")


class BatchHeader(NamedTuple):
    """The header of a record batch; see ``kraft._core.bytes.batch``."""

    base_offset: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @classmethod
    def of(cls, data: bytes) -> BatchHeader:
        return cls(*_HEADER.unpack_from(data))


class ReplicaBatch(NamedTuple):
    """A batch in a log."""

    header: BatchHeader
    data: bytes


class ReplicaSlice(NamedTuple):
    """Batches that were read."""

    batches: tuple[ReplicaBatch, ...]

    @property
    def size(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def data(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)

    def read(self) -> bytes:
        return self.data


class AppendedBatch(NamedTuple):
    first_offset: int
    last_offset: int
    append_time_ms: int = -1
    is_duplicate: bool = False


def batches_of(data: Buffer) -> list[ReplicaBatch]:
    """Split whole batches."""
    whole = bytes(data)
    found, at = [], 0
    while at < len(whole):
        header = BatchHeader.of(whole[at : at + _HEADER.size])
        end = at + header.length + 12
        found.append(ReplicaBatch(header, whole[at:end]))
        at = end
    return found


class ReplicaLog:
    """The log of one replica; ``on_leader_append`` sees each epoch in which it is appended to."""

    def __init__(self, id: PartitionId, on_leader_append: Callable[[PartitionId, int], None]):
        self.id = id
        self._on_leader_append = on_leader_append
        self.batches: list[ReplicaBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.synced_offset = 0
        self._bases: list[int] = []
        self._epochs = EpochCache()
        self._producers = self._new_producers()

    def _new_producers(self) -> ProducerStates:
        return ProducerStates(f"partition {self.id.partition}", expiration_ms=2**62)

    @property
    def latest_epoch(self) -> int:
        return self._epochs.last_epoch

    # -- appending

    def append_as_leader(self, batch: Buffer, epoch: int) -> AppendedBatch:
        data = bytearray(batch)
        self._on_leader_append(self.id, epoch)
        assign_offsets(data, self.end_offset, epoch)
        header = BatchHeader.of(bytes(data))
        if header.producer_id >= 0:
            duplicate = self._producers.duplicate_of(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.record_count,
            )
            if duplicate is not None:
                return AppendedBatch(
                    duplicate.first_offset, duplicate.last_offset, is_duplicate=True
                )
            entry = self._producers.next_entry(
                SequencedBatch(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
            self._producers.put(entry, header.last_offset + 1)
        self._add(ReplicaBatch(header, bytes(data)))
        return AppendedBatch(header.base_offset, header.last_offset)

    def append_as_follower(self, batches: Buffer) -> None:
        for batch in batches_of(batches):
            if batch.header.base_offset != self.end_offset:
                raise CorruptRecordError(
                    f"a batch begins at {batch.header.base_offset}, the log ends at "
                    f"{self.end_offset}"
                )
            self._producers.replay(batch.data)
            self._add(batch)

    def _add(self, batch: ReplicaBatch) -> None:
        header = batch.header
        if header.epoch > self.latest_epoch:
            self._epochs.assign(header.epoch, header.base_offset)
        self.batches.append(batch)
        self._bases.append(header.base_offset)
        self.end_offset = header.last_offset + 1

    # -- reading

    def read(self, offset: int, max_bytes: int, end: int) -> ReplicaSlice:
        taken: list[ReplicaBatch] = []
        size = 0
        first = max(0, bisect_right(self._bases, offset) - 1)
        for batch in islice(self.batches, first, None):
            size += len(batch.data)
            if batch.header.last_offset >= end or (taken and size > max_bytes):
                break
            taken.append(batch)
        return ReplicaSlice(tuple(taken))

    def batches_between(self, start: int, end: int) -> list[ReplicaBatch]:
        """Return the batches that end after ``start`` and at or before ``end``."""
        first = max(0, bisect_right(self._bases, start) - 1)
        return [
            batch
            for batch in islice(self.batches, first, bisect_right(self._bases, end))
            if start <= batch.header.last_offset < end
        ]

    def end_offset_of(self, epoch: int) -> EpochEndOffset | None:
        return self._epochs.end_offset_for(epoch, self.end_offset)

    def offset_at_time(self, timestamp_ms: int) -> OffsetAtTime | None:
        for batch in self.batches:
            if batch.header.max_timestamp >= timestamp_ms:
                return self._at(batch)
        return None

    def offset_of_largest_time(self) -> OffsetAtTime | None:
        if not self.batches:
            return None
        return self._at(max(self.batches, key=lambda batch: batch.header.max_timestamp))

    def _at(self, batch: ReplicaBatch) -> OffsetAtTime:
        """Return a batch's first record; all records of a simulated batch have one timestamp."""
        header = batch.header
        return OffsetAtTime(
            header.max_timestamp, max(header.base_offset, self.start_offset), header.epoch
        )

    # -- truncating

    def truncate_to(self, offset: int) -> None:
        while self.batches and self.batches[-1].header.last_offset >= offset:
            self.batches.pop()
            self._bases.pop()
        # Within a batch, the whole batch goes, as in Kafka.
        self.end_offset = (
            self.batches[-1].header.last_offset + 1
            if self.batches
            else min(offset, self.start_offset)
        )
        self.start_offset = min(self.start_offset, self.end_offset)
        self.synced_offset = min(self.synced_offset, self.end_offset)
        self._epochs.truncate_from_end(self.end_offset)
        self._producers = self._new_producers()
        for batch in self.batches:
            self._producers.replay(batch.data)

    def restart_at(self, offset: int) -> None:
        self.batches.clear()
        self._bases.clear()
        self._epochs.clear()
        self.start_offset = self.end_offset = self.synced_offset = offset
        self._producers = self._new_producers()

    def raise_start_offset(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        while self.batches and self.batches[0].header.last_offset < offset:
            del self.batches[0], self._bases[0]
        if self.batches:
            self._epochs.truncate_from_start(self.start_offset)
        else:
            self._epochs.clear()
            self.end_offset = max(self.end_offset, offset)

    # -- the disk

    def sync(self) -> None:
        self.synced_offset = self.end_offset

    def lose_tail(self, random: Random) -> None:
        """Lose batches that were not synced, as in a power failure."""
        unsynced = sum(batch.header.last_offset >= self.synced_offset for batch in self.batches)
        lost = random.randint(0, unsynced)
        if lost:
            self.truncate_to(self.batches[-lost].header.base_offset)


class ReplicaStore:
    """The logs of a broker by directory id; ``directories`` are those that are online."""

    def __init__(
        self, random: Random, on_leader_append: Callable[[PartitionId, int], None]
    ) -> None:
        self._random = random
        self._on_leader_append = on_leader_append
        self._logs: dict[bytes, dict[PartitionId, ReplicaLog]] = {}
        self.directories: list[bytes] = []
        self._failed: set[bytes] = set()
        self._checkpoint: dict[PartitionId, int] = {}

    def use(self, directories: Iterable[bytes]) -> None:
        """Use these directories from now on; those that are missing here are gone."""
        self.directories = list(directories)
        self._failed.clear()
        self._logs = {each: self._logs.get(each, {}) for each in self.directories}

    def open(self, partition: PartitionId, topic: str, directory: bytes) -> StoredLog:
        for id, logs in self._logs.items():
            log = logs.get(partition)
            if log is not None:
                return StoredLog(log, id, self._checkpoint.get(partition, 0))
        if directory not in self.directories:
            if self._failed and int.from_bytes(directory) > 2:
                raise StorageError(f"the log of {topic}-{partition.partition} may be offline")
            directory = self._random.choice(self.directories)
        log = self._logs[directory][partition] = ReplicaLog(partition, self._on_leader_append)
        self._checkpoint.pop(partition, None)
        return StoredLog(log, directory, 0)

    def delete(self, partition: PartitionId) -> None:
        for logs in self._logs.values():
            logs.pop(partition, None)
        self._checkpoint.pop(partition, None)

    def future(self, partition: PartitionId, topic: str) -> StoredLog | None:
        """Return None: replicas do not move between directories in these runs."""
        return None

    def delete_future(self, partition: PartitionId, topic: str) -> None:
        """Delete nothing: there is no copy."""

    def promote(self, partition: PartitionId, topic: str) -> StoredLog:
        raise StorageError(f"{topic}-{partition.partition} has no copy")

    def checkpoint(self, high_watermarks: Mapping[PartitionId, int]) -> None:
        self._checkpoint.update(high_watermarks)

    def fail(self, directory: bytes) -> None:
        """Lose a directory."""
        self.directories.remove(directory)
        del self._logs[directory]
        self._failed.add(directory)

    def wipe(self) -> None:
        """Lose all directories; `use` begins with others."""
        self._logs.clear()
        self.directories.clear()

    @property
    def logs(self) -> dict[PartitionId, ReplicaLog]:
        return {id: log for logs in self._logs.values() for id, log in logs.items()}

    def sync_all(self) -> None:
        for log in self.logs.values():
            log.sync()

    def lose_power(self) -> None:
        for log in self.logs.values():
            log.lose_tail(self._random)
