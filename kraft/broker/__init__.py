"""A broker: `node` assembles it from its APIs, replication, logs, groups and metadata."""
