"""``Census``: how many records of each type lie in batches, counted without decoding them.

Owns the count over columns: a metadata record's value begins with its frame version and its api
key, one byte each, so that a column of positions is all that it takes. Also finds the metadata
transaction that is open at the end, as Begin, End and Abort are told apart by their api key
alone. Fed by ``MetadataSource``'s slices; read by ``kraft open``.

Invariant: at most ``_PIECE_SIZE`` bytes of batches (or one batch) are laid out in columns at a
time.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from typing_extensions import Buffer

from kraft._core.batch import ATTRIBUTE_CONTROL, split
from kraft._core.batch_columns import BatchColumns
from kraft.records import (
    CONTROL_TYPES,
    RECORD_TYPES_BY_KEY,
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
)

_PIECE_SIZE = 16 << 20
_BEGIN = BeginTransaction.schema.api_key
_BORDERS = (_BEGIN, EndTransaction.schema.api_key, AbortTransaction.schema.api_key)


class Census:
    """Counts what :meth:`add` is given, in the order of the log.

    ``counts`` goes by Kafka's names without ``Record``, control records included; a type that
    this package does not know is counted as ``type 99``. ``open_transaction`` is the offset of
    the BeginTransaction of a transaction that is still open, or None.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.batch_count = 0
        self.record_count = 0
        self.size = 0
        self.open_transaction: int | None = None

    def add(self, batches: Buffer, *, end_offset: int | None = None) -> None:
        """Counts the records of whole batches whose CRCs have been checked, up to ``end_offset``.

        Raises :class:`CorruptRecordError` where a record's framing is not sound.
        """
        for piece in split(batches, _PIECE_SIZE):
            columns = BatchColumns.read(piece, verify_crc=False)
            self._add(columns, end_offset)

    def _add(self, columns: BatchColumns, end_offset: int | None) -> None:
        here = (
            np.ones(len(columns), np.bool_) if end_offset is None else columns.offsets < end_offset
        )
        attributes = columns.batches.array["attributes"]
        is_control = (attributes[columns.batch_indexes] & ATTRIBUTE_CONTROL) != 0
        data = np.frombuffer(columns.buffer, np.uint8)
        self.record_count += int(here.sum())
        self.batch_count += int(np.unique(columns.batch_indexes[here]).size)
        self.size += int(columns.batches.sizes.sum())

        values = here & ~is_control & (columns.value_lengths >= 2)
        # Api keys stay below 128, where their varint is one byte.
        keys = data[columns.value_positions[values] + 1]
        for key in np.flatnonzero(found := np.bincount(keys, minlength=1)):
            made = RECORD_TYPES_BY_KEY.get(int(key))
            self.counts[made.__name__ if made else f"type {key}"] += int(found[key])
        control = here & is_control & (columns.key_lengths >= 4)
        types = data[columns.key_positions[control] + 3]
        for key in np.flatnonzero(found := np.bincount(types, minlength=1)):
            made = CONTROL_TYPES.get(int(key))
            self.counts[made.__name__ if made else f"control type {key}"] += int(found[key])

        borders = np.flatnonzero(np.isin(keys, _BORDERS))
        if len(borders):
            last = borders[-1]
            is_open = int(keys[last]) == _BEGIN
            self.open_transaction = int(columns.offsets[values][last]) if is_open else None
