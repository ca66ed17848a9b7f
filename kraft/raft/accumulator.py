"""Accumulator of a leader: collect appended records into batches until they are drained.

Records of one append share one batch. Consecutive appends share a batch until it is drained:
``linger_ms`` after its first record, or as soon as it is full. Finished batches of the controller
keep their bytes but for offsets and epoch, which lie outside the CRC and are set here. `leader`
calls it. Source: Kafka's ``BatchAccumulator``.
"""

from __future__ import annotations

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, BatchBuilder, assign_offsets
from kraft.errors import RecordTooLargeError
from kraft.records import Record, control

#: The low byte of a batch's attributes.
_ATTRIBUTES_POSITION = 22

#: Bytes that a record adds to its batch at most, beside its value: length, attributes, two deltas,
#: two lengths and the header count.
RECORD_OVERHEAD = 24
BATCH_OVERHEAD = 61


class Accumulator:
    """The batches of one leader's epoch; ``next_offset`` is the offset of the next record."""

    __slots__ = (
        "_builder",
        "_finished",
        "_open_size",
        "drain_at_ms",
        "epoch",
        "linger_ms",
        "max_batch_size",
        "next_offset",
    )

    def __init__(self, epoch: int, next_offset: int, linger_ms: int, max_batch_size: int) -> None:
        self.epoch = epoch
        self.next_offset = next_offset
        self.linger_ms = linger_ms
        self.max_batch_size = max_batch_size
        #: When to drain the collected records; infinity if there are none.
        self.drain_at_ms = float("inf")
        self._finished: list[tuple[int, int, memoryview | bytearray]] = []
        self._builder: BatchBuilder | None = None
        self._open_size = 0

    def append_values(self, values: tuple[bytes, ...], now_ms: float) -> int:
        """Collect records into one batch; return the offset of the last.

        Raises RecordTooLargeError if they do not fit into one batch, ValueError if there are none.
        """
        if not values:
            raise ValueError("an append needs at least one record")
        size = sum(len(value) for value in values) + RECORD_OVERHEAD * len(values)
        if BATCH_OVERHEAD + size > self.max_batch_size:
            raise RecordTooLargeError(
                f"{len(values)} records of {size} bytes do not fit into a batch of "
                f"{self.max_batch_size} bytes"
            )
        if self._builder is not None and self._open_size + size > self.max_batch_size:
            self._close()
            self.drain_at_ms = now_ms
        if self._builder is None:
            self._builder = BatchBuilder(
                self.next_offset,
                self.epoch,
                int(now_ms),
                max_batch_size=2 * self.max_batch_size,
                max_batch_records=1 << 30,
            )
            self._open_size = BATCH_OVERHEAD
            self.drain_at_ms = min(self.drain_at_ms, now_ms + self.linger_ms)
        for value in values:
            self._builder.append(value)
        self._open_size += size
        self.next_offset += len(values)
        return self.next_offset - 1

    def append_batches(self, batches: memoryview | bytearray, now_ms: float) -> int:
        """Collect finished batches, with offsets and epoch set in place; return the last offset.

        Raises CorruptRecordError if the bytes are not batches, ValueError if there are none.
        """
        if not len(batches):
            raise ValueError("an append needs at least one record")
        self._close()
        base_offset = self.next_offset
        self.next_offset = assign_offsets(batches, base_offset, self.epoch)
        self._finished.append((base_offset, self.next_offset, batches))
        self.drain_at_ms = now_ms
        return self.next_offset - 1

    def append_control(self, records: list[Record], now_ms: float) -> int:
        """Collect control records as one batch to drain at once; return the offset of the first."""
        self._close()
        base_offset = self.next_offset
        builder = BatchBuilder(base_offset, self.epoch, int(now_ms), ATTRIBUTE_CONTROL)
        for record in records:
            builder.append(control.encode_control(record), key=control.encode_control_key(record))
        self.next_offset += len(records)
        self._finished.append((base_offset, self.next_offset, builder.finish()))
        self.drain_at_ms = now_ms
        return base_offset

    def drain(self) -> list[tuple[int, int, memoryview | bytearray]]:
        """Remove and return all batches as (base offset, end offset, batches), in log order."""
        self._close()
        drained, self._finished = self._finished, []
        self.drain_at_ms = float("inf")
        return drained

    def _close(self) -> None:
        if self._builder is not None:
            base_offset = self.next_offset - self._builder.record_count
            self._finished.append((base_offset, self.next_offset, self._builder.finish()))
            self._builder = None


def is_control(batches: memoryview | bytes | bytearray) -> bool:
    """Return whether drained batches hold control records of the raft layer."""
    return bool(memoryview(batches)[_ATTRIBUTES_POSITION] & ATTRIBUTE_CONTROL)
