"""Compaction of a table, in steps: its live rows move into another, which takes its place."""

from typing import Self, final

from kraft._core.table.rows import TableRows

@final
class Compaction:
    """Begin with ``PartitionTable.begin_compaction``; `finish` alone compacts at once.

    Drops the rows of removed topics and gives every topic one extent of rows. Row and topic numbers
    change with `finish`, directory numbers do not. Images and deltas of before keep the old rows
    and numbers, in memory too, until the last of them is dropped. A partition after a gap in its
    topic's ids stays outside of the extent. An object that is dropped before has changed nothing.
    """

    def __new__(cls, table: TableRows, fresh: TableRows) -> Self: ...
    def step(self, max_rows: int) -> bool:
        """Copy ``max_rows`` live rows; return whether some are left. About 0.2 us a row.

        Raises ReplayError if the table has changed since the first step: begin again. Likewise
        after `finish`.
        """

    def finish(self) -> None:
        """Copy the rows that are left, and put the copies in place.

        The journal then begins at the last offset that was forgotten. Raises as `step`.
        """
