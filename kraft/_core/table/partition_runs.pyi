"""Applying runs of partition records, straight from bytes to rows.

For C callers only (``partition_runs.pxd``).
"""
