"""Decisions about nodes: registration, sessions, heartbeats, log directories, producer ids."""
