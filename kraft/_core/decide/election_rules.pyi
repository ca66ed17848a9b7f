"""Kafka's rules for the change of one partition: its leader, ISR, ELR and directories."""

class ElectionRules:
    """The base class of `kraft._core.decide.election.ElectionContext`, which callers use."""
