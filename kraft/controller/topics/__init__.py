"""Decisions about topics and partitions: creation, deletion, elections, ISRs, reassignments."""
