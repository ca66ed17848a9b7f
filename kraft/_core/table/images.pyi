"""Images of a partition table as of an offset, and deltas between them, read from its journal.

Not for use in one thread while ``apply`` runs in another.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraft._core.table.rows import TableRows

class TableImage:
    """The immutable table before the record at ``offset``, while the table itself moves on.

    Creating one is O(1); reading it costs the changes since ``offset``, each once. While one is
    alive the table keeps the journal from ``offset`` on and rejects reverts to before ``offset``:
    create images of committed offsets only, and drop them when the next one is published. Rows and
    topics have the table's numbers. After a compaction, which gives the table other numbers, the
    image has the old ones and keeps the old rows in memory.
    """

    offset: int

    def __init__(self, table: TableRows, offset: int) -> None:
        """Raise OffsetOutOfRangeError where the journal does not reach back to ``offset``."""

    def partition(self, topic_name: str, partition_id: int) -> dict[str, Any]:
        """Return one partition, in the form of ``PartitionTable.state_of``.

        Raises UnknownTopicOrPartitionError if it did not exist.
        """

    def state_of(self, row: int) -> dict[str, Any]:
        """Return one row. Raises OffsetOutOfRangeError if it did not exist yet."""

    def rows_with_replica(self, broker: int, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return those of ``rows`` in which a broker was a replica, in their order.

        Omits rows of removed topics. Costs the rows that are given. Raises OffsetOutOfRangeError
        for a row that did not exist yet.
        """

    def topics_of(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the number of the topic of each row, removed or not.

        Raises as ``rows_with_replica``.
        """

    def partition_of(self, row: int) -> int:
        """Return a row's partition id. Raises OffsetOutOfRangeError if it did not exist yet."""

    def row_of(self, topic: int, partition: int) -> int:
        """Return the row of a partition, -1 if the topic had no such partition.

        Raises UnknownTopicOrPartitionError if no topic had this number.
        """

    @property
    def row_count(self) -> int:
        """Rows that were in use, including those of removed topics."""

    def topic_number(self, name: str) -> int:
        """Return the number of the topic that had this name, -1 if absent."""

    def topic_number_by_id(self, topic_id: Buffer) -> int:
        """Return the number of the topic that had this id, -1 if absent."""

    def topic_numbers(self) -> list[int]:
        """Return the numbers of the topics that existed, in the order of creation."""

    def topic_name(self, topic: int) -> str:
        """Return a topic's name; raise UnknownTopicOrPartitionError if no topic had the number."""

    def topic_id_of(self, topic: int) -> bytes:
        """Return a topic's id, 16 bytes; raises as ``topic_name``."""

    def topic_rows(self, topic: int) -> NDArray[np.int32]:
        """Return the rows that the topic had, by partition id; raises as ``topic_name``."""

    def directory_id(self, number: int) -> bytes:
        """Return the 16 bytes of a directory id, as ``PartitionTable.directory_id``."""

    def column(self, name: str) -> NDArray[Any]:
        """Return a read-only copy of ``leader``, ``leader_epoch``, ``partition_epoch``, ``topic``,
        ``partition`` (i32) or ``leader_recovery_state`` (i8), ``row_count`` long.

        Negative topics mark rows of removed topics. Raises KeyError for other names.
        """

    def leaders(self) -> NDArray[np.int32]:
        """Return ``column("leader")``."""

class TableDelta:
    """The changes between two images of one table, in the order of rows and topic numbers.

    Creating one is O(1); the first property access costs a pass over the journal between the two.
    It keeps both images alive: drop it after use.
    """

    before: TableImage
    after: TableImage

    def __init__(self, before: TableImage, after: TableImage) -> None:
        """Raise OffsetOutOfRangeError for images of two tables, or in the wrong order.

        Images on both sides of a compaction are of two tables.
        """

    @property
    def since_offset(self) -> int:
        """The offset of ``before``: the offset of the delta's first record."""

    @property
    def offset(self) -> int:
        """The offset of ``after``: the offset after the delta's last record."""

    @property
    def rows_changed(self) -> NDArray[np.int32]:
        """Distinct rows of both images that records in between wrote to, ascending.

        Includes rows that have their old values again.
        """

    @property
    def rows_added(self) -> list[tuple[int, int]]:
        """Ranges ``(first, last + 1)`` of rows that only ``after`` has."""

    @property
    def topics_added(self) -> list[int]:
        """Numbers of topics that only ``after`` has; a topic created again counts as new."""

    @property
    def topics_removed(self) -> list[int]:
        """Numbers of topics that only ``before`` has."""

    def row_steps(
        self,
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return what each record in between found: row, leader, leader epoch, partition epoch.

        One entry for each record that changed a row of ``after``, by row and then in the order of
        the log. Rows that were added in between are included, without the record that added them.
        Costs a pass over the journal, each time.
        """
