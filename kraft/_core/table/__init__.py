"""The partition table: columns, topics, rows with a journal, replay and images."""
