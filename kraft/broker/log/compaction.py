"""One round of compaction of one log, in steps of bounded I/O.

A round reads the dirty segments and notes the latest offset of each key (`KeyOffsets`), then writes
the segments up to there again without the records that later ones replace, run after run of
segments, and lets each new segment take the place of its run.

The steps read and write files and may run in another thread, except those before which
`changes_log` is true: they change the log, as appends do. The log may be appended to, cut and
shortened by retention between the steps; a round whose segments are gone is given up.

Invariants:
- The log's files change only when a new segment is complete and durable.
- Segments are replaced only below a recovery point that is on disk: see ``_core.log.data_log``.

Rules: ``storage/.../log/Cleaner.java``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kraft._core.bytes.batch import scan
from kraft._core.bytes.batch_filter import filter_batches
from kraft._core.bytes.key_offsets import KeyOffsets
from kraft._core.log.cleaned_segment import CleanedSegment
from kraft._core.log.data_log import SegmentFacts
from kraft._core.log.partition_directory import TRANSACTION_INDEX, segment_file
from kraft.broker.log.batch_retention import (
    AbortedTransaction,
    ActiveProducers,
    SeenTransactions,
    decode_transactions,
    encode_transactions,
    retention_of,
)
from kraft.broker.log.checkpoint_files import read_file
from kraft.broker.log.cleanable import CleanableRange, grouped
from kraft.broker.log.partition_log import PartitionLog
from kraft.errors import OffsetOutOfRangeError, StorageError

#: Bytes that one step reads.
DEFAULT_STEP_BYTES = 1 << 20


class CompactionRound:
    """A round; after the last step ``is_complete`` says whether all segments were replaced."""

    def __init__(
        self,
        log: PartitionLog,
        cleanable: CleanableRange,
        offsets: KeyOffsets,
        now_ms: int,
        step_bytes: int = DEFAULT_STEP_BYTES,
    ) -> None:
        """Begin a round at ``now_ms``, the time for delete horizons; clears ``offsets``."""
        self.log = log
        self.changes_log = False
        self.is_complete = False
        #: The first dirty offset after the round.
        self.end_offset = cleanable.first_dirty_offset
        self.bytes_read = self.bytes_written = 0
        self._core = log.core
        self._cuts = self._core.cuts
        self._settings = log.settings
        self._range = cleanable
        self._offsets = offsets
        self._now_ms = now_ms
        self._step_bytes = step_bytes
        self._producers = ActiveProducers(log.producers.producers.values())
        self._transactions: dict[int, list[AbortedTransaction]] = {}
        offsets.clear()
        self._steps = self._run()

    def step(self) -> bool:
        """Do the next piece of work; return whether more is left.

        Raises `StorageError`, which takes the directory offline, and `CorruptRecordError`.
        """
        try:
            next(self._steps)
        except StopIteration:
            return False
        except OffsetOutOfRangeError:
            # Retention or a truncation removed a segment.
            return False
        except StorageError as error:
            if not self.log.uses(self._core):
                # It was closed, to be deleted for example.
                return False
            self.log.directory.fail(error)
            raise
        return True

    def abandon(self) -> None:
        """End the round early, and remove its unfinished segment."""
        self._steps.close()

    def _run(self) -> Generator[None, None, None]:
        yield from self._map_keys()
        end = self._offsets.latest_offset + 1
        seen = SeenTransactions()
        segments = [one for one in self._segments() if one.base_offset < end]
        for group in grouped(segments, self._settings, self._range.end_offset):
            cleaned = CleanedSegment(
                self._core.disk,
                self._core.directory,
                group[0].base_offset,
                self._settings.index_interval_bytes,
            )
            try:
                yield from self._write(group, cleaned, seen)
                self.changes_log = True
                yield
                self.changes_log = False
                bases = [facts.base_offset for facts in group]
                if not self.log.replace_segments(self._core, bases, cleaned, self._cuts):
                    cleaned.discard()
                    return
            except BaseException:
                cleaned.discard()
                raise
        # The caller writes the checkpoint, in the thread that changes the log.
        self.changes_log = True
        yield
        if self._core.cuts == self._cuts and self.log.uses(self._core):
            self.end_offset = end
            self.is_complete = True

    def _segments(self) -> Iterator[SegmentFacts]:
        """Yield the segments before the round's end."""
        for index, base in enumerate(self._core.base_offsets):
            if base >= self._range.end_offset:
                return
            try:
                facts = self._core.segment_facts(index)
            except IndexError:
                facts = None
            if facts is None or facts.base_offset != base:
                raise OffsetOutOfRangeError(f"the segment that begins with {base} is gone")
            yield facts

    def _batches(self, facts: SegmentFacts) -> Iterator[memoryview]:
        position = 0
        while True:
            batches = self._core.batches_at(facts.base_offset, position, self._step_bytes)
            if not len(batches):
                return
            position += len(batches)
            self.bytes_read += len(batches)
            yield batches

    def _map_keys(self) -> Iterator[None]:
        """Note the keys of the dirty segments, as many as fit."""
        first, end = self._range.first_dirty_offset, self._range.end_offset
        seen = SeenTransactions()
        seen.add_aborted(self._aborted(first, end))
        for facts in self._segments():
            if facts.next_offset <= first:
                continue
            for batches in self._batches(facts):
                skipped = seen.aborted_of(scan(batches, verify_crc=False), batches)
                if self._offsets.add(batches, first, skipped=skipped):
                    return
                yield
            self._offsets.reach(facts.next_offset - 1)

    def _write(
        self, group: list[SegmentFacts], cleaned: CleanedSegment, seen: SeenTransactions
    ) -> Iterator[None]:
        """Write what is left of a run of segments to the new one, and make it durable."""
        seen.kept.clear()
        for facts in group:
            seen.add_aborted(self._aborted(facts.base_offset, facts.next_offset))
            for batches in self._batches(facts):
                codes = retention_of(
                    scan(batches, verify_crc=False),
                    batches,
                    seen,
                    self._producers,
                    self._range.end_offset,
                    self._now_ms,
                )
                left = filter_batches(
                    batches,
                    self._offsets,
                    self._now_ms,
                    self._settings.delete_retention_ms,
                    codes,
                ).data
                if len(left):
                    cleaned.add(left)
                    self.bytes_written += len(left)
                yield
        cleaned.complete(encode_transactions(seen.kept))
        yield

    def _aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records between two offsets."""
        found: list[AbortedTransaction] = []
        bases = self._core.base_offsets
        for index, base in enumerate(bases):
            if index + 1 < len(bases) and bases[index + 1] <= start:
                continue
            for one in self._index_of(base):
                if one.last_offset >= start and one.first_offset < end:
                    found.append(one)
                if one.last_stable_offset >= end:
                    return found
        return found

    def _index_of(self, base_offset: int) -> list[AbortedTransaction]:
        known = self._transactions.get(base_offset)
        if known is None:
            disk = self._core.disk
            path = segment_file(self._core.directory, base_offset, TRANSACTION_INDEX)
            known = decode_transactions(read_file(disk, path)) if disk.exists(path) else []
            self._transactions[base_offset] = known
        return known
