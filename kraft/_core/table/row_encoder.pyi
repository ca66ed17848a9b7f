"""Encoding of rows as Topic and Partition records, straight from columns to finished batches.

For C callers only (``row_encoder.pxd``).
"""
