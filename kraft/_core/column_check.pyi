"""What a table out of a column checkpoint must prove before it is trusted."""

import numpy as np
from numpy.typing import NDArray

from kraft._core.table import PartitionTable

def adopt_extents(table: PartitionTable, path: str) -> None:
    """Checks that the topics' rows tile the table and lists those outside of extents.

    Costs as much as there are topics and scattered rows. Raises CorruptRecordError.
    """

class ColumnCheck:
    """The check of every row that such a table owes; called with the table, once.

    ``sections`` are the arrays of the file by name. Raises CorruptRecordError where a topic or
    directory is not found by its own name or id, a row is not of the topic and partition that its
    place says, a packed list names a slot that there is not, a directory is unknown or an irregular
    row's block is unsound; then the table is as it was. Where the check passes, the table takes
    over the blocks of the irregular rows.
    """

    def __init__(self, sections: dict[str, NDArray[np.generic]], path: str) -> None: ...
    def __call__(self, table: PartitionTable) -> None: ...
