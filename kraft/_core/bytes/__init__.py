"""Bytes: wire cursors, record batches, CRC-32C, compression and growing C memory."""
