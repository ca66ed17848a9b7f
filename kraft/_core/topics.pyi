"""Topics by number, name and id, and the way from (topic, partition) to a row.

For C callers (``topics.pxd``): ``rows`` holds one ``TopicTable`` for each table. Python reaches the
same answers through ``PartitionTable.topic_*`` and ``row_of``.
"""

class RowMap:
    """(topic, partition) -> row, for the partitions that lie outside their topic's extent."""

    count: int

class TopicTable:
    """Topics by number; a number is never given out again before a compaction."""

    def __len__(self) -> int:
        """Topics that are alive."""

    @property
    def count(self) -> int:
        """Numbers given out; those of removed topics are among them."""

    @property
    def memory_size(self) -> int:
        """Bytes held by names, ids, entries and the map of scattered partitions."""
