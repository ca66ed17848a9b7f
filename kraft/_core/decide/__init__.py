"""Decisions over many rows: placement, topic creation, elections, AlterPartition, directories."""
