"""Snapshots: Kafka's checkpoint files, and the column checkpoint beside them."""
