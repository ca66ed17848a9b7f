"""The directories of a node before it runs: formatted, looked at, told apart."""
