"""Broker -> rows, for C callers (``broker_index.pxd``).

Python reaches the index through ``PartitionTable.broker_rows``.
"""

class BrokerIndex:
    """One list of row numbers a broker: where to look, never what is there."""

    count: int
    """Brokers that have a list."""

    @property
    def memory_size(self) -> int:
        """Bytes held."""
