"""``MetadataState``: the replayed metadata log, partitions and everything else together.

Batches go to the ``PartitionTable``, which applies records of topics and partitions and returns
every other record in its order; those go to ``ClusterState``. Metadata transactions (KIP-868):
records after a BeginTransaction are applied at once, and an AbortTransaction reverts them;
``stable_offset`` stays at the beginning of an open transaction. ``kraft.metadata`` (files),
``kraft.server`` and ``kraft.simulation`` apply batches; ``kraft.controller`` reads the state.

Invariants: a failed call on a state with a journal leaves it unchanged; offsets only grow, except
by ``revert``. Sources: Kafka's ``MetadataBatchLoader`` and ``OffsetControlManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft import records
from kraft._core.table.compaction import Compaction
from kraft._core.table.table import PartitionTable
from kraft.errors import KraftError, OffsetOutOfRangeError, ReplayError
from kraft.image.cluster import ClusterState
from kraft.records import CONTROL_TYPES, Record, decode_control, decode_value

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_LIMIT = (1 << 63) - 1


class _Transaction(NamedTuple):
    """A metadata transaction that ended: the offsets of its first and last record."""

    start: int
    end: int
    name: str | None
    is_aborted: bool


class MetadataState:
    """The metadata of a cluster before ``next_offset``.

    Turn ``journaling`` off for a cold load, then call :meth:`start_journal`. Inside a transaction
    the journal is always on, because an abort must be able to revert. Records of configs for which
    ``is_supported_config(resource_type, name)`` is false are ignored.
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
        # The first offset that is not in the state, if below `next_offset`: see
        # drop_open_transaction.
        self.dropped_transaction: int | None = None
        self._snapshot_offset: int | None = None
        self._journaling = journaling
        self._closed: list[_Transaction] = []
        if journaling:
            self.table.start_journal(0)

    @property
    def stable_offset(self) -> int:
        """The end (exclusive) of the state that no open transaction can revert."""
        return self.next_offset if self.transaction_start is None else self.transaction_start

    def stable_at(self, committed_offset: int) -> int:
        """Return the end (exclusive) of the state that readers may see.

        It is ``committed_offset``, or the beginning of a metadata transaction that is open or whose
        end is not committed.
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
        """Replay the records of ``batches`` with ``start_offset <= offset < end_offset``.

        Records below ``next_offset`` were applied before and are skipped. Raises
        :class:`CorruptRecordError` (with ``path`` and position) for malformed bytes,
        :class:`ReplayError` where a record contradicts the state. With a journal the state is then
        the one before the call; if the call had aborted a transaction that was open before it, the
        state before that transaction (see ``next_offset``). Without a journal the state is then
        unusable.
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
        """Replay a whole snapshot that ends at ``end_offset`` into an empty state."""
        with self.loading_snapshot(end_offset) as callbacks:
            self.table.apply(batches, verify_crc=verify_crc, path=path, **callbacks)

    @contextmanager
    def loading_snapshot(self, end_offset: int) -> Iterator[dict[str, Any]]:
        """Return the callbacks for ``table.apply`` with a snapshot that ends at ``end_offset``.

        Every record is applied at the snapshot's last offset, not at its offset in the file.
        """
        if self.next_offset:
            raise ReplayError("a snapshot can only be loaded into an empty state")
        journaling = self._journaling
        if journaling:
            # Offsets of records in the file are not offsets of the log: nothing can be reverted
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
        """Make all later changes revertible, down to the present ``stable_offset``."""
        self._journaling = True
        self._closed.clear()
        if self.transaction_start is not None:
            # The journal has been on since the transaction began, and an abort needs it.
            return
        self.table.start_journal(self.next_offset)
        self.state.start_journal(self.next_offset)

    def revert(self, offset: int) -> None:
        """Revert to the state before the record at ``offset``.

        A transaction that was open there is open again. Raises :class:`OffsetOutOfRangeError` where
        the journal does not reach back that far, or inside a transaction that was aborted since,
        whose changes are lost. Raises :class:`InvalidRequestError` while an image of a later offset
        is alive.
        """
        reachable = self.reachable(offset)
        if reachable != offset:
            raise OffsetOutOfRangeError(
                f"cannot revert to offset {offset}: it is in the transaction of offset "
                f"{reachable}, which was aborted"
            )
        self._revert(offset)

    def reachable(self, offset: int) -> int:
        """Return ``offset``, or the beginning of the aborted transaction in which it lies.

        `revert` can reach only that offset.
        """
        for closed in self._closed:
            if closed.is_aborted and closed.start < offset <= closed.end:
                return closed.start
        return offset

    def _revert(self, offset: int) -> None:
        # Check first, so that both are reverted or neither.
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
        """Revert an open transaction; return its offset, or None if none is open.

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
        """Drop the journal before ``offset``, but keep what aborting an open transaction needs."""
        offset = min(offset, self.stable_offset)
        self._closed = [closed for closed in self._closed if closed.end >= offset]
        self.table.forget(offset)
        self.state.forget(offset)

    def begin_compaction(self) -> Compaction:
        """Begin to drop the rows of removed partitions, and drop the journal: nothing before can be
        reverted.

        Numbers of rows and topics change at the end, but images of before keep theirs. Raises
        ReplayError while a transaction is open.
        """
        if self.transaction_start is not None:
            raise ReplayError("cannot compact the table: a transaction is open")
        self.forget(self.next_offset)
        return self.table.begin_compaction()

    def compact(self) -> None:
        """Compact the table at once: a pass over it. Raises as `begin_compaction`."""
        self.begin_compaction().finish()

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
            raise ReplayError("a snapshot contains a transaction record")
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
            raise ReplayError(f"a transaction ends at offset {offset}, but none is open")
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
            raise ReplayError("a snapshot contains a RemoveTopic record")
        self.state.remove_topic(name, offset)

    def __repr__(self) -> str:
        return (
            f"MetadataState(next_offset={self.next_offset}, topics={self.table.topic_count}, "
            f"partitions={self.table.partition_count}, brokers={len(self.state.brokers)})"
        )


_TRANSACTION_RECORDS = (
    records.BeginTransaction,
    records.EndTransaction,
    records.AbortTransaction,
)
