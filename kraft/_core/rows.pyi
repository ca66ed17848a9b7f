"""Rows with a past: topics and partitions come, change and go, and every step can be taken back."""

from weakref import ref

from kraft._core.columns import PartitionColumns
from kraft._core.history import TableDelta, TableImage

def refusal(reason: int, what: str) -> Exception:
    """The exception for a negative ``Refusal`` of rows.pxd: MemoryError, or ReplayError."""

class TableRows(PartitionColumns):
    """Topics and partitions as rows, with a journal of what each change overwrote."""

    indexed_row_count: int
    """The index from brokers to rows knows the rows below, whatever changes in them."""
    partition_count: int
    """Partitions of topics that are alive."""
    journal_sequence: int
    """How many journal entries were forgotten since the beginning."""
    is_journaling: bool
    journal_start_offset: int
    """The lowest offset to which ``revert`` and ``image`` reach."""

    def start_journal(self, offset: int) -> None:
        """From here on every change can be undone, back to ``offset``: the next to be applied.

        Records that are applied from then on must come in the order of their offsets, else they
        raise ReplayError. What an earlier journal held is forgotten. Raises InvalidRequestError
        while an image is alive.
        """

    def stop_journal(self) -> None:
        """Forgets the past and keeps none: for cold loads. Raises as ``start_journal``."""

    def forget(self, offset: int) -> None:
        """Drops what is only needed to go back to before ``offset``.

        What a live image needs is kept until a later call finds it gone. Cost: what is dropped.
        """

    def forget_all(self) -> None:
        """Drops the whole journal, whoever may need it; for those who ended every image."""

    def revert(self, offset: int) -> None:
        """Takes the table back to before the record at ``offset``. Cost: what changed since.

        Raises OffsetOutOfRangeError where the journal does not reach back to ``offset``,
        InvalidRequestError where a live image is of a later offset.
        """

    def image(self, offset: int | None = None) -> TableImage:
        """The table as of before the record at ``offset``, whatever happens to it later; O(1).

        By default behind the last offset that the journal knows of. Raises OffsetOutOfRangeError
        where the journal does not reach back to ``offset``.
        """

    def delta(self, since_offset: int, offset: int | None = None) -> TableDelta:
        """What records from ``since_offset`` to before ``offset`` changed; O(1), as ``image``. See
        ``history``.
        """

    def ensure_index(self, max_rows: int | None = None) -> bool:
        """Takes the rows that the index from brokers to rows does not know yet into it: all, or
        the next ``max_rows``; about 50 ns each. True where some are left.

        Whatever asks for a broker's rows does so itself; who must not wait for a million rows at
        once calls this before.
        """

    @property
    def is_indexed(self) -> bool:
        """True where the index knows every row."""

    def compact(self) -> None:
        """Drops the rows of removed topics and gives every topic one extent of rows.

        Row and topic numbers change, directory numbers do not. A partition behind a gap in its
        topic's ids stays outside of the extent. Costs a pass over the table. Raises ReplayError
        while the journal holds changes, which speak of rows, and InvalidRequestError while an image
        is alive.
        """

    @property
    def is_compact(self) -> bool:
        """True where no row is dead and no partition lies outside its topic's extent, as one behind
        a gap in its topic's ids always does.
        """

    @property
    def journal_length(self) -> int:
        """Entries that the journal holds."""

    @property
    def memory_sizes(self) -> dict[str, int]:
        """Bytes held: ``columns``, ``topics``, ``directories``, ``broker_index``, ``journal``.

        The journal's part costs a pass over it.
        """

    def _add_image(self, reference: ref[TableImage]) -> None:
        """Keeps in mind an image that needs the journal."""
