"""The quorum as a pure state machine: KRaft's Raft, without socket, file, thread or clock.

``node.Node`` is the whole; ``ready`` says how it is driven, ``messages`` what nodes say to each
other, ``transitions`` how roles change.
"""
