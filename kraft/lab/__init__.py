"""Scenarios over the library: clusters of a million partitions on one machine.

Decides the order of the stages and measures them. The package's own placement, controller, codec,
log, table and checkpoint do all the work; nothing of them is reimplemented here.
"""
