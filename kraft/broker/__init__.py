"""A broker: validation of produced batches, idempotent producers, answers from metadata."""
