"""Three generations of Kafka's controller beside each other: the same script in every mode.

`comparison.compare` runs it; ``kraft lab compare`` is its command.
"""
