"""The topics that the script creates, the same in every mode. Pure."""

from __future__ import annotations

from collections.abc import Iterator

TOPIC_PREFIX = "kraft-compare-"


def topics_of(partitions: int, partitions_per_topic: int) -> Iterator[tuple[str, int]]:
    """Yield the topics with so many partitions in all, as (name, partitions)."""
    for number, begin in enumerate(range(0, partitions, partitions_per_topic)):
        yield f"{TOPIC_PREFIX}{number:05d}", min(partitions_per_topic, partitions - begin)
