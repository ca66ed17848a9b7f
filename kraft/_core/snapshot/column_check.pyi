"""Checks of a table loaded from a column checkpoint, before its values are trusted."""

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.table import PartitionTable

def adopt_extents(table: PartitionTable, path: str) -> None:
    """Check that the topics' rows fill the table, and list the rows outside of extents.

    Takes time proportional to topics and scattered rows. Raises CorruptRecordError.
    """

class ColumnCheck:
    """The check of every row of such a table; call it once, with the table.

    ``sections`` are the arrays of the file by name. It raises CorruptRecordError and leaves the
    table unchanged if

    - a topic or directory is not found by its own name or id,
    - a row is not of the topic and partition of its place,
    - a packed list names a slot that does not exist, or a row an unknown directory,
    - an irregular row's block is malformed.

    If the check passes, the table adopts the blocks of the irregular rows.
    """

    def __init__(self, sections: dict[str, NDArray[np.generic]], path: str) -> None: ...
    def __call__(self, table: PartitionTable) -> None: ...
