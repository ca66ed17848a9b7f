"""A slow comparison of two metadata states."""

from __future__ import annotations

from dataclasses import fields

from kraft import Metadata
from kraft.metadata.partitions import PartitionInfo


def slow_partition_differences(before: Metadata, after: Metadata) -> set[tuple[object, ...]]:
    """Return the differing fields of all partitions of common topics, compared one by one."""
    names = {each.name for each in fields(PartitionInfo)} - {"topic", "partition"}
    ids = {topic.id for topic in before.topics.values()} & {
        topic.id for topic in after.topics.values()
    }
    common = [{(each.topic, each.partition): each for each in side.partitions
               if side.topics[each.topic].id in ids} for side in (before, after)]  # fmt: skip
    found: set[tuple[object, ...]] = set()
    for key in common[0].keys() | common[1].keys():
        old, new = (side.get(key) for side in common)
        if old is None or new is None:
            found.add((key, "", old, new))
            continue
        found |= {
            (key, name, getattr(old, name), getattr(new, name))
            for name in names
            if getattr(old, name) != getattr(new, name)
        }
    return found
