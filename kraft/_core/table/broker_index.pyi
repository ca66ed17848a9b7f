"""The index from brokers to the rows in which they may appear.

For C callers (``broker_index.pxd``). Python callers use ``PartitionTable.broker_rows``.
"""

class BrokerIndex:
    """A list of candidate rows for each broker; the caller checks each row."""

    count: int
    """The number of brokers with a list."""

    @property
    def memory_size(self) -> int:
        """Bytes held."""
