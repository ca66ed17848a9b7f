"""The columns of the partition table: one value a partition in each numpy array.

``columns.pyx`` describes the layout of a row.
"""

from typing import Any

from numpy.typing import NDArray

class PartitionColumns:
    """The columns and their memory; ``PartitionTable`` adds topics, journal and codecs."""

    stride: int
    """Replica slots a row, 1 to 8. It only grows; rows that do not fit are in a side table."""
    row_count: int
    """Rows in use, those of removed topics included."""
    capacity: int
    """Rows that fit before the columns grow."""
    irregular_count: int
    """Rows whose values are in the side table."""

    def __init__(
        self,
        *,
        capacity: int = 0,
        stride: int = 3,
        populate: bool = False,
        huge_pages: bool = True,
    ) -> None:
        """Reserve ``capacity`` rows; ``populate`` makes their memory resident at once.

        Otherwise each page becomes resident at its first write. ``huge_pages`` asks for huge ones
        from 262,144 rows on: a first write to one takes up to some milliseconds. Raises ValueError
        for a stride that is not 1 to 8, or a negative capacity.
        """

    def column(self, name: str) -> NDArray[Any]:
        """Return a read-only view of a column, ``row_count`` long; KeyError for other names.

        ============================  =============  =============================================
        name                          dtype, shape   value
        ============================  =============  =============================================
        ``leader``                    i32 [n]        -1: no leader
        ``leader_epoch``              i32 [n]
        ``partition_epoch``           i32 [n]
        ``topic``                     i32 [n]        the topic's number; ``-1 - number`` once the
                                                     topic was removed
        ``partition``                 i32 [n]        the partition's id
        ``replicas``                  i32 [n, s]     -1 where unused; an irregular row shows its
                                                     first ``s`` (the stride)
        ``directories``               u32 [n, s]     numbers, see ``directory_id``
        ``isr``                       u32 [n]        packed: four bits a member, from the lowest,
                                                     each its slot in ``replicas`` plus 1;
                                                     0xffffffff marks an irregular row
        ``elr``, ``last_known_elr``   u32 [n]        packed likewise; of an irregular row ``elr`` is
                                                     the number of its block in the side table
        ``leader_recovery_state``     i8 [n]         0 recovered, 1 recovering (KIP-704)
        ============================  =============  =============================================

        The view shows later changes of its rows, until added rows move the column to new memory:
        call this again after each ``apply``.
        """

    def copy_shared_pages(self) -> None:
        """Copy the pages that the table still shares with the file of its column checkpoint.

        Done in another thread, without the interpreter lock, a running node then never waits for
        the file's disk, nor for the first write to a page. Does nothing for other tables.
        """

    @property
    def column_memory_size(self) -> int:
        """Bytes of the columns and of the blocks of irregular rows."""

    def ask_for_huge_pages(self) -> None:
        """Let the system gather the rows of a large table into huge pages when it has time."""

    def reserve(self, extra: int) -> None:
        """Reserve ``extra`` more rows at once, if the caller knows how many rows follow.

        Otherwise the columns grow by a quarter at a time. Columns of less than 32,768 rows are
        copied then. Larger ones have addresses for four times their rows, at least for 16,777,216,
        and do not move below that size. Reserved memory becomes resident when it is first written.
        Raises MemoryError.
        """

    def ensure_checked(self) -> None:
        """Check the columns of a table that was mapped from a file without verification.

        Every operation over many rows, and every change, calls this first. Only the first call does
        something: a pass over the columns. Raises CorruptRecordError for inconsistent columns.
        """
