"""Decode typed objects from bytes by a schema's plan; for the other modules of the core."""
