"""A metadata directory, segment or checkpoint as a library object."""
