"""The memory of the partition table; the layout of a row is drawn in columns.pyx."""

from typing import Any

from numpy.typing import NDArray

class PartitionColumns:
    """Rows and their memory; ``PartitionTable`` adds what the rows mean."""

    stride: int
    """Replica slots a row, 1 to 8. It only grows; what does not fit lies in a side table."""
    row_count: int
    """Rows in use, those of removed topics included."""
    capacity: int
    """Rows that fit before the columns are made anew."""
    irregular_count: int
    """Rows whose truth lies in the side table."""

    def __init__(self, *, capacity: int = 0, stride: int = 3, populate: bool = False) -> None:
        """Room for ``capacity`` rows; ``populate`` makes its memory resident now instead of at the
        first touch of each page. Raises ValueError for a stride that is not 1 to 8, or a negative
        capacity.
        """

    def column(self, name: str) -> NDArray[Any]:
        """A read-only view of a column, ``row_count`` long, not copied; KeyError for other names.

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

        The view shows changes of rows in place as they come, but after rows were added it goes on
        showing the memory that it saw: take it anew after each ``apply``.
        """

    @property
    def column_memory_size(self) -> int:
        """Bytes that the columns and the blocks of irregular rows take."""

    def reserve(self, extra: int) -> None:
        """Makes room for ``extra`` more rows at once, where it is known how many come.

        Otherwise the columns grow by a quarter at a time. Those of a table of less than 32,768
        rows are copied then; a larger one has addresses for four times its rows, 16,777,216 at
        least, up to which nothing moves. Memory that is reserved and not used yet is not resident.
        Raises MemoryError.
        """

    def ensure_checked(self) -> None:
        """Runs the check that a table mapped without verification still owes.

        Whatever goes over many rows, or changes one, calls this first. It costs one pass over the
        columns, once. Raises CorruptRecordError where the columns contradict themselves.
        """
