"""The broker: what it accepts from producers, and what it answers from the cluster's metadata."""
