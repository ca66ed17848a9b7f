"""Replaying record batches into rows, without a Python object a record and without the GIL."""

class Replayer:
    """Applies record batches to the rows of one table, for ``PartitionTable.apply``."""

    @property
    def counts_by_key(self) -> dict[int, int]:
        """The number of replayed records by API key; keys of 63 and above count as 63."""
    @property
    def election_counts(self) -> tuple[int, int]:
        """The replayed changes that elected a leader uncleanly, and one from the ELR."""
