"""Applying one partition record to its row: ``PartitionRegistration``, ``TopicDelta``."""

from kraft._core.table.rows import TableRows

def clear_elr(rows: TableRows, topic: str | None, offset: int) -> None:
    """See ``PartitionTable.clear_elr``."""
