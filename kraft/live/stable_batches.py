"""``StableBatches``: hold committed batches back while their metadata transaction is open.

A reader of the state must not see a part of a metadata transaction (KIP-868). ``kraft.live`` passes
all committed batches through an object of this class, and applies what it returns.

Invariants: no batch is lost or reordered; after each call the returned batches end outside of a
transaction.
"""

from __future__ import annotations

from kraft._core.bytes.batch import scan
from kraft.metadata.record_counts import RecordCounts


class StableBatches:
    """The batches of a transaction that is open, in memory until it ends."""

    def __init__(self) -> None:
        self._held: list[memoryview] = []

    def add(self, batches: memoryview) -> list[memoryview]:
        """Add the next whole batches of the log; return those that readers may see now."""
        counts = RecordCounts()
        counts.add(batches)
        start = counts.open_transaction
        has_markers = any(counts.by_type[name] for name in _MARKERS)
        if not has_markers:
            if self._held:
                self._held.append(batches)
                return []
            return [batches]
        if start is None:
            # A transaction ended in these batches, and none is open behind it.
            released, self._held = [*self._held, batches], []
            return released
        position = _position_of(batches, start)
        released = [*self._held, batches[:position]] if position else self._held
        self._held = [batches[position:]]
        return released

    def drop(self) -> None:
        """Forget held batches: a snapshot, which holds whole transactions only, replaces them."""
        self._held.clear()


_MARKERS = ("BeginTransaction", "EndTransaction", "AbortTransaction")


def _position_of(batches: memoryview, offset: int) -> int:
    """Return the position of the batch that contains ``offset``.

    Records of that batch before the transaction are held back with it; a state is applied by whole
    batches.
    """
    table = scan(batches, verify_crc=False)
    index = int(table.last_offsets.searchsorted(offset))
    return int(table.positions[index])
