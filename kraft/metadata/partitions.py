"""``Partitions`` and ``Topics``: read access to the partition table.

Every column is a read-only view of the table's memory; nothing is copied. Called by library users,
the command line and the lab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.images import TableImage
from kraft._core.table.table import PartitionTable
from kraft.errors import (
    InvalidArgumentError,
    UnknownTopicIdError,
    UnknownTopicNameError,
    UnknownTopicOrPartitionError,
)
from kraft.metadata.arguments import INT32_MAX, sequence, shown, text, uuid_of, whole_number
from kraft.records import Uuid

#: In the ``isr`` column: this row is irregular; :meth:`Partitions.row` returns its lists.
IRREGULAR = 0xFFFFFFFF

_MEMBERS = ("isr", "elr", "last_known_elr")

#: How many rows `Partitions.rows` unpacks at a time.
_ROWS_AT_ONCE = 4096
_ALL_SLOTS = tuple(range(8))

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition with its lists unpacked; lists hold broker ids in Kafka's order."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int
    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class _Column(Generic[_Scalar]):
    """An attribute of ``Partitions`` that returns a column of its table."""

    def __set_name__(self, owner: type[Partitions], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, partitions: None, owner: type[Partitions]) -> Self: ...
    @overload
    def __get__(self, partitions: Partitions, owner: type[Partitions]) -> NDArray[_Scalar]: ...
    def __get__(
        self, partitions: Partitions | None, owner: type[Partitions]
    ) -> Self | NDArray[_Scalar]:
        return self if partitions is None else partitions._table.column(self._name)


def info_of(
    table: PartitionTable | TableImage, topic: str, partition: int, state: dict[str, Any]
) -> PartitionInfo:
    """Return one partition; ``state`` is ``table.state_of`` of its row."""
    return PartitionInfo(
        topic=topic,
        partition=partition,
        leader=state["leader"],
        leader_epoch=state["leader_epoch"],
        partition_epoch=state["partition_epoch"],
        leader_recovery_state=state["leader_recovery_state"],
        replicas=tuple(state["replicas"]),
        directories=tuple(Uuid(table.directory_id(number)) for number in state["directories"]),
        isr=tuple(state["isr"]),
        elr=tuple(state["elr"]),
        last_known_elr=tuple(state["last_known_elr"]),
        adding_replicas=tuple(state["adding_replicas"]),
        removing_replicas=tuple(state["removing_replicas"]),
    )


class _DirectoryIds(dict[int, Uuid]):
    """The uuids of directories by their number, each read from the table once."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    def __missing__(self, number: int) -> Uuid:
        found = self[number] = Uuid(self._table.directory_id(number))
        return found


class _RowUnpacker:
    """Unpacks rows out of whole columns, and keeps what many rows share."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table
        table.ensure_checked()
        #: Of a packed column: the slots of `replicas`.
        self._slots: dict[int, tuple[int, ...]] = {0: ()}
        self._directory = _DirectoryIds(table).__getitem__

    def can_unpack(self, rows: NDArray[Any]) -> bool:
        """Return whether all are rows of partitions."""
        if rows.min() < 0 or rows.max() >= self._table.row_count:
            return False
        return bool((self._table.column("topic")[rows] >= 0).all())

    def unpack(
        self, rows: NDArray[Any], irregular: Callable[[int], PartitionInfo]
    ) -> Iterator[PartitionInfo]:
        """Yield the rows; ``irregular`` returns those whose lists are not in the columns."""
        table = self._table
        names = ("topic", "partition", "leader", "leader_epoch", "partition_epoch")
        more = ("leader_recovery_state", "replicas", "directories", "isr", "elr", "last_known_elr")
        columns = [table.column(name)[rows].tolist() for name in (*names, *more)]
        topic, topic_name = -1, ""
        for (
            row,
            number,
            partition,
            leader,
            leader_epoch,
            partition_epoch,
            recovery,
            replicas,
            directories,
            isr,
            elr,
            last,
        ) in zip(rows.tolist(), *columns, strict=True):
            if isr == IRREGULAR:
                yield irregular(row)
                continue
            if number != topic:
                topic, topic_name = number, table.topic_name(number)
            if replicas[-1] < 0:
                replicas = replicas[: replicas.index(-1)]
                directories = directories[: len(replicas)]
            brokers = tuple(replicas)
            yield PartitionInfo(
                topic_name,
                partition,
                leader,
                leader_epoch,
                partition_epoch,
                recovery,
                brokers,
                tuple(map(self._directory, directories)),
                self._members(isr, brokers),
                self._members(elr, brokers) if elr else (),
                self._members(last, brokers) if last else (),
                (),
                (),
            )

    def _members(self, packed: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
        slots = self._slots.get(packed)
        if slots is None:
            places = range(0, packed.bit_length(), 4)
            slots = tuple((packed >> place & 15) - 1 for place in places)
            self._slots[packed] = slots
        # In most rows all replicas are in sync, in their order.
        if slots == _ALL_SLOTS[: len(replicas)]:
            return replicas
        return tuple([replicas[slot] for slot in slots])


class Partitions:
    """Every partition, one row each.

    The columns are numpy arrays over the table's own memory (read-only, no copy), ``n`` rows long
    and, for ``replicas`` and ``directories``, ``stride`` slots wide:

    - ``topic``, ``partition``: i32. ``topic`` is a number, see :attr:`TopicInfo.number`.
    - ``leader``, ``leader_epoch``, ``partition_epoch``: i32; leader -1 means none.
    - ``leader_recovery_state``: i8; 0 recovered, 1 recovering.
    - ``replicas``: i32 (n, stride), broker ids, -1 where a row has fewer.
    - ``directories``: u32 (n, stride), numbers of uuids; :meth:`directory_id` returns the uuid.
    - ``isr``, ``elr``, ``last_known_elr``: u32, packed: four bits an entry from the lowest, each
      ``slot + 1`` of ``replicas``; :meth:`members` unpacks.

    A row whose lists do not fit (a reassignment in flight, more replicas than the stride) is
    irregular: ``isr == IRREGULAR``; :meth:`row` and :meth:`replica_matrix` return its lists. Rows
    of removed topics stay until compaction and have ``topic < 0``; :attr:`live` masks them.
    """

    topic = _Column[np.int32]()
    partition = _Column[np.int32]()
    leader = _Column[np.int32]()
    leader_epoch = _Column[np.int32]()
    partition_epoch = _Column[np.int32]()
    leader_recovery_state = _Column[np.int8]()
    replicas = _Column[np.int32]()
    directories = _Column[np.uint32]()
    isr = _Column[np.uint32]()
    elr = _Column[np.uint32]()
    last_known_elr = _Column[np.uint32]()

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    def __len__(self) -> int:
        """The number of live partitions."""
        return self._table.partition_count

    @property
    def live(self) -> NDArray[np.bool_]:
        """True for each row that holds a partition: bool (n,)."""
        return np.asarray(self._table.column("topic") >= 0)

    @property
    def stride(self) -> int:
        """The number of replica slots a row."""
        return self._table.stride

    @property
    def irregular_rows(self) -> NDArray[np.int64]:
        """The rows whose lists only :meth:`row` returns: i64."""
        return np.flatnonzero((self._table.column("isr") == IRREGULAR) & self.live)

    def members(self, column: str) -> NDArray[np.int32]:
        """Return the broker ids of ``isr``, ``elr`` or ``last_known_elr``: i32 (n, widest), padded
        with -1.

        A copy, in the order of the lists; irregular rows are included.
        """
        if column not in _MEMBERS:
            raise InvalidArgumentError(
                f"column must be one of {', '.join(_MEMBERS)}, not {shown(column)}"
            )
        packed = self._table.column(column)
        replicas = self._table.column("replicas")
        irregular = {
            int(row): self._table.state_of(int(row))[column] for row in self.irregular_rows
        }
        width = max([self.stride, *map(len, irregular.values())])
        out = np.full((len(packed), width), -1, np.int32)
        rows = np.arange(len(packed))
        regular = self._table.column("isr") != IRREGULAR
        for place in range(self.stride):
            slot = ((packed >> np.uint32(4 * place)) & np.uint32(15)).astype(np.int64)
            here = regular & (slot > 0)
            out[here, place] = replicas[rows[here], slot[here] - 1]
        for row, brokers in irregular.items():
            out[row] = -1
            out[row, : len(brokers)] = brokers
        return out

    def replica_matrix(self) -> NDArray[np.int32]:
        """Return a copy of all replicas, irregular rows included: i32 (n, widest),
        padded with -1.
        """
        replicas = self._table.column("replicas")
        irregular = {
            int(row): self._table.state_of(int(row))["replicas"] for row in self.irregular_rows
        }
        width = max([self.stride, *map(len, irregular.values())])
        out = np.full((len(replicas), width), -1, np.int32)
        out[:, : self.stride] = replicas
        for row, brokers in irregular.items():
            out[row] = -1
            out[row, : len(brokers)] = brokers
        return out

    def isr_size(self) -> NDArray[np.int32]:
        """Return the number of replicas in sync of each row: i32 (n,)."""
        packed = self._table.column("isr")
        size = np.zeros(len(packed), np.int32)
        for place in range(8):
            size += (packed >> np.uint32(4 * place)) & np.uint32(15) != 0
        for row in self.irregular_rows:
            size[row] = len(self._table.state_of(int(row))["isr"])
        return size

    def replica_count(self) -> NDArray[np.int32]:
        """Return the number of replicas of each row: i32 (n,)."""
        replicas = self._table.column("replicas")
        count: NDArray[np.int32] = np.sum(replicas >= 0, axis=1, dtype=np.int32)
        for row in self.irregular_rows:
            count[row] = len(self._table.state_of(int(row))["replicas"])
        return count

    def directory_id(self, number: int) -> Uuid:
        """Return the uuid for a number of the ``directories`` column."""
        number = whole_number(number, "number", high=INT32_MAX)
        try:
            return Uuid(self._table.directory_id(number))
        except IndexError:
            raise InvalidArgumentError(f"no directory has the number {number}") from None

    def row(self, row: int) -> PartitionInfo:
        """Return one row with its lists unpacked.

        Raises :class:`OffsetOutOfRangeError` where the table has no such row,
        :class:`UnknownTopicOrPartitionError` for the row of a removed topic.
        """
        row = whole_number(row, "row", high=INT32_MAX)
        state = self._table.state_of(row)
        number = int(self._table.column("topic")[row])
        if number < 0:
            raise UnknownTopicOrPartitionError(f"row {row} belonged to a removed topic")
        partition = int(self._table.column("partition")[row])
        return info_of(self._table, self._table.topic_name(number), partition, state)

    def rows(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Iterator[PartitionInfo]:
        """Yield many rows, each as :meth:`row` returns it, in about half the time.

        ``rows``: row numbers, (count,). Unpacks a few thousand at a time: memory does not grow
        with their number, and the state must not change meanwhile. Raises as :meth:`row`, and
        :class:`InvalidArgumentError` at once for anything but row numbers.
        """
        if not isinstance(rows, np.ndarray):
            given = sequence(rows, "rows", "row numbers")
            numbers = [whole_number(each, "row", high=INT32_MAX) for each in given]
            return self._unpacked(np.array(numbers, np.int64))
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise InvalidArgumentError(
                f"rows must be an array of integers of one dimension, not of {rows.dtype} and of "
                f"shape {rows.shape}"
            )
        return self._unpacked(rows)

    def _unpacked(self, wanted: NDArray[np.integer[Any]]) -> Iterator[PartitionInfo]:
        unpacker = _RowUnpacker(self._table)
        for start in range(0, len(wanted), _ROWS_AT_ONCE):
            some = wanted[start : start + _ROWS_AT_ONCE]
            if unpacker.can_unpack(some):
                yield from unpacker.unpack(some, self.row)
            else:
                for row in some:
                    yield self.row(int(row))

    def find(self, topic: str, partition: int) -> PartitionInfo:
        """Return one partition; raises :class:`UnknownTopicOrPartitionError`."""
        number = self._table.topic_number(text(topic, "topic"))
        partition = whole_number(partition, "partition", low=-(1 << 31), high=INT32_MAX)
        row = self._table.row_of(number, partition) if number >= 0 else -1
        if row < 0:
            raise UnknownTopicOrPartitionError(f"there is no partition {topic}-{partition}")
        return self.row(row)

    def __iter__(self) -> Iterator[PartitionInfo]:
        return self.rows(self._table.live_rows())

    def __repr__(self) -> str:
        return f"Partitions({len(self)} partitions of {self._table.topic_count} topics)"


@dataclass(frozen=True, slots=True, eq=False)
class TopicInfo:
    """One topic; ``rows`` are its partitions' rows by partition id: i32 (partitions,).

    Equality compares all four fields; the hash is that of the id.
    """

    name: str
    id: Uuid
    number: int
    rows: NDArray[np.int32]

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicInfo):
            return NotImplemented
        mine, theirs = (self.name, self.id, self.number), (other.name, other.id, other.number)
        return mine == theirs and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash(self.id)


class Topics(Mapping[str, TopicInfo]):
    """Topics by name; :meth:`by_id` returns one by its uuid."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    def __getitem__(self, name: str) -> TopicInfo:
        number = self._number(name)
        if number < 0:
            raise UnknownTopicNameError(f"there is no topic {shown(name)}")
        return self._info(number)

    def __contains__(self, name: object) -> bool:
        return self._number(name) >= 0

    def _number(self, name: object) -> int:
        if not isinstance(name, str):
            return -1
        try:
            return self._table.topic_number(name)
        except UnicodeEncodeError:
            return -1

    def by_id(self, topic_id: bytes | str) -> TopicInfo:
        """Return the topic of a uuid (16 bytes, or Kafka's text); raises
        :class:`UnknownTopicIdError`.
        """
        uuid = uuid_of(topic_id, "topic_id")
        number = self._table.topic_number_by_id(uuid)
        if number < 0:
            raise UnknownTopicIdError(f"no topic has the id {uuid!s}")
        return self._info(number)

    def _info(self, number: int) -> TopicInfo:
        table = self._table
        return TopicInfo(
            table.topic_name(number),
            Uuid(table.topic_id_of(number)),
            number,
            table.topic_rows(number),
        )

    def __iter__(self) -> Iterator[str]:
        for number in self._table.topic_numbers():
            yield self._table.topic_name(number)

    def __len__(self) -> int:
        return self._table.topic_count

    def __repr__(self) -> str:
        return f"Topics({len(self)} topics)"
