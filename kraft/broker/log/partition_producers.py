"""The idempotent producers of one partition's log, and their snapshot files beside its segments.

The state is built when it is first needed: from the latest usable snapshot, and from the batches of
the log after it.

Invariants:
- The state reflects exactly the log, after each call.
- Snapshot files never reflect more than the log: a truncation removes later ones before the next
  append.
- The snapshot of a rolled segment is encoded at the roll and written by the next flush, so that a
  roll does not wait for the disk. Flushes of two threads write one after the other.

Used by ``partition_log``. Rules: ``ProducerStateManager.java`` and ``UnifiedLog.java`` of Kafka.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kraft._core.log.data_log import DataLog
from kraft._core.log.disk import write_atomically
from kraft.broker.producer_snapshots import ProducerSnapshots, encode_snapshot
from kraft.broker.producer_state import ProducerStates

if TYPE_CHECKING:
    from kraft.broker.log.log_directory import LogDirectory

_REPLAY_BYTES = 1 << 20


class PartitionProducers:
    """The producers of an opened log; ``partition`` names it in messages."""

    __slots__ = ("_lock", "_log", "_owner", "_partition", "_states", "_to_write")

    def __init__(self, owner: LogDirectory, log: DataLog, partition: str) -> None:
        self._owner = owner
        self._log = log
        self._partition = partition
        self._states: ProducerStates | None = None
        #: (offset, content) of snapshots of rolled segments, which wait for `write_waiting`.
        self._to_write: list[tuple[int, bytes]] = []
        #: Of the list, and of the files while they are written.
        self._lock = threading.Lock()

    @property
    def states(self) -> ProducerStates:
        """The producers up to the log's end. Raises `StorageError`, `CorruptRecordError`."""
        if self._states is None:
            states = ProducerStates(
                self._partition, expiration_ms=self._owner.producer_expiration_ms
            )
            self.write_waiting()
            log = self._log
            self._snapshots.load(
                states, log.log_start_offset, log.log_end_offset, now_ms=self._owner.now_ms()
            )
            self._replay(states)
            self._states = states
        return self._states

    @property
    def loaded(self) -> ProducerStates | None:
        """The state if it was needed since the log was opened or cut, else None."""
        return self._states

    @property
    def are_waiting(self) -> bool:
        """Whether snapshots wait for `write_waiting`."""
        return bool(self._to_write)

    @property
    def _snapshots(self) -> ProducerSnapshots:
        return ProducerSnapshots(self._owner.disk, self._log.directory)

    def rolled(self, base_offset: int) -> None:
        """Keep a snapshot for the segment that begins at ``base_offset``, the log's end."""
        states = self.states
        # A follower's append may have batches before the new segment.
        self._replay(states)
        self._to_write.append((base_offset, encode_snapshot(states.producers.values())))

    def _replay(self, states: ProducerStates) -> None:
        """Bring the state to the log's end."""
        log = self._log
        while states.end_offset < log.log_end_offset:
            batches = log.fetch(states.end_offset, _REPLAY_BYTES)
            if not len(batches):
                break
            states.replay(batches)
        states.end_offset = log.log_end_offset

    def write_waiting(self) -> None:
        """Write the snapshots of rolled segments durably; may run in another thread."""
        with self._lock:
            while self._to_write:
                offset, content = self._to_write[0]
                write_atomically(self._owner.disk, self._snapshots.path(offset), content)
                self._to_write.pop(0)

    def write_at_end(self) -> None:
        """Write a snapshot at the log's end, unless there is one."""
        self.write_waiting()
        end = self._log.log_end_offset
        if end > 0 and self._snapshots.offsets()[-1:] != [end]:
            content = encode_snapshot(self.states.producers.values())
            write_atomically(self._owner.disk, self._snapshots.path(end), content)

    def forget(self) -> None:
        """Build the state again when it is next needed."""
        self._states = None

    def cut(self, end_offset: int) -> None:
        """Follow a truncation: remove snapshots after ``end_offset``, and forget the state."""
        self._states = None
        disk, snapshots = self._owner.disk, self._snapshots
        with self._lock:
            self._to_write.clear()
            stray = [offset for offset in snapshots.offsets() if offset > end_offset]
            for offset in stray:
                disk.remove(snapshots.path(offset))
            if stray:
                disk.sync_directory(self._log.directory)

    def drop_waiting_before(self, offset: int) -> None:
        """Write no snapshot of a segment before ``offset``: it was removed."""
        with self._lock:
            self._to_write = [one for one in self._to_write if one[0] >= offset]
