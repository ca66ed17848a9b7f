"""Encode typed objects by a schema's plan; for the other modules of the core."""
