"""A node: network, disk and event loop around the pure layers, and its configuration."""
