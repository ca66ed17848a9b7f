"""The disk of a running node: log, snapshots, election state, and the threads that write."""
