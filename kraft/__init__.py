"""kraft: Kafka's metadata controller, KRaft, over numpy columns."""

__version__ = "0.1.0"
