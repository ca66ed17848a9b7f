"""The network of a node: who asks it, and whom it asks."""
