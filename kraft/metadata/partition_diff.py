"""``PartitionDifferences``: which partitions of two tables differ, and in which fields, as columns.

Compares columns; a row is read on its own only where its lists do not fit into the columns. Called
by ``kraft.metadata.diff``, which makes a difference an object when a caller reads it.

Invariants: rows are ordered by topic name, then partition id; a bit is set exactly where the two
``PartitionInfo`` differ in that field. Neither table changes.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.table import PartitionTable
from kraft.errors import InvalidArgumentError
from kraft.metadata.arguments import shown
from kraft.metadata.partitions import IRREGULAR, PartitionInfo

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Bit i of :attr:`PartitionDifferences.fields` means field i of this tuple.
PARTITION_FIELDS = tuple(
    each.name for each in fields(PartitionInfo) if each.name not in ("topic", "partition")
)
_BITS = {name: np.uint16(1 << bit) for bit, name in enumerate(PARTITION_FIELDS)}
_SCALARS = ("leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
_PACKED = ("isr", "elr", "last_known_elr")
_BROKER_LISTS = ("replicas", *_PACKED, "adding_replicas", "removing_replicas")


class PartitionDifferences:
    """The n partitions that differ, of topics that both states have.

    ``before_rows`` and ``after_rows``: i64 (n,), rows of the two ``m.partitions``, -1 where that
    side lacks the partition. ``fields``: u16 (n,), bit i is set where field ``PARTITION_FIELDS[i]``
    differs; 0 where a side lacks the partition. The arrays are read-only.
    """

    def __init__(self, before: PartitionTable, after: PartitionTable) -> None:
        if _same_layout(before, after):
            old = new = _rows_by_name(before, before.topic_numbers())
            changed = _changed_fields(before, None, after, None)[old]
            differ = np.flatnonzero(changed)
        else:
            old, new = _rows_of_common_topics(before, after)
            both = np.flatnonzero((old >= 0) & (new >= 0))
            changed = np.zeros(len(old), np.uint16)
            changed[both] = _changed_fields(before, old[both], after, new[both])
            differ = np.flatnonzero((changed != 0) | (old < 0) | (new < 0))
        self.before_rows: Rows = _read_only(old[differ])
        self.after_rows: Rows = self.before_rows if new is old else _read_only(new[differ])
        self.fields: NDArray[np.uint16] = _read_only(changed[differ])

    def __len__(self) -> int:
        """The number of partitions that differ."""
        return len(self.fields)

    def where(self, field: str) -> Mask:
        """Return a mask of the rows that differ in ``field``: bool (n,)."""
        if field not in PARTITION_FIELDS:
            raise InvalidArgumentError(
                f"field must be one of {', '.join(PARTITION_FIELDS)}, not {shown(field)}"
            )
        return np.asarray((self.fields & _BITS[field]) != 0)

    def counts(self) -> NDArray[np.uint8]:
        """Return the number of differences of each row: u8 (n,), at least 1."""
        # A partition that only one side has is one difference.
        return np.asarray(np.maximum(np.bitwise_count(self.fields), 1))

    def __repr__(self) -> str:
        return f"PartitionDifferences({len(self)} partitions)"


def _read_only(column: NDArray[Any]) -> NDArray[Any]:
    column.flags.writeable = False
    return column


# -- rows side by side


def _same_layout(before: PartitionTable, after: PartitionTable) -> bool:
    """Return whether each partition has the same row on both sides."""
    numbers = before.topic_numbers()
    return (
        numbers == after.topic_numbers()
        and np.array_equal(before.column("topic"), after.column("topic"))
        and np.array_equal(before.column("partition"), after.column("partition"))
        and all(before.topic_id_of(each) == after.topic_id_of(each) for each in numbers)
    )


def _rows_by_name(table: PartitionTable, numbers: list[int]) -> Rows:
    found = [table.topic_rows(each) for each in sorted(numbers, key=table.topic_name)]
    return np.concatenate(found).astype(np.int64) if found else np.zeros(0, np.int64)


def topic_numbers_by_id(table: PartitionTable) -> dict[bytes, int]:
    """Return the number of each live topic by its 16-byte id."""
    return {bytes(table.topic_id_of(number)): number for number in table.topic_numbers()}


def _rows_of_common_topics(before: PartitionTable, after: PartitionTable) -> tuple[Rows, Rows]:
    """Return both rows of every partition of common topics by topic name; -1 where a
    side lacks it.
    """
    old, new = topic_numbers_by_id(before), topic_numbers_by_id(after)
    common = sorted(old.keys() & new.keys(), key=lambda each: before.topic_name(old[each]))
    pairs = [
        _paired(before, before.topic_rows(old[each]), after, after.topic_rows(new[each]))
        for each in common
    ]
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return (
        np.concatenate([olds for olds, _ in pairs]),
        np.concatenate([news for _, news in pairs]),
    )


def _paired(
    before: PartitionTable,
    old_rows: NDArray[np.int32],
    after: PartitionTable,
    new_rows: NDArray[np.int32],
) -> tuple[Rows, Rows]:
    """Return one topic's rows of both sides, by partition id."""
    old_ids = before.column("partition")[old_rows]
    new_ids = after.column("partition")[new_rows]
    if len(old_ids) == len(new_ids) and bool((old_ids == new_ids).all()):
        return old_rows.astype(np.int64), new_rows.astype(np.int64)
    ids = np.union1d(old_ids, new_ids)
    olds, news = np.full(len(ids), -1, np.int64), np.full(len(ids), -1, np.int64)
    olds[np.searchsorted(ids, old_ids)] = old_rows
    news[np.searchsorted(ids, new_ids)] = new_rows
    return olds, news


# -- fields


def _changed_fields(
    before: PartitionTable, old_rows: Rows | None, after: PartitionTable, new_rows: Rows | None
) -> NDArray[np.uint16]:
    """Return the fields in which each pair of rows differs: u16 (n,); None as rows means all, in
    order.
    """

    def both(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        old, new = before.column(name), after.column(name)
        return (
            old if old_rows is None else old[old_rows],
            new if new_rows is None else new[new_rows],
        )

    old_replicas, new_replicas = both("replicas")
    changed = np.zeros(len(old_replicas), np.uint16)

    def mark(name: str, differ: Mask) -> None:
        np.bitwise_or(changed, differ * _BITS[name], out=changed)

    for name in _SCALARS:
        old, new = both(name)
        mark(name, old != new)
    replicas_differ, directories_differ = _slots_that_differ(
        old_replicas, new_replicas, *both("directories"), _directory_numbers(before, after)
    )
    mark("replicas", replicas_differ)
    mark("directories", directories_differ)
    irregular = np.zeros(len(changed), np.bool_)
    for name in _PACKED:
        old, new = both(name)
        differ = old != new
        if name == "isr":
            irregular = (old == IRREGULAR) | (new == IRREGULAR)
        # A packed list holds slots: with different replicas, equal slots are different brokers.
        moved = np.flatnonzero(replicas_differ & ((old | new) != 0))
        differ[moved] = _lists_differ(
            old[moved], old_replicas[moved], new[moved], new_replicas[moved]
        )
        mark(name, differ)
    places = np.flatnonzero(irregular)
    changed[places] &= _SCALAR_BITS
    changed[places] |= _changed_lists(
        before,
        places if old_rows is None else old_rows[places],
        after,
        places if new_rows is None else new_rows[places],
    )
    return changed


_SCALAR_BITS = np.uint16(sum(int(_BITS[name]) for name in _SCALARS))


def _slots_that_differ(
    old_replicas: NDArray[np.int32],
    new_replicas: NDArray[np.int32],
    old_directories: NDArray[np.uint32],
    new_directories: NDArray[np.uint32],
    numbers: NDArray[np.int64] | None,
) -> tuple[Mask, Mask]:
    """Return masks of the rows whose replicas differ and whose directories differ."""
    count = len(old_replicas)
    replicas_differ, directories_differ = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    common = min(old_replicas.shape[1], new_replicas.shape[1])
    for wider in (old_replicas, new_replicas):
        for slot in range(common, wider.shape[1]):
            replicas_differ |= wider[:, slot] >= 0
    directories_differ |= replicas_differ
    # Slot by slot: a reduction over an axis of length 3 takes several times as long.
    for slot in range(common):
        old, new = old_replicas[:, slot], new_replicas[:, slot]
        is_other = old != new
        replicas_differ |= is_other
        was, now = old_directories[:, slot], new_directories[:, slot]
        differ = (was if numbers is None else numbers[was]) != now
        differ &= old >= 0
        # One of the two lists is longer.
        differ |= is_other & ((old < 0) | (new < 0))
        directories_differ |= differ
    return replicas_differ, directories_differ


def _lists_differ(
    old: NDArray[np.uint32],
    old_replicas: NDArray[np.int32],
    new: NDArray[np.uint32],
    new_replicas: NDArray[np.int32],
) -> Mask:
    """Return where two packed lists hold different brokers."""
    differ = np.zeros(len(old), np.bool_)
    rows = np.arange(len(old))
    for place in range(8):
        members = []
        for packed, replicas in ((old, old_replicas), (new, new_replicas)):
            slot = ((packed >> np.uint32(4 * place)) & np.uint32(15)).astype(np.int64)
            # An irregular row's slots are undefined; its lists are compared separately.
            member = replicas[rows, np.clip(slot - 1, 0, replicas.shape[1] - 1)]
            members.append(np.where(slot > 0, member, -1))
        differ |= members[0] != members[1]
    return differ


def _changed_lists(
    before: PartitionTable, old_rows: Rows, after: PartitionTable, new_rows: Rows
) -> NDArray[np.uint16]:
    """Return the lists that differ in pairs of irregular rows: u16 (n,)."""
    lists = [(name, int(_BITS[name])) for name in _BROKER_LISTS]
    old_id, new_id = cache(before.directory_id), cache(after.directory_id)
    found = np.zeros(len(old_rows), np.uint16)
    for place, (old_row, new_row) in enumerate(
        zip(map(int, old_rows), map(int, new_rows), strict=True)
    ):
        old, new = before.state_of(old_row), after.state_of(new_row)
        changed = 0
        for name, bit in lists:
            if old[name] != new[name]:
                changed |= bit
        if list(map(old_id, old["directories"])) != list(map(new_id, new["directories"])):
            changed |= int(_BITS["directories"])
        found[place] = changed
    return found


def _directory_numbers(before: PartitionTable, after: PartitionTable) -> NDArray[np.int64] | None:
    """Return for each directory number in ``before`` that in ``after`` or -1; None where all are
    equal.
    """
    old, new = (_directories(table) for table in (before, after))
    if new[: len(old)] == old:
        return None
    numbers = {directory: number for number, directory in enumerate(new)}
    return np.array([numbers.get(directory, -1) for directory in old], np.int64)


def _directories(table: PartitionTable) -> list[bytes]:
    """Return the ids of directories by number, up to the highest in the column."""
    highest = int(table.column("directories").max(initial=0))
    return [table.directory_id(number) for number in range(highest + 1)]
