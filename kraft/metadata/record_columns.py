"""The records of a log or snapshot as rows of columns, without decoding them.

Offsets, times and types are read straight from the bytes of a batch, and so are topic ids and
partitions of the hot records, which have a fixed position; all other fields are decoded one record
at a time, on request. Also finds the records of metadata transactions and how those ended. Called
by ``kraft.spark`` with mapped slices.

Invariant: a column contains the value that decoding the record would return.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, split
from kraft._core.bytes.batch_columns import BatchColumns
from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.records import (
    CONTROL_TYPES,
    RECORD_TYPES_BY_KEY,
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    Partition,
    PartitionChange,
    Record,
    RemoveTopic,
    decode_control,
    decode_control_key,
    decode_value,
)

#: The outcome of a metadata transaction by the type of its last record; "open" without one.
OUTCOMES = {EndTransaction: "ended", AbortTransaction: "aborted"}
OPEN = "open"

_FRAME_VERSION = 1
#: A value begins with frame version, API key and version, one byte each.
_PREFIX_SIZE = 3
# After the prefix: partition id (i32) and topic id, or the topic id alone.
_WITH_PARTITION = (Partition.schema.api_key, PartitionChange.schema.api_key)
_WITHOUT_PARTITION = (RemoveTopic.schema.api_key,)
_BLOCK_SIZE = 16 << 20


class TransactionSpan(NamedTuple):
    """The offsets ``begin`` to ``end`` (exclusive) of one metadata transaction and its outcome."""

    begin: int
    end: int
    outcome: str


class RecordColumns:
    """The n records of whole batches; ``type_numbers`` are indexes into ``type_names``.

    ``offsets``, ``timestamps_ms`` and ``positions`` (of the batch, in its file) are i64, ``epochs``
    i32, ``versions`` i16 (-1 where a record has none), ``is_control`` bool.
    """

    def __init__(self, batches: Buffer, *, base_position: int = 0) -> None:
        """``base_position`` is the position of the first batch in its file.

        Raises :class:`CorruptRecordError` with the position of a malformed batch.
        """
        columns = BatchColumns.read(batches, base_position=base_position)
        of_batch = columns.batch_indexes
        headers = columns.batches
        self._columns = columns
        self._data = np.frombuffer(columns.buffer, np.uint8)
        self._value_positions = columns.value_positions
        self._value_lengths = columns.value_lengths
        self.offsets = columns.offsets
        self.timestamps_ms = columns.timestamps
        self.positions: NDArray[np.int64] = headers.positions[of_batch]
        self.epochs: NDArray[np.int32] = headers.partition_leader_epochs[of_batch]
        self.is_control: NDArray[np.bool_] = (headers.attributes[of_batch] & ATTRIBUTE_CONTROL) != 0
        self._is_framed = (
            ~self.is_control
            & (self._value_lengths >= _PREFIX_SIZE)
            & (self._byte(0) == _FRAME_VERSION)
        )
        # API keys and versions are below 128, so their varints are one byte; decoding rejects more.
        self._keys = np.where(self._is_framed, self._byte(1), -1)
        self.versions = np.where(self._is_framed, self._byte(2), -1).astype(np.int16)
        control_keys = np.where(self.is_control, self._control_types(), -1)
        self.type_names, self.type_numbers = _names(self._keys, control_keys)

    def __len__(self) -> int:
        return len(self.offsets)

    def _byte(self, place: int) -> NDArray[np.int16]:
        """Return byte ``place`` of each value: i16 (n,); undefined where the value is shorter."""
        if not len(self._data):
            return np.zeros(len(self), np.int16)
        return self._data.take(self._value_positions + place, mode="clip").astype(np.int16)

    def _control_types(self) -> NDArray[np.int16]:
        """Return the type of each control record, the last two bytes of its key: i16 (n,)."""
        positions = self._columns.key_positions
        is_whole = self._columns.key_lengths >= 4
        if not len(self._data):
            return np.zeros(len(self), np.int16)
        high = self._data.take(positions + 2, mode="clip").astype(np.int16)
        low = self._data.take(positions + 3, mode="clip").astype(np.int16)
        return np.where(is_whole, high << 8 | low, -1)

    def topic_partitions(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.bool_]]:
        """Return topic ids and partitions of the hot records among these rows, without decoding
        them.

        Topic ids (u8 (n, 16)), partitions (i32, -1 where the record has none) and a mask of the
        rows that are such records; other rows are zeros and -1.
        """
        keys, lengths = self._keys[rows], self._value_lengths[rows]
        with_partition = np.isin(keys, _WITH_PARTITION) & (lengths >= _PREFIX_SIZE + 20)
        known = with_partition | (
            np.isin(keys, _WITHOUT_PARTITION) & (lengths >= _PREFIX_SIZE + 16)
        )
        ids = np.zeros((len(rows), 16), np.uint8)
        partitions = np.full(len(rows), -1, np.int32)
        begins = self._value_positions[rows] + _PREFIX_SIZE
        if with_partition.any():
            partitions[with_partition] = (
                self._gather(begins[with_partition], 4).view(">i4").reshape(-1)
            )
        if known.any():
            ids[known] = self._gather((begins + 4 * with_partition)[known], 16)
        return ids, partitions, known

    def _gather(self, begins: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """Return ``size`` bytes from each position on: u8 (n, size)."""
        windows = np.lib.stride_tricks.sliding_window_view(self._data, size)
        return np.ascontiguousarray(windows[begins])

    def record(self, row: int) -> Record | None:
        """Return one record, decoded; None for a type or version that this package does not know.

        Raises :class:`CorruptRecordError` with offset and position.
        """
        try:
            value = self.value(row)
            if self.is_control[row]:
                position = int(self._columns.key_positions[row])
                length = max(int(self._columns.key_lengths[row]), 0)
                key = self._data[position : position + length].tobytes()
                return decode_control(decode_control_key(key), value)
            return decode_value(value)
        except UnsupportedVersionError:
            return None
        except CorruptRecordError as error:
            raise error.at(
                offset=int(self.offsets[row]), position=int(self.positions[row])
            ) from None

    def value(self, row: int) -> memoryview:
        """Return the bytes of one value."""
        length = int(self._value_lengths[row])
        if length < 0:
            raise CorruptRecordError("a metadata record has no value")
        position = int(self._value_positions[row])
        return memoryview(self._columns.buffer)[position : position + length]


def transaction_spans(slices: Iterable[Buffer]) -> list[TransactionSpan]:
    """Return the metadata transactions in a log's batches, given in order and with checked CRCs.

    A span includes its begin and end records. Where a transaction begins inside another, which no
    controller writes, the first counts as open up to there.
    """
    spans: list[TransactionSpan] = []
    outcome_of = {made.schema.api_key: outcome for made, outcome in OUTCOMES.items()}
    begin_key = BeginTransaction.schema.api_key
    begun, end = -1, 0
    for data in slices:
        for block in split(data, _BLOCK_SIZE):
            columns = RecordColumns(block)
            end = int(columns.offsets[-1]) + 1 if len(columns) else end
            for row in np.flatnonzero(np.isin(columns._keys, [begin_key, *outcome_of])):
                key, offset = int(columns._keys[row]), int(columns.offsets[row])
                if begun >= 0:
                    after = offset if key == begin_key else offset + 1
                    spans.append(TransactionSpan(begun, after, outcome_of.get(key, OPEN)))
                begun = offset if key == begin_key else -1
    if begun >= 0:
        spans.append(TransactionSpan(begun, end, OPEN))
    return spans


def _names(
    keys: NDArray[np.int16], control_keys: NDArray[np.int16]
) -> tuple[list[str], NDArray[np.int32]]:
    """Return the names of the types that occur, and each record's index into them."""
    codes = np.where(control_keys >= 0, control_keys.astype(np.int32) + 256, keys)
    there, numbers = np.unique(codes, return_inverse=True)
    names = []
    for code in there.tolist():
        known = CONTROL_TYPES.get(code - 256) if code >= 256 else RECORD_TYPES_BY_KEY.get(code)
        unknown = f"control type {code - 256}" if code >= 256 else f"type {code}"
        if code < 0:
            unknown = "no record"
        names.append(known.__name__ if known else unknown)
    return names, numbers.astype(np.int32)
