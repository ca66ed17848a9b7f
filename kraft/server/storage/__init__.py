"""The directories of a node before it runs: format, inspect and identify them."""
