"""Typed objects -> bytes, by the plan of a schema; for the other modules of the core."""
