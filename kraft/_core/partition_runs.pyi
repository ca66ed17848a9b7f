"""Runs of partition records, straight from bytes to rows."""

from kraft._core.record_rows import RecordRows

class PartitionRuns(RecordRows):
    """Rows that runs of partition records go into; ``PartitionTable`` is the class to use."""
