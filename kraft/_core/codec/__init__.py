"""Codecs: messages by their schema, metadata records, and the RPC bodies of the hot paths."""
