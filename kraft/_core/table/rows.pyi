"""Journaled rows of topics and partitions: every change can be reverted."""

from typing import Protocol
from weakref import ref

from kraft._core.table.columns import PartitionColumns

class RowReader(Protocol):
    """A reader of earlier rows, such as ``images.TableImage``."""

    @property
    def offset(self) -> int: ...

def refusal(reason: int, what: str) -> Exception:
    """Return the exception for a negative ``Refusal`` of rows.pxd: MemoryError or ReplayError."""

class TableRows(PartitionColumns):
    """Topics and partitions as rows, with a journal of the overwritten values."""

    indexed_row_count: int
    """The index from brokers to rows holds the rows below this one."""
    partition_count: int
    """Partitions of live topics."""
    journal_sequence: int
    """The number of journal entries that were dropped so far."""
    is_journaling: bool
    journal_start_offset: int
    """The lowest offset that ``revert`` and ``image`` accept."""

    def start_journal(self, offset: int) -> None:
        """Make all later changes revertible, down to ``offset``, the next offset to be applied.

        Drops an earlier journal. Later records must come in the order of their offsets, else they
        raise ReplayError. Raises InvalidRequestError while an image is alive.
        """

    def stop_journal(self) -> None:
        """Drop the journal and record no more: for cold loads. Raises as ``start_journal``."""

    def forget(self, offset: int) -> None:
        """Drop the journal before ``offset``, except what a live image needs.

        A later call drops that. Takes time in proportion to the dropped entries.
        """

    def forget_all(self) -> None:
        """Drop the whole journal; the caller guarantees that no image is in use."""

    def revert(self, offset: int) -> None:
        """Revert to the table before the record at ``offset``.

        Takes time in proportion to the changes since then.

        Raises OffsetOutOfRangeError where the journal does not reach back to ``offset``,
        InvalidRequestError while an image of a later offset is alive.
        """

    def ensure_index(self, max_rows: int | None = None) -> bool:
        """Add rows to the index from brokers to rows: all missing ones, or the next ``max_rows``.

        Costs about 50 ns a row. Returns whether some are still missing. Every query for a broker's
        rows adds the missing ones itself; callers that must not wait for a million rows call this
        in steps before.
        """

    @property
    def is_indexed(self) -> bool:
        """Whether the index holds every row."""

    @property
    def is_compact(self) -> bool:
        """Whether no row is dead and every partition is in its topic's extent.

        Never true with a partition after a gap in its topic's ids.
        """

    @property
    def journal_length(self) -> int:
        """The number of entries in the journal."""

    @property
    def memory_sizes(self) -> dict[str, int]:
        """Bytes held: ``columns``, ``topics``, ``directories``, ``broker_index``, ``journal``.

        Costs a pass over the journal.
        """

    def _add_image(self, reference: ref[RowReader]) -> None:
        """Register an image, which needs the journal from its offset on."""
