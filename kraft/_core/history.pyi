"""Reading the past of a table, and telling what changed: images and deltas over its journal.

Nothing here may be used in one thread while ``apply`` runs in another.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraft._core.rows import TableRows
from kraft._core.table import PartitionTable

class TableImage:
    """A table as of before the record at ``offset``, which never moves while the tip moves on.

    Making one costs nothing; asking it costs what changed between ``offset`` and the tip, each
    change once. While one is alive the table keeps the journal from ``offset`` on, refuses to
    revert to before it, and refuses to be compacted: so an image is made of a committed offset
    only, and dropped when the next one is published. Rows and topics keep the table's numbers.
    """

    offset: int

    def __init__(self, table: TableRows, offset: int) -> None:
        """Raises OffsetOutOfRangeError where the journal does not reach back to ``offset``."""

    def partition(self, topic_name: str, partition_id: int) -> dict[str, Any]:
        """One partition, as ``PartitionTable.state_of`` gives it.

        Raises UnknownTopicOrPartitionError where it was not there.
        """

    def state_of(self, row: int) -> dict[str, Any]:
        """One row. Raises OffsetOutOfRangeError where it was not there yet."""

    def row_of(self, topic: int, partition: int) -> int:
        """The row of a partition, -1 where the topic had none of this id.

        Raises UnknownTopicOrPartitionError where no topic had this number.
        """

    @property
    def row_count(self) -> int:
        """Rows that were in use, those of removed topics included."""

    def topic_number(self, name: str) -> int:
        """The number of the topic that had this name, -1 where there was none."""

    def topic_number_by_id(self, topic_id: Buffer) -> int:
        """The number of the topic that had this id, -1 where there was none."""

    def topic_numbers(self) -> list[int]:
        """The numbers of the topics that were there, in the order in which they came."""

    def topic_name(self, topic: int) -> str:
        """Raises UnknownTopicOrPartitionError where no topic had this number."""

    def topic_id_of(self, topic: int) -> bytes:
        """16 bytes; raises as ``topic_name``."""

    def topic_rows(self, topic: int) -> NDArray[np.int32]:
        """The rows that the topic had, by partition id; raises as ``topic_name``."""

    def directory_id(self, number: int) -> bytes:
        """The 16 bytes of a directory id, as ``PartitionTable.directory_id``."""

    def column(self, name: str) -> NDArray[Any]:
        """A read-only copy of ``leader``, ``leader_epoch``, ``partition_epoch``, ``topic``,
        ``partition`` (i32) or ``leader_recovery_state`` (i8), ``row_count`` long.

        Negative topics mark rows of topics that were removed before. Raises KeyError for others.
        """

    def leaders(self) -> NDArray[np.int32]:
        """``column("leader")``."""

    def solid(self) -> PartitionTable:
        """A table of its own, compact and without a journal; costs the size of the table.

        Rows and topics get new numbers there, directories keep theirs.
        """

class TableDelta:
    """What changed between two images of one table, in the order of rows and topic numbers.

    Making one costs nothing; the first question costs a pass over the journal between the two. It
    keeps both images alive: drop it when it was handed on.
    """

    before: TableImage
    after: TableImage

    def __init__(self, before: TableImage, after: TableImage) -> None:
        """Raises OffsetOutOfRangeError for images of two tables, or in the wrong order."""

    @property
    def since_offset(self) -> int:
        """The offset of ``before``: of the first record that is part of the delta."""

    @property
    def offset(self) -> int:
        """The offset of ``after``: behind the last record that is part of the delta."""

    @property
    def rows_changed(self) -> NDArray[np.int32]:
        """Rows that both images have and that records wrote to in between, ascending, each once.

        A row that was written back to what it was is among them.
        """

    @property
    def rows_added(self) -> list[tuple[int, int]]:
        """Ranges ``(first, last + 1)`` of rows that only ``after`` has."""

    @property
    def topics_added(self) -> list[int]:
        """Numbers of topics that only ``after`` has; a topic made again under its name is one."""

    @property
    def topics_removed(self) -> list[int]:
        """Numbers of topics that only ``before`` has."""
