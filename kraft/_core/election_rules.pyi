"""The cluster around the partitions, and Kafka's rules for one: what `kraft._core.election` builds on."""

class ElectionRules:
    """See `kraft._core.election.ElectionContext`, which is what there is to use."""
