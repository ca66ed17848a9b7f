"""Kafka's RPCs: one module for each, with its schema, encoding, decoding and errors."""
