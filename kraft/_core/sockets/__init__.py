"""Sockets: the loop that owns plain connections in a thread without the GIL."""
