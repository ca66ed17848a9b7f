"""The topics in a consumer's subscription, of the embedded protocol of consumers (KIP-54)."""

from __future__ import annotations

#: The protocol type of Kafka's consumers (``ConsumerProtocol.PROTOCOL_TYPE``).
CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the topics of a subscription, or None if the bytes are not a consumer's subscription.

    Every version begins with an int16 version and the array of topics
    (``ConsumerProtocolSubscription``), so later versions are read as version 0.
    """
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    position = 6
    if len(metadata) < position or count < 0:
        return None
    topics = set()
    for _ in range(count):
        size = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        name = metadata[position + 2 : position + 2 + size]
        if size < 0 or len(name) < size:
            return None
        position += 2 + size
        topics.add(name.decode("utf-8", "replace"))
    # The user data: null is -1.
    if len(metadata) < position + 4:
        return None
    size = int.from_bytes(metadata[position : position + 4], "big", signed=True)
    return topics if size <= len(metadata) - position - 4 else None
