"""Found a new quorum of one from the metadata directories that are left after a lost majority."""
