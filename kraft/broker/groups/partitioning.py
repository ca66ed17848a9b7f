"""Which partition of ``__consumer_offsets`` a group belongs to."""

from __future__ import annotations

#: The topic of groups and committed offsets (``Topic.GROUP_METADATA_TOPIC_NAME``).
OFFSETS_TOPIC = "__consumer_offsets"

_INT32 = 1 << 32


def partition_of_group(group_id: str, partition_count: int) -> int:
    """Return the partition of a group; its leader is the group's coordinator (FindCoordinator).

    Source: ``GroupCoordinatorService.partitionFor``: the absolute value of Java's
    ``String.hashCode``, and 0 for the smallest int (``Utils.abs``).
    """
    hashed = java_hash(group_id)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partition_count


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 units, as a signed 32-bit integer."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + (units[position] << 8 | units[position + 1])) % _INT32
    return hashed - _INT32 if hashed >= _INT32 >> 1 else hashed
