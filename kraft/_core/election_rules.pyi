"""The cluster around the partitions, and Kafka's rules for one of them."""

class ElectionRules:
    """See `kraft._core.election.ElectionContext`, which is what there is to use."""
