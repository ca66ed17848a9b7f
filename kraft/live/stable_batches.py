"""``StableBatches``: hold committed batches back while their metadata transaction is open.

A reader of the state must not see a part of a metadata transaction (KIP-868). ``kraft.live`` passes
all committed batches through an object of this class, and applies what it returns.

Invariants: no batch is lost or reordered; after each call the returned batches end outside of a
transaction. A batch may end one transaction and begin the next: it is held back too.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft._core.bytes.batch import scan
from kraft.metadata.record_counts import RecordCounts


class StableBatches:
    """The batches of a transaction that is open, in memory until it ends."""

    def __init__(self) -> None:
        self._held: list[memoryview] = []

    def add(self, batches: memoryview) -> memoryview | None:
        """Add the next whole batches of the log; return those that readers may see now, if any.

        A transaction is returned with its end, in one piece: a reader that applies the pieces one
        after the other never stops inside of it.
        """
        last = _last_transaction(batches)
        if last is None:
            if self._held:
                self._held.append(batches)
                return None
            return batches
        position = len(batches) if last.is_closed else self._stable_end(batches, last.offset)
        if position == 0:
            self._held.append(batches)
            return None
        released = [*self._held, batches[:position]]
        self._held = [batches[position:]] if position < len(batches) else []
        return released[0] if len(released) == 1 else memoryview(b"".join(released))

    def _stable_end(self, batches: memoryview, start: int) -> int:
        """Return the position of the last batch before which no transaction is open.

        A transaction that begins at offset ``start`` is open at the end of ``batches``. 0 if one is
        open before each batch but the first, which is then held back with the batches before it.
        """
        while True:
            position = _position_of(batches, start)
            before = _last_transaction(batches[:position]) if position else None
            if before is None:
                # Held batches end inside of a transaction.
                return 0 if self._held else position
            if before.is_closed:
                return position
            # This batch ends that transaction, and begins the next one.
            start = before.offset

    def drop(self) -> None:
        """Forget held batches: a snapshot, which holds whole transactions only, replaces them."""
        self._held.clear()


class _LastTransaction(NamedTuple):
    """The last transaction in batches; ``offset`` is its first if it is open, else -1."""

    is_closed: bool
    offset: int


_MARKERS = ("BeginTransaction", "EndTransaction", "AbortTransaction")


def _last_transaction(batches: memoryview) -> _LastTransaction | None:
    """Return the last transaction that begins or ends in the batches; None where none does."""
    counts = RecordCounts()
    counts.add(batches)
    if not any(counts.by_type[name] for name in _MARKERS):
        return None
    start = counts.open_transaction
    return _LastTransaction(start is None, -1 if start is None else start)


def _position_of(batches: memoryview, offset: int) -> int:
    """Return the position of the batch that contains ``offset``.

    Records of that batch before the transaction are held back with it; a state is applied by whole
    batches.
    """
    table = scan(batches, verify_crc=False)
    index = int(table.last_offsets.searchsorted(offset))
    return int(table.positions[index])
