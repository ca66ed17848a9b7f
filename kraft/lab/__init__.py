"""Scenarios over the library: clusters of a million partitions, on one machine.

Owns what is done in which order and how it is measured. Every decision, record, column and file is
made by the package's own placement, controller, codec, log, table and checkpoint; nothing of them
is done a second time here.
"""
