"""Which batches compaction keeps or drops as a whole: transactions, producers, the round's end.

`filter_batches` of the core decides about records by their keys. This module gives it one code for
each batch:

- Records of aborted transactions go, and their markers once no record of them was seen.
- The last batch of each active producer stays, without records if need be: its sequence is in its
  header. So does the last batch of the round, so that the log keeps its end.

Pure; loops only over batches of transactions, never over records. Entries of `.txnindex` files
(``TransactionIndex.java``) are 34 bytes: i16 version = 0 | i64 producer id | i64 first offset
| i64 last offset | i64 last stable offset.

Rules: ``storage/.../log/Cleaner.java``, ``CleanedTransactionMetadata.java``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from kraft._core.bytes.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_TRANSACTIONAL,
    BatchTable,
)
from kraft._core.bytes.batch_filter import DISCARD, ENDS_NOTHING, RETAIN_EMPTY
from kraft._core.bytes.batch_records import iterate
from kraft.broker.producer_state import ProducerStateEntry
from kraft.errors import CorruptRecordError

_ENTRY = struct.Struct(">hqqqq")
_MARKER_KEY = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index; ordered by its first offset."""

    first_offset: int
    producer_id: int
    last_offset: int
    last_stable_offset: int


def decode_transactions(content: bytes) -> list[AbortedTransaction]:
    """Return the entries of a `.txnindex`. Raises `CorruptRecordError`."""
    if len(content) % _ENTRY.size:
        raise CorruptRecordError(f"a transaction index of {len(content)} bytes is cut short")
    return [
        AbortedTransaction(first, producer, last, stable)
        for _, producer, first, last, stable in _ENTRY.iter_unpack(content)
    ]


def encode_transactions(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(
        _ENTRY.pack(0, one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
        for one in transactions
    )


class SeenTransactions:
    """The transactions of the batches that were read, in the order of the log."""

    def __init__(self) -> None:
        self._aborted: list[AbortedTransaction] = []
        #: By producer id: the aborted transaction, and whether a batch of it was seen.
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._open_committed: set[int] = set()
        #: The aborted transactions with records that are left, for the new index.
        self.kept: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        for transaction in transactions:
            heappush(self._aborted, transaction)

    def _reach(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            transaction = heappop(self._aborted)
            self._open_aborted.setdefault(transaction.producer_id, (transaction, False))

    def read_batch(self, producer_id: int, last_offset: int) -> bool:
        """Follow a transactional batch; return whether its transaction was aborted."""
        self._reach(last_offset)
        opened = self._open_aborted.get(producer_id)
        if opened is None:
            self._open_committed.add(producer_id)
            return False
        self._open_aborted[producer_id] = (opened[0], True)
        return True

    def read_control(self, batch: memoryview, producer_id: int, last_offset: int) -> bool:
        """Follow a control batch; return whether it ends a transaction without records."""
        self._reach(last_offset)
        (control,) = iterate(batch, verify_crc=False)
        for marker in control:
            key = marker.key
            if key is None or len(key) < _MARKER_KEY.size:
                raise CorruptRecordError(
                    "the key of a control record is cut short", offset=marker.offset
                )
            kind = _MARKER_KEY.unpack_from(key)[1]
            if kind == _ABORT:
                transaction, was_seen = self._open_aborted.pop(producer_id, (None, False))
                if transaction is None or not was_seen:
                    return True
                self.kept.append(transaction)
                return False
            if kind == _COMMIT:
                was_seen = producer_id in self._open_committed
                self._open_committed.discard(producer_id)
                return not was_seen
            return False
        # It was compacted already.
        return True

    def aborted_of(self, table: BatchTable, batches: memoryview) -> bytes | None:
        """Follow all batches; return one byte for each, 1 for aborted ones; None: none of them."""
        rows = _transactional(table)
        if not rows:
            return None
        aborted = np.zeros(len(table), np.uint8)
        for row in rows:
            header = table.array[row]
            producer, last = int(header["producer_id"]), int(table.last_offsets[row])
            if header["attributes"] & ATTRIBUTE_CONTROL:
                self.read_control(_whole(table, row, batches), producer, last)
            else:
                aborted[row] = self.read_batch(producer, last)
        return aborted.tobytes()


class ActiveProducers:
    """The last batch of each producer, when a round of compaction began."""

    def __init__(self, entries: Iterable[ProducerStateEntry]) -> None:
        known = list(entries)
        # Offsets name batches: two producers have none in common.
        self._last_offsets = np.array(
            sorted(entry.last_offset for entry in known if entry.last_offset >= 0), np.int64
        )
        #: Of producers of which only a marker is known.
        self._epochs = {
            entry.producer_id: entry.producer_epoch for entry in known if entry.last_offset < 0
        }

    def last_batches(self, table: BatchTable) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which batches are the last ones of their producers."""
        rows = table.array
        has_producer = rows["producer_id"] >= 0
        found = has_producer & np.isin(table.last_offsets, self._last_offsets)
        if self._epochs:
            is_control = (rows["attributes"] & ATTRIBUTE_CONTROL) != 0
            for row in np.flatnonzero(has_producer & is_control):
                epoch = self._epochs.get(int(rows["producer_id"][row]))
                if epoch is not None:
                    found[row] = epoch == rows["producer_epoch"][row]
        return found


def retention_of(
    table: BatchTable,
    batches: memoryview,
    seen: SeenTransactions,
    producers: ActiveProducers,
    end_offset: int,
    now_ms: int,
) -> bytes:
    """Return the code of each batch for `filter_batches`; the round ends at ``end_offset``."""
    codes = np.zeros(len(table), np.uint8)
    rows = table.array
    for row in _transactional(table):
        header = rows[row]
        producer, last = int(header["producer_id"]), int(table.last_offsets[row])
        if not header["attributes"] & ATTRIBUTE_CONTROL:
            codes[row] = DISCARD if seen.read_batch(producer, last) else 0
        elif seen.read_control(_whole(table, row, batches), producer, last):
            has_expired = (
                header["attributes"] & ATTRIBUTE_DELETE_HORIZON
                and int(header["base_timestamp"]) <= now_ms
            )
            codes[row] = ENDS_NOTHING | (DISCARD if has_expired else 0)
    stays = producers.last_batches(table) | (table.last_offsets + 1 == end_offset)
    codes[stays] |= RETAIN_EMPTY
    return codes.tobytes()


def _transactional(table: BatchTable) -> list[int]:
    """Return the places of the batches of transactions."""
    flags = ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL
    return [int(row) for row in np.flatnonzero(table.array["attributes"] & flags)]


def _whole(table: BatchTable, row: int, batches: memoryview) -> memoryview:
    start = int(table.positions[row])
    return batches[start : start + int(table.sizes[row])]
