"""What one partition record does to the rows: ``PartitionRegistration``, ``TopicDelta``."""

from kraft._core.rows import TableRows

class RecordRows(TableRows):
    """Rows that single records change; ``PartitionTable`` is the class to use."""

    def clear_elr(self, topic: str | None, offset: int) -> None:
        """A ClearElr record at ``offset``: of one topic, or with None of all.

        Empties ELR and last known ELR where either holds something, and adds one to the partition
        epoch there (KIP-966). A pass over the table. Raises ReplayError for an unknown topic.
        """
