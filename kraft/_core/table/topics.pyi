"""Topics by number, name and id, and the row of each (topic, partition).

For C callers (``topics.pxd``): each table has one ``TopicTable``. Python callers use
``PartitionTable.topic_*`` and ``row_of``.
"""

class RowMap:
    """A map (topic, partition) -> row for partitions outside of their topic's extent."""

    count: int

class TopicTable:
    """The topics of a table by number; numbers are reused only after a compaction."""

    def __len__(self) -> int:
        """Return the number of live topics."""

    @property
    def count(self) -> int:
        """Assigned numbers, including those of removed topics."""

    @property
    def memory_size(self) -> int:
        """Bytes held by names, ids, entries and the map of scattered partitions."""
