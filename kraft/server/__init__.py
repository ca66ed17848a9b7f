"""A controller node: configuration, storage, event loop and APIs around the pure layers."""
