"""Bytes and columns, compiled. Never imports from the floors above."""
