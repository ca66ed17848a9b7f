"""Raft messages <-> Kafka's RPCs, in every version."""
