"""Partitions as Arrow arrays and tables; needs ``pyarrow`` (the extra ``kraft[arrow]``).

Converts packed columns to Arrow lists and names, for all rows or for some, one whole column at a
time; only irregular rows are read one by one. Called by ``Metadata.to_arrow`` and ``kraft.spark``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft._core.table.table import PartitionTable
from kraft.metadata.partitions import IRREGULAR, Partitions
from kraft.records import Uuid

_SCALARS = ("partition", "leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
_PACKED = ("isr", "elr", "last_known_elr")
_REASSIGNED = ("adding_replicas", "removing_replicas")

#: The columns that :meth:`ArrowPartitions.column` returns, in display order.
ARROW_COLUMNS = (
    "topic",
    "topic_id",
    "partition",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "leader_recovery_state",
    "replicas",
    *_PACKED,
    *_REASSIGNED,
    "directories",
)

# URL-safe base64 without padding, as in Kafka's Uuid.toString: 16 bytes make 22 letters.
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)
_UUID_LETTERS = 22


def partitions_to_arrow(table: PartitionTable, partitions: Partitions) -> pa.Table:
    """Return a table with one row for each live partition: topic (a dictionary), scalars, lists.

    Scalar columns are not copied where no row is dead.
    """
    live = partitions.live
    arrow = ArrowPartitions(table)
    rows = None if live.all() else np.flatnonzero(live)
    names = ("topic", *_SCALARS, "replicas", *_PACKED)
    return pa.table({name: arrow.column(name, rows) for name in names})


class ArrowPartitions:
    """The columns of a table as Arrow arrays, each made on request.

    Topic names and the texts of directory ids are cached on first use: the table must not change
    while this object is used.
    """

    def __init__(self, table: PartitionTable) -> None:
        self._table = table
        self._topics: dict[str, pa.Array] = {}
        self._directories: pa.Array | None = None
        self._dense: NDArray[np.int32] | None = None

    def column(self, name: str, rows: NDArray[Any] | None = None) -> pa.Array:
        """Return one of ``ARROW_COLUMNS`` for ``rows`` (live rows, in this order; None: every row).

        - ``topic``, ``topic_id``: dictionaries of text.
        - ``partition``, ``leader``, ``leader_epoch``, ``partition_epoch``: i32;
          ``leader_recovery_state``: i8.
        - ``replicas``, ``isr``, ``elr``, ``last_known_elr``, ``adding_replicas``,
          ``removing_replicas``: lists of i32, broker ids in Kafka's order.
        - ``directories``: lists of text, one directory id for each replica.

        Raises ``KeyError`` for any other name.
        """
        if name in ("topic", "topic_id"):
            numbers = self.dense_topics(rows)
            return pa.DictionaryArray.from_arrays(pa.array(numbers), self.topics(name))
        if name in _SCALARS:
            values = self._table.column(name)
            return pa.array(values if rows is None else values[rows])
        make = _LISTS[name]
        places, values = make(self, name, self._rows(rows))
        return pa.ListArray.from_arrays(pa.array(places), values)

    def topics(self, name: str) -> pa.Array:
        """Return ``topic`` (names) or ``topic_id`` (Kafka's text) of every live topic."""
        if name not in self._topics:
            numbers = self._table.topic_numbers()
            if name == "topic":
                made = pa.array([self._table.topic_name(each) for each in numbers], pa.string())
            else:
                ids = b"".join(self._table.topic_id_of(each) for each in numbers)
                made = uuid_texts(np.frombuffer(ids, np.uint8).reshape(-1, 16))
            self._topics[name] = made
        return self._topics[name]

    def dense_topics(self, rows: NDArray[Any] | None = None) -> NDArray[np.int32]:
        """Return each row's index into :meth:`topics`: i32 (n,)."""
        if self._dense is None:
            numbers = self._table.topic_numbers()
            self._dense = np.full(max(numbers, default=-1) + 1, -1, np.int32)
            self._dense[numbers] = np.arange(len(numbers), dtype=np.int32)
        topics = self._table.column("topic")
        dense: NDArray[np.int32] = self._dense[topics if rows is None else topics[rows]]
        return dense

    # -- lists: offsets i32 (rows + 1,) of each row's list, and the concatenated values

    def _rows(self, rows: NDArray[Any] | None) -> NDArray[Any]:
        return np.arange(len(self._table.column("topic"))) if rows is None else rows

    def _packed(self, name: str, rows: NDArray[Any]) -> tuple[NDArray[np.int32], pa.Array]:
        packed = self._table.column(name)[rows]
        replicas = self._table.column("replicas")[rows]
        irregular = self._irregular(rows)
        packed = np.where(irregular, np.uint32(0), packed)
        if not packed.any():
            # Fast path: ELRs are nearly always empty, as they need an ISR below its minimum.
            return self._reassigned(name, rows)
        shifts = 4 * np.arange(replicas.shape[1], dtype=np.uint32)
        slots = ((packed[:, None] >> shifts) & np.uint32(15)).astype(np.intp)
        members = np.take_along_axis(replicas, np.maximum(slots, 1) - 1, axis=1)
        return self._lists(name, rows, members, slots > 0, irregular)

    def _replicas(self, name: str, rows: NDArray[Any]) -> tuple[NDArray[np.int32], pa.Array]:
        replicas = self._table.column("replicas")[rows]
        irregular = self._irregular(rows)
        present = (replicas >= 0) & ~irregular[:, None]
        return self._lists(name, rows, replicas, present, irregular)

    def _reassigned(self, name: str, rows: NDArray[Any]) -> tuple[NDArray[np.int32], pa.Array]:
        nobody = np.zeros((len(rows), 0), np.int32)
        return self._lists(name, rows, nobody, nobody.astype(np.bool_), self._irregular(rows))

    def _directory_lists(self, name: str, rows: NDArray[Any]) -> tuple[NDArray[np.int32], pa.Array]:
        numbers = self._table.column("directories")[rows].astype(np.int32)
        irregular = self._irregular(rows)
        present = (self._table.column("replicas")[rows] >= 0) & ~irregular[:, None]
        places, numbers = self._lists(name, rows, numbers, present, irregular)
        newest = int(np.max(numbers.to_numpy(), initial=-1))
        if self._directories is None or len(self._directories) <= newest:
            texts = [str(Uuid(self._table.directory_id(each))) for each in range(newest + 1)]
            self._directories = pa.array(texts, pa.string())
        return places, self._directories.take(numbers)

    def _irregular(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(self._table.column("isr")[rows] == IRREGULAR)

    def _lists(
        self,
        name: str,
        rows: NDArray[Any],
        members: NDArray[np.int32],
        present: NDArray[np.bool_],
        irregular: NDArray[np.bool_],
    ) -> tuple[NDArray[np.int32], pa.Array]:
        """Return offsets and values of the ``present`` entries; irregular rows have none there and
        get theirs from the table.
        """
        places = np.zeros(len(rows) + 1, np.int32)
        sizes = present.sum(axis=1, dtype=np.int32)
        values = members[present]
        if irregular.any():
            here = np.flatnonzero(irregular)
            lists = [self._table.state_of(int(rows[place]))[name] for place in here]
            before = np.cumsum(sizes)[here]
            sizes[here] = [len(each) for each in lists]
            values = np.insert(
                values,
                np.repeat(before, sizes[here]),
                np.fromiter((each for row in lists for each in row), np.int32),
            )
        np.cumsum(sizes, out=places[1:])
        return places, pa.array(values)


_LISTS: dict[
    str, Callable[[ArrowPartitions, str, NDArray[Any]], tuple[NDArray[np.int32], pa.Array]]
] = {
    "replicas": ArrowPartitions._replicas,
    **dict.fromkeys(_PACKED, ArrowPartitions._packed),
    **dict.fromkeys(_REASSIGNED, ArrowPartitions._reassigned),
    "directories": ArrowPartitions._directory_lists,
}


def uuid_texts(ids: NDArray[np.uint8], present: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return Kafka's text of each uuid (u8 (n, 16)) as an Arrow array; null if not ``present``."""
    count = len(ids)
    padded = np.zeros((count, 6, 3), np.uint8)
    padded.reshape(count, 18)[:, :16] = ids
    first, second, third = padded[:, :, 0], padded[:, :, 1], padded[:, :, 2]
    sextets = np.empty((count, 6, 4), np.uint8)
    sextets[:, :, 0] = first >> 2
    sextets[:, :, 1] = (first & 3) << 4 | second >> 4
    sextets[:, :, 2] = (second & 15) << 2 | third >> 6
    sextets[:, :, 3] = third & 63
    letters = _BASE64[sextets.reshape(count, 24)[:, :_UUID_LETTERS]]
    shown = np.ones(count, np.bool_) if present is None else present
    places = np.zeros(count + 1, np.int32)
    np.cumsum(shown * _UUID_LETTERS, out=places[1:])
    nulls = None if shown.all() else pa.array(shown).buffers()[1]
    text = np.ascontiguousarray(letters if nulls is None else letters[shown])
    return pa.StringArray.from_buffers(count, pa.py_buffer(places), pa.py_buffer(text), nulls)
