"""``AppliedBatches``: the record batches that were applied to a ``Metadata`` since it was opened.

Keeps their bytes, whether written to a log or not, for ``Metadata.at``, ``records`` and ``append``.
Only ``kraft.metadata.facade`` calls it. It does no I/O.

Invariants: offsets are contiguous from the first batch to ``end_offset``; everything below
``written_offset`` is in a log and is never removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraft._core.bytes.batch import BatchBuilder, BatchTable, scan
from kraft._core.bytes.batch_records import iterate
from kraft.errors import OffsetOutOfRangeError


class AppliedEntry(NamedTuple):
    """One or more whole batches that were applied by one call."""

    first_offset: int
    batches: memoryview

    @property
    def table(self) -> BatchTable:
        """The headers of the batches."""
        return scan(self.batches, verify_crc=False)

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return int(self.table.last_offsets[-1]) + 1


class AppliedBatches:
    """Batches with consecutive offsets from ``start_offset`` on; those below ``written_offset`` are
    in a log.
    """

    def __init__(self, start_offset: int) -> None:
        self._entries: list[AppliedEntry] = []
        #: Records below this offset are in a log.
        self.written_offset = start_offset
        self._start_offset = start_offset

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    @property
    def end_offset(self) -> int:
        """The offset after the last applied record."""
        return self._entries[-1].next_offset if self._entries else self._start_offset

    def add(self, first_offset: int, batches: memoryview) -> None:
        """Append batches whose offsets are assigned and begin at ``end_offset``."""
        self._entries.append(AppliedEntry(first_offset, batches))

    def since(self, offset: int) -> Iterator[AppliedEntry]:
        """Yield, oldest first, every entry that holds a record at ``offset`` or later."""
        for entry in list(self._entries):
            if entry.next_offset > offset:
                yield entry

    def unwritten(self) -> Iterator[AppliedEntry]:
        """Yield the entries that are in no log yet, oldest first."""
        return self.since(self.written_offset)

    def newest_timestamp_ms(self) -> int:
        """Return the latest append time of any record, in ms; -1 without records."""
        return max((int(each.table.max_timestamps.max()) for each in self._entries), default=-1)

    def check_revert(self, offset: int) -> None:
        """Raise :class:`OffsetOutOfRangeError` where :meth:`cut` cannot cut at ``offset``."""
        end = self.end_offset
        if not self.written_offset <= offset <= end:
            raise OffsetOutOfRangeError(
                f"cannot revert to offset {offset}: the records that were applied and are not "
                f"written have offsets {self.written_offset} to {end} (exclusive)"
            )
        for entry in self.since(offset):
            table = entry.table
            batch = int((table.base_offsets <= offset).sum()) - 1
            if batch >= 0 and table.base_offsets[batch] != offset:
                raise OffsetOutOfRangeError(
                    f"cannot revert to offset {offset}: it is inside the batch of offsets "
                    f"{table.base_offsets[batch]} to {table.last_offsets[batch]}, and a batch is "
                    f"reverted as a whole; revert to offset {table.base_offsets[batch]}"
                )
            return

    def cut(self, offset: int) -> None:
        """Drop every batch from ``offset`` on; a batch begins at ``offset``."""
        kept = [entry for entry in self._entries if entry.first_offset < offset]
        if kept and kept[-1].next_offset > offset:
            first, batches = kept[-1]
            table = kept[-1].table
            # A decision of several batches may be reverted in part.
            (batch,) = (table.base_offsets == offset).nonzero()[0]
            kept[-1] = AppliedEntry(first, batches[: table.positions[batch]])
        self._entries = kept

    def copy_below(self, offset: int) -> AppliedBatches:
        """Return a copy with the records below ``offset``, which may lie inside a batch."""
        copy = AppliedBatches(min(self._start_offset, offset))
        copy.written_offset = min(self.written_offset, offset)
        for entry in self._entries:
            if entry.next_offset <= offset:
                copy._entries.append(entry)
            elif entry.first_offset < offset:
                copy._entries.append(_begin_of(entry, offset))
        return copy


def _begin_of(entry: AppliedEntry, offset: int) -> AppliedEntry:
    """Return the records of ``entry`` below ``offset``; re-encode the batch that contains it."""
    table = entry.table
    whole = int((table.last_offsets < offset).sum())
    position = int(table.positions[whole])
    kept = entry.batches[:position]
    if table.base_offsets[whole] < offset:
        (batch,) = iterate(entry.batches[position : position + table.sizes[whole]])
        builder = BatchBuilder(
            batch.base_offset, batch.partition_leader_epoch, attributes=int(batch.is_control) << 5
        )
        for record in batch:
            if record.offset < offset:
                builder.append(
                    record.value, record.key, timestamp_ms=record.timestamp_ms, offset=record.offset
                )
        kept = memoryview(bytes(kept) + bytes(builder.finish()))
    return AppliedEntry(entry.first_offset, kept)
