"""The disk of a running node: log, snapshots, what it promised, and the thread that writes."""
