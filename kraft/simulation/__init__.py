"""Whole clusters in virtual time: every fault, every invariant, one seed one history.

Nothing here is imported by ``import kraft``. A seed is run by `scenario.run_seed` (the quorum) or
`whole_scenario.run_seed` (real controllers, simulated brokers and clients).
"""
