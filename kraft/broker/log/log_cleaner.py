"""The compaction of a broker's logs: one round after the other, always of the dirtiest log.

The broker's event loop calls `step` while it returns true, and again after
log.cleaner.backoff.ms. A step before which `changes_log` is false may run in another thread: it
reads and writes about ``step_bytes``. Kafka's log.cleaner.io.max.bytes.per.second has no
counterpart: the caller bounds I/O by the pace of the steps. There is one cleaner, as with Kafka's
default of log.cleaner.threads.

A log that is being moved to another directory waits: if records went from it while others were
copied, the copy could have a value of a key whose deletion was not copied. After the move the whole
log counts as dirty.

The first dirty offset of each log is in `cleaner-offset-checkpoint`. A log with a damaged batch is
not tried again until the next start.

Rules: ``storage/.../log/LogCleaner.java``, ``LogCleanerManager.java``.
"""

from __future__ import annotations

from logging import getLogger
from typing import NamedTuple

from kraft._core.bytes.key_offsets import KeyOffsets
from kraft.broker.log.checkpoint_files import PartitionKey
from kraft.broker.log.cleanable import CleanableRange, cleanable_range
from kraft.broker.log.compaction import DEFAULT_STEP_BYTES, CompactionRound
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.partition_log import PartitionLog
from kraft.errors import CorruptRecordError, StorageError

#: log.cleaner.dedupe.buffer.size: 5 million keys.
DEFAULT_MEMORY = 128 << 20

_log = getLogger(__name__)


class LogToClean(NamedTuple):
    """A log and the part of it that a round would clean."""

    log: PartitionLog
    cleanable: CleanableRange


class LogCleaner:
    """Cleans the compacted logs of a `LogManager`; ``memory`` bytes hold the keys of a round."""

    def __init__(
        self,
        manager: LogManager,
        *,
        memory: int = DEFAULT_MEMORY,
        step_bytes: int = DEFAULT_STEP_BYTES,
    ) -> None:
        self._manager = manager
        #: The bytes for the keys of the next round.
        self.memory = memory
        self._step_bytes = step_bytes
        self._offsets: KeyOffsets | None = None
        self._offsets_memory = 0
        #: The round that is under way.
        self.current: CompactionRound | None = None
        #: Logs with damaged batches.
        self.uncleanable: set[PartitionKey] = set()

    @property
    def changes_log(self) -> bool:
        """Whether the next step must run in the thread that appends to logs."""
        return self.current is None or self.current.changes_log

    def step(self, now_ms: int) -> bool:
        """Go on with the current round, or begin the next; return False if no log is due."""
        current = self.current
        if current is None:
            return self._begin(now_ms)
        try:
            if current.step():
                return True
        except StorageError as error:
            _log.error("Compaction of %s: %s", current.log.path, error)
        except CorruptRecordError as error:
            _log.error("%s cannot be compacted: %s", current.log.path, error)
            self.uncleanable.add((current.log.topic, current.log.partition))
        self.current = None
        if current.is_complete:
            self._set_checkpoint(current.log, current.end_offset)
        return True

    def abandon(self) -> None:
        """Give up the current round, before a shutdown."""
        if self.current is not None:
            self.current.abandon()
            self.current = None

    def _begin(self, now_ms: int) -> bool:
        chosen = self.choose(now_ms)
        if chosen is None:
            return False
        if self._offsets is None or self._offsets_memory != self.memory:
            self._offsets, self._offsets_memory = KeyOffsets(self.memory), self.memory
        try:
            self.current = CompactionRound(*chosen, self._offsets, now_ms, self._step_bytes)
        except StorageError as error:
            _log.error("Compaction of %s: %s", chosen.log.path, error)
        return True

    def choose(self, now_ms: int) -> LogToClean | None:
        """Return the log with the largest part of dirty bytes among those that are due, or None."""
        best: LogToClean | None = None
        for log in self._manager.logs():
            key = (log.topic, log.partition)
            if (
                not log.settings.compacts
                or key in self.uncleanable
                or self._manager.future(*key) is not None
            ):
                continue
            try:
                found = self._range_of(log, key, now_ms)
            except StorageError as error:
                _log.error("Compaction of %s: %s", log.path, error)
                continue
            if found.is_due(log.settings) and (
                best is None or found.dirty_ratio > best.cleanable.dirty_ratio
            ):
                best = LogToClean(log, found)
        return best

    def _range_of(self, log: PartitionLog, key: PartitionKey, now_ms: int) -> CleanableRange:
        # After the recovery point a load takes a gap after a segment for the log's end.
        stable = min(log.high_watermark, log.checkpointed_recovery_point)
        undecided = log.producers.first_undecided_offset
        if undecided is not None:
            stable = min(stable, undecided)
        checkpoint = log.directory.cleaner_offsets.get(key)
        found = cleanable_range(log.core, log.settings, checkpoint, stable, now_ms)
        if found.is_reset:
            self._set_checkpoint(log, found.first_dirty_offset)
        return found

    def _set_checkpoint(self, log: PartitionLog, offset: int) -> None:
        directory = log.directory
        if directory.partitions.get((log.topic, log.partition)) is log:
            directory.cleaner_offsets[log.topic, log.partition] = offset
            try:
                directory.write_cleaner_offsets()
            except StorageError as error:
                _log.error("Checkpoint of %s: %s", directory.path, error)
