"""The log on disk: the file-system port, segments, indexes, recovery and group commit."""
