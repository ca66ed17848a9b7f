"""Simulate whole clusters in virtual time, with faults; a seed determines the entire run.

``import kraft`` does not import this package. `scenario.run_seed` runs a seed of the quorum alone,
`whole_scenario.run_seed` one with real controllers and simulated brokers and clients,
`replica_scenario.run_seed` one with brokers that replicate partitions.
"""
