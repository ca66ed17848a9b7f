"""A broker: validation of produced batches, idempotent producers, logs, answers from metadata."""
