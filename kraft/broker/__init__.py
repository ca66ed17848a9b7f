"""Brokers: validation of produced batches, and the producers of each partition."""
