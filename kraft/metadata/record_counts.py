"""``RecordCounts``: count the records of each type in batches without decoding them.

A metadata record's value begins with frame version and API key, one byte each, so columns of byte
positions suffice. Also finds the metadata transaction that is open at the end from the Begin, End
and Abort records. ``kraft open`` passes it the slices of a ``MetadataSource``.

Invariant: columns are made of at most ``_BLOCK_SIZE`` bytes of batches (or one batch) at a time.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from typing_extensions import Buffer

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, split
from kraft._core.bytes.batch_columns import BatchColumns
from kraft.records import (
    CONTROL_TYPES,
    RECORD_TYPES_BY_KEY,
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
)

_BLOCK_SIZE = 16 << 20
_BEGIN = BeginTransaction.schema.api_key
_TRANSACTION_KEYS = (_BEGIN, EndTransaction.schema.api_key, AbortTransaction.schema.api_key)


class RecordCounts:
    """Counts of the records passed to :meth:`add`, in log order.

    ``by_type`` has Kafka's names without ``Record`` as keys, control records included; a type that
    this package does not know is counted as ``type 99``. ``open_transaction`` is the offset of the
    BeginTransaction of a transaction that is still open, or None.
    """

    def __init__(self) -> None:
        self.by_type: Counter[str] = Counter()
        self.batch_count = 0
        self.record_count = 0
        self.size = 0
        self.open_transaction: int | None = None

    def add(self, batches: Buffer, *, end_offset: int | None = None) -> None:
        """Count the records below ``end_offset`` of whole batches whose CRCs were checked.

        Raises :class:`CorruptRecordError` where a record's framing is invalid.
        """
        for block in split(batches, _BLOCK_SIZE):
            columns = BatchColumns.read(block, verify_crc=False)
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
        # API keys are below 128, so their varint is one byte.
        keys = data[columns.value_positions[values] + 1]
        for key in np.flatnonzero(found := np.bincount(keys, minlength=1)):
            made = RECORD_TYPES_BY_KEY.get(int(key))
            self.by_type[made.__name__ if made else f"type {key}"] += int(found[key])
        control = here & is_control & (columns.key_lengths >= 4)
        types = data[columns.key_positions[control] + 3]
        for key in np.flatnonzero(found := np.bincount(types, minlength=1)):
            made = CONTROL_TYPES.get(int(key))
            self.by_type[made.__name__ if made else f"control type {key}"] += int(found[key])

        markers = np.flatnonzero(np.isin(keys, _TRANSACTION_KEYS))
        if len(markers):
            last = markers[-1]
            is_open = int(keys[last]) == _BEGIN
            self.open_transaction = int(columns.offsets[values][last]) if is_open else None
