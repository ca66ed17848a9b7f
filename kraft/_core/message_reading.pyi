"""Bytes -> typed objects, by the plan of a schema; for the other modules of the core."""
