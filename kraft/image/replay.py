"""``Cluster``: one replay of the metadata log, partitions and everything else together.

Owns the order in which records take effect: batches go to the ``PartitionTable``, which applies
topics and partitions itself and hands every other record over in its place; those go to
``ClusterState``. Owns metadata transactions (KIP-868): what lies between BeginTransaction and
EndTransaction takes effect as it is read and is taken back by AbortTransaction, so that
``stable_offset`` stays at the beginning of an open one. Fed by ``kraft.metadata`` (files) and by
whoever appends; read by ``kraft.controller``.

Invariants: a call that fails on a live cluster leaves it as it was; offsets only grow but for
``revert``. Source of the rules: Kafka's ``MetadataBatchLoader`` and ``OffsetControlManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft import records
from kraft._core.table import PartitionTable
from kraft.errors import KraftError, OffsetOutOfRangeError, ReplayError
from kraft.image.cluster import ClusterState
from kraft.records import CONTROL_TYPES, Record, decode_control, decode_value

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_LIMIT = (1 << 63) - 1


class _Transaction(NamedTuple):
    """A metadata transaction that is over: the offsets of its first and last record."""

    start: int
    end: int
    name: str | None
    is_aborted: bool


class Cluster:
    """The state of a cluster as of ``next_offset``.

    ``journaling`` off is for a cold load, followed by :meth:`start_journal`; within a transaction
    the journal is always on, as an abort must find its way back. Of configs that
    ``is_supported_config(resource_type, name)`` does not know the records are passed over.
    """

    def __init__(
        self,
        *,
        journaling: bool = False,
        table: PartitionTable | None = None,
        is_supported_config: Callable[[int, str], bool] | None = None,
    ) -> None:
        self.table = PartitionTable() if table is None else table
        self.state = ClusterState(journaling=journaling, is_supported_config=is_supported_config)
        self.next_offset = 0
        self.transaction_start: int | None = None
        self.transaction_name: str | None = None
        # Where the state ends short of `next_offset`: see drop_open_transaction.
        self.dropped_transaction: int | None = None
        self._snapshot_offset: int | None = None
        self._journaling = journaling
        self._closed: list[_Transaction] = []
        if journaling:
            self.table.start_journal(0)

    @property
    def stable_offset(self) -> int:
        """Where the state ends that no open transaction can take back (exclusive)."""
        return self.next_offset if self.transaction_start is None else self.transaction_start

    def stable_at(self, committed_offset: int) -> int:
        """Up to where (exclusive) others may see the state, when everything below
        ``committed_offset`` is committed: never inside a metadata transaction, be it open at the
        tip or over there with an end that is not committed.
        """
        start = self.transaction_start
        stable = committed_offset if start is None else min(committed_offset, start)
        for closed in self._closed:
            if closed.start < stable <= closed.end:
                return closed.start
        return stable

    def apply(
        self,
        batches: Buffer,
        *,
        start_offset: int = 0,
        end_offset: int = _NO_LIMIT,
        verify_crc: bool = True,
        path: str | PathLike[str] | None = None,
        base_position: int = 0,
    ) -> None:
        """Replays the records of ``batches`` with ``start_offset <= offset < end_offset``.

        Records below ``next_offset`` took effect before and are passed over. Raises
        :class:`CorruptRecordError` (with ``path`` and position) for bytes that are no records,
        :class:`ReplayError` where a record contradicts the state. With a journal the cluster is
        then as it was before the call, or, if the call had already aborted a transaction that was
        open before it, as it was before that transaction (``next_offset`` says so); without one it
        is of no further use.
        """
        before = self.next_offset
        start_offset = max(start_offset, before)
        try:
            reached = self.table.apply(
                batches,
                start_offset=start_offset,
                end_offset=end_offset,
                verify_crc=verify_crc,
                on_record=self._replay,
                on_control=self._replay_control,
                on_topic_removed=self._remove_topic,
                path=path,
                base_position=base_position,
            )
        except (KraftError, MemoryError):
            if self._journaling:
                self._revert(self.reachable(before))
            raise
        if reached >= 0:
            self.next_offset = max(reached, before)

    def apply_snapshot(
        self,
        batches: Buffer,
        *,
        end_offset: int,
        verify_crc: bool = True,
        path: str | PathLike[str] | None = None,
    ) -> None:
        """Replays a whole snapshot that ends at ``end_offset``; nothing else may have been applied
        yet.
        """
        with self.loading_snapshot(end_offset) as callbacks:
            self.table.apply(batches, verify_crc=verify_crc, path=path, **callbacks)

    @contextmanager
    def loading_snapshot(self, end_offset: int) -> Iterator[dict[str, Any]]:
        """The callbacks with which a table is to be fed from a snapshot that ends at
        ``end_offset``.

        Every record then counts as of the snapshot's last offset, whatever it has in the file.
        """
        if self.next_offset:
            raise ReplayError("a snapshot is loaded into an empty cluster only")
        journaling = self._journaling
        if journaling:
            # The records' places in the file are no offsets of the log: nothing could be reverted
            # to them.
            self.table.stop_journal()
            self.state.stop_journal()
        self._snapshot_offset = max(end_offset - 1, 0)
        try:
            yield {
                "on_record": self._replay,
                "on_control": self._replay_control,
                "on_topic_removed": self._remove_topic,
            }
        finally:
            self._snapshot_offset = None
        self.next_offset = end_offset
        if journaling:
            self.start_journal()

    def start_journal(self) -> None:
        """From here on changes can be reverted, down to the present ``stable_offset``."""
        self._journaling = True
        self._closed.clear()
        if self.transaction_start is not None:
            # The journal has been on since the transaction began, and an abort needs it.
            return
        self.table.start_journal(self.next_offset)
        self.state.start_journal(self.next_offset)

    def revert(self, offset: int) -> None:
        """Takes the cluster back to before the record at ``offset``.

        A transaction that was open there is open again. Raises :class:`OffsetOutOfRangeError` where
        the journal does not reach back that far, or into a transaction that was aborted since: what
        was done in it is gone. Raises :class:`InvalidRequestError` where an image of the table is
        in the way.
        """
        reachable = self.reachable(offset)
        if reachable != offset:
            raise OffsetOutOfRangeError(
                f"cannot revert to offset {offset}: it lies in the transaction of offset "
                f"{reachable}, which was aborted"
            )
        self._revert(offset)

    def reachable(self, offset: int) -> int:
        """Where `revert` leads to: ``offset``, or the beginning of the aborted transaction in which
        it lies.
        """
        for closed in self._closed:
            if closed.is_aborted and closed.start < offset <= closed.end:
                return closed.start
        return offset

    def _revert(self, offset: int) -> None:
        # Both or none.
        self.state.check_revert(offset)
        self.table.revert(offset)
        self.state.revert(offset)
        self.next_offset = min(self.next_offset, offset)
        if self.transaction_start is not None and self.transaction_start >= offset:
            self.transaction_start = self.transaction_name = None
        if self.dropped_transaction is not None and self.dropped_transaction >= offset:
            self.dropped_transaction = None
        while self._closed and self._closed[-1].end >= offset:
            closed = self._closed.pop()
            if closed.start < offset:
                self.transaction_start, self.transaction_name = closed.start, closed.name

    def drop_open_transaction(self) -> int | None:
        """Takes back what an open transaction did; its offset, or None where none is open.

        For readers at the end of a log: records of an open transaction are not part of the state.
        """
        start = self.transaction_start
        if start is not None:
            end, quorum = self.next_offset, self.state.quorum
            self.revert(start)
            self.state.quorum_cell.keep(quorum, end - 1)
            self.next_offset = end
            self.dropped_transaction = start
            self._end_transaction()
        return start

    def forget(self, offset: int) -> None:
        """Gives up the way back to before ``offset``, but never that out of an open transaction."""
        offset = min(offset, self.stable_offset)
        self._closed = [closed for closed in self._closed if closed.end >= offset]
        self.table.forget(offset)
        self.state.forget(offset)

    def _replay(self, offset: int, value: bytes) -> None:
        record = decode_value(value)
        if self._snapshot_offset is not None:
            offset = self._snapshot_offset
        if isinstance(record, records.ClearElr):
            self.table.clear_elr(record.topic_name or None, offset)
        elif isinstance(record, _TRANSACTION_RECORDS):
            self._replay_transaction(record, offset)
        else:
            self.state.apply(record, offset)

    def _replay_transaction(self, record: Record, offset: int) -> None:
        if self._snapshot_offset is not None:
            raise ReplayError("a snapshot holds a transaction record")
        if isinstance(record, records.BeginTransaction):
            if self.transaction_start is not None:
                raise ReplayError(
                    f"a transaction begins at offset {offset} inside the one of offset "
                    f"{self.transaction_start}"
                )
            if not self._journaling:
                self.table.start_journal(offset)
                self.state.start_journal(offset)
            self.transaction_start, self.transaction_name = offset, record.name
            return
        if self.transaction_start is None:
            raise ReplayError(f"a transaction ends at offset {offset} and none is open")
        is_aborted = isinstance(record, records.AbortTransaction)
        if self._journaling:
            self._closed.append(
                _Transaction(self.transaction_start, offset, self.transaction_name, is_aborted)
            )
        if is_aborted:
            self.table.revert(self.transaction_start)
            self.state.abort(self.transaction_start, offset)
        self._end_transaction()

    def _end_transaction(self) -> None:
        self.transaction_start = self.transaction_name = None
        if not self._journaling:
            self.table.stop_journal()
            self.state.stop_journal()

    def _replay_control(self, offset: int, epoch: int, control_type: int, value: bytes) -> None:
        if control_type not in CONTROL_TYPES:
            return
        if self._snapshot_offset is not None:
            offset = self._snapshot_offset
        self.state.apply_control(decode_control(control_type, value), offset, epoch)

    def _remove_topic(self, offset: int, name: str) -> None:
        if self._snapshot_offset is not None:
            raise ReplayError("a snapshot removes a topic")
        self.state.remove_topic(name, offset)

    def __repr__(self) -> str:
        return (
            f"Cluster(next_offset={self.next_offset}, topics={self.table.topic_count}, "
            f"partitions={self.table.partition_count}, brokers={len(self.state.brokers)})"
        )


_TRANSACTION_RECORDS = (
    records.BeginTransaction,
    records.EndTransaction,
    records.AbortTransaction,
)
