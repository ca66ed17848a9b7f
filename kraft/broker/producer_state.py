"""Idempotent producers of one partition: which batch may follow, and which is a duplicate.

`ProducerStates` holds an entry for each producer id: its epoch, its last five batches, and the
first offset of its open transaction, if a broker with transactions wrote the log. The caller asks
`duplicate_of`, then `next_entry`, appends the batch to the log, and calls `put`; so a failed append
changes nothing. `replay` updates the state by batches that are in the log already: on a follower
and in recovery.

kraft's broker has no transactions: it takes no transactional batch from a client, since nothing
would end the transaction. Transactions and their markers in a log of Apache Kafka are tracked, so
that the state of that log stays right. Consumers with read_committed may read up to
`first_undecided_offset`.

Pure: no file, clock or lock. The partition's log calls it, under its lock. Snapshot files are in
``producer_snapshots``. Rules: ``ProducerStateManager.java``, ``ProducerStateEntry.java`` and
``ProducerAppendInfo.java`` of ``storage/.../log``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from typing_extensions import Buffer

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, scan
from kraft._core.bytes.batch_records import iterate
from kraft._core.bytes.produced_batch import ProducedBatch
from kraft.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)

BATCHES_TO_RETAIN = 5
DEFAULT_EXPIRATION_MS = 86_400_000
#: More producers than a partition usually has; each takes about 500 bytes.
DEFAULT_MAX_PRODUCERS = 100_000

NO_SEQUENCE = -1
NO_EPOCH = -1
LAST_SEQUENCE = 2**31 - 1

_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence ``count`` after ``sequence``; 0 follows the largest int32."""
    return (sequence + count) & LAST_SEQUENCE if sequence >= 0 else NO_SEQUENCE


class BatchMetadata(NamedTuple):
    """Sequences and offsets of an appended batch; the response to a duplicate has the offsets."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & LAST_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class SequencedBatch(NamedTuple):
    """A data batch of a producer with an id, at its offsets in the log."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int
    is_transactional: bool = False

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.last_offset - self.base_offset)

    @classmethod
    def of(cls, batch: ProducedBatch, base_offset: int) -> Self:
        """Return the batch as it is at ``base_offset``."""
        return cls(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            base_offset,
            base_offset + batch.record_count - 1,
            batch.max_timestamp,
            batch.is_transactional,
        )


class ProducerStateEntry(NamedTuple):
    """The state of one producer id; immutable."""

    producer_id: int
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    #: The first offset of the open transaction; -1 without one.
    transaction_offset: int = -1
    #: Oldest first, at most `BATCHES_TO_RETAIN`.
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of the last data record, -1 if unknown."""
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(
        self, producer_epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """Return the remembered batch with these sequences, or None."""
        if producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def with_batch(self, batch: SequencedBatch) -> ProducerStateEntry:
        """Return the entry after the batch, which was checked."""
        known = self.batches if batch.producer_epoch == self.producer_epoch else ()
        added = BatchMetadata(
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.base_offset,
            batch.timestamp_ms,
        )
        opened = self.transaction_offset
        if batch.is_transactional and opened < 0:
            opened = batch.base_offset
        return ProducerStateEntry(
            self.producer_id,
            batch.producer_epoch,
            self.coordinator_epoch,
            batch.timestamp_ms,
            opened,
            (*known[1 - BATCHES_TO_RETAIN :], added),
        )

    def with_marker(
        self, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
    ) -> ProducerStateEntry:
        """Return the entry after a marker that ends the transaction."""
        known = self.batches if producer_epoch == self.producer_epoch else ()
        return ProducerStateEntry(
            self.producer_id, producer_epoch, coordinator_epoch, timestamp_ms, -1, known
        )


class ProducerStates:
    """The producers of one partition, and the offset up to which they are known."""

    __slots__ = (
        *("end_offset", "expiration_ms", "max_producers", "partition", "producers"),
        "takes_transactions",
    )

    def __init__(
        self,
        partition: str,
        *,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        max_producers: int = DEFAULT_MAX_PRODUCERS,
        end_offset: int = 0,
        takes_transactions: bool = False,
    ) -> None:
        """``expiration_ms`` is producer.id.expiration.ms; ``partition`` is for messages.

        Without ``takes_transactions`` a client's transactional batch is rejected unless its
        transaction is open, as by a broker of Kafka to which no coordinator has confirmed it.
        Kafka keeps any number of producers. Here the one whose last batch is oldest is forgotten
        when there are more than ``max_producers``, as if it had expired.
        """
        self.partition = partition
        self.expiration_ms = expiration_ms
        self.max_producers = max_producers
        self.takes_transactions = takes_transactions
        #: The state reflects the log up to this offset.
        self.end_offset = end_offset
        #: By producer id, the one that wrote last at the end.
        self.producers: dict[int, ProducerStateEntry] = {}

    def duplicate_of(
        self, producer_id: int, producer_epoch: int, base_sequence: int, record_count: int
    ) -> BatchMetadata | None:
        """Return the batch in the log that a produced batch repeats, or None.

        The response to the duplicate has the offset and, under LogAppendTime, the timestamp of that
        batch.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        last = sequence_after(base_sequence, record_count - 1)
        return entry.duplicate_of(producer_epoch, base_sequence, last)

    def next_entry(self, batch: SequencedBatch, *, from_client: bool = True) -> ProducerStateEntry:
        """Return the producer's entry after ``batch``, for `put` once the batch is in the log.

        The epoch and the sequence are checked only ``from_client``: a leader has checked batches of
        the log. Raises `InvalidProducerEpochError`, `OutOfOrderSequenceError`,
        `InvalidTxnStateError`.
        """
        entry = self.producers.get(batch.producer_id) or ProducerStateEntry(batch.producer_id)
        if from_client:
            self._check_epoch(batch, entry)
            self._check_transaction(batch, entry)
            self._check_sequence(batch, entry)
        if entry.transaction_offset >= 0 and not batch.is_transactional:
            raise InvalidTxnStateError(
                f"producer {batch.producer_id} has an open transaction in {self.partition} since "
                f"offset {entry.transaction_offset}; its batch at offset {batch.base_offset} is "
                "not transactional"
            )
        return entry.with_batch(batch)

    def put(self, entry: ProducerStateEntry, end_offset: int) -> None:
        """Replace the producer's entry; the log now ends at ``end_offset``."""
        producers = self.producers
        # The key moves to the end: the first key is the producer that wrote longest ago.
        producers.pop(entry.producer_id, None)
        producers[entry.producer_id] = entry
        if len(producers) > self.max_producers:
            del producers[next(iter(producers))]
        self.end_offset = end_offset

    def replay(self, batches: Buffer) -> None:
        """Follow batches that are in the log, from `end_offset` on; earlier batches are skipped.

        Raises `CorruptRecordError` for malformed bytes, `InvalidTxnStateError`.
        """
        table = scan(batches, verify_crc=False)
        if table.tail_reason is not None:
            raise CorruptRecordError(table.tail_reason, position=table.tail_position)
        rows = table.array
        ends = table.last_offsets + 1
        for row in np.flatnonzero((rows["producer_id"] >= 0) & (ends > self.end_offset)):
            header = rows[row]
            if header["attributes"] & ATTRIBUTE_CONTROL:
                start = int(header["position"])
                whole = memoryview(batches).cast("B")[start : start + int(table.sizes[row])]
                self._replay_marker(whole, int(ends[row]))
                continue
            batch = SequencedBatch(
                int(header["producer_id"]),
                int(header["producer_epoch"]),
                int(header["base_sequence"]),
                int(header["base_offset"]),
                int(ends[row]) - 1,
                int(header["max_timestamp"]),
                bool(header["attributes"] & ATTRIBUTE_TRANSACTIONAL),
            )
            self.put(self.next_entry(batch, from_client=False), int(ends[row]))
        if len(ends):
            self.end_offset = max(self.end_offset, int(ends[-1]))

    def expire(self, now_ms: int) -> None:
        """Forget producers without an open transaction that wrote nothing for `expiration_ms`."""
        for entry in [one for one in self.producers.values() if self.is_expired(one, now_ms)]:
            del self.producers[entry.producer_id]

    def is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return (
            entry.transaction_offset < 0 and now_ms - entry.last_timestamp_ms >= self.expiration_ms
        )

    def load(self, entries: Iterable[ProducerStateEntry], end_offset: int, *, now_ms: int) -> None:
        """Replace the state by a snapshot's entries that are not expired."""
        self.producers = {
            entry.producer_id: entry for entry in entries if not self.is_expired(entry, now_ms)
        }
        self.end_offset = end_offset

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction, or None."""
        opened = [
            e.transaction_offset for e in self.producers.values() if e.transaction_offset >= 0
        ]
        return min(opened, default=None)

    def _check_epoch(self, batch: SequencedBatch, entry: ProducerStateEntry) -> None:
        if batch.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {batch.producer_id} writes to {self.partition} with epoch "
                f"{batch.producer_epoch}; the last seen epoch is {entry.producer_epoch}"
            )

    def _check_transaction(self, batch: SequencedBatch, entry: ProducerStateEntry) -> None:
        is_open = entry.transaction_offset >= 0 and entry.producer_epoch == batch.producer_epoch
        if batch.is_transactional and not (is_open or self.takes_transactions):
            raise InvalidTxnStateError(
                f"producer {batch.producer_id} has no open transaction in {self.partition}; this "
                "broker begins none"
            )

    def _check_sequence(self, batch: SequencedBatch, entry: ProducerStateEntry) -> None:
        if entry.producer_epoch == NO_EPOCH:
            return
        first = batch.base_sequence
        if batch.producer_epoch != entry.producer_epoch:
            if first != 0:
                raise OutOfOrderSequenceError(
                    f"producer {batch.producer_id} begins epoch {batch.producer_epoch} in "
                    f"{self.partition} with sequence {first}; a new epoch begins with 0 (its last "
                    f"epoch is {entry.producer_epoch})"
                )
            return
        last = entry.last_sequence
        if first != last + 1 and not (first == 0 and last == LAST_SEQUENCE):
            raise OutOfOrderSequenceError(
                f"producer {batch.producer_id} sent sequence {first} to {self.partition} at offset "
                f"{batch.base_offset}; its last sequence there is {last}"
            )

    def _replay_marker(self, batch: memoryview, end_offset: int) -> None:
        """Follow a control batch: a marker ends the producer's transaction."""
        (control,) = iterate(batch, verify_crc=False)
        # As in Kafka, only the first record counts; compaction may have removed it.
        for marker in control:
            key, value = marker.key, marker.value
            if key is None or len(key) < _MARKER_KEY.size:
                raise CorruptRecordError(
                    "the key of a control record is cut short", offset=marker.offset
                )
            if _MARKER_KEY.unpack_from(key)[1] not in (_ABORT, _COMMIT):
                return
            if value is None or len(value) < _MARKER_VALUE.size:
                raise CorruptRecordError(
                    "the value of a transaction marker is cut short", offset=marker.offset
                )
            entry = self.producers.get(control.producer_id) or ProducerStateEntry(
                control.producer_id
            )
            self.put(
                entry.with_marker(
                    control.producer_epoch, _MARKER_VALUE.unpack_from(value)[1], marker.timestamp_ms
                ),
                end_offset,
            )
            return
