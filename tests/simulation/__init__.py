"""Whole clusters in virtual time: every fault, every invariant, one seed one history."""
