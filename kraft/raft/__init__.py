"""The metadata quorum: KRaft as a pure state machine, without socket, file, thread or clock.

`node.Node` is the state machine, `interface` the contract with its driver, `rpc` the requests and
responses between nodes, `transitions` the table of role changes.
"""
