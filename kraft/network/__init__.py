"""Sockets: framing, the listener, connections to other nodes, and a blocking client."""
