"""Compaction of batches: drop the records that later ones replace, as Kafka's cleaner does."""

from typing import NamedTuple

from typing_extensions import Buffer

from kraft._core.bytes.key_offsets import KeyOffsets

DISCARD: int
"""All records of the batch go."""
RETAIN_EMPTY: int
"""The batch stays without records if all of them go."""
ENDS_NOTHING: int
"""A control batch whose transaction has no records left."""

class FilteredBatches(NamedTuple):
    """The batches that are left, and how many records were read and are left."""

    data: memoryview
    read_count: int
    kept_count: int

def filter_batches(
    batches: Buffer,
    offsets: KeyOffsets,
    now_ms: int,
    delete_retention_ms: int,
    retention: Buffer | None = None,
    *,
    budget: int = ...,
) -> FilteredBatches:
    """Return the batches without the records that compaction drops.

    A record goes if it has no key, if a later one in `offsets` has its key, or if it has no value
    and its batch's delete horizon is not after `now_ms`; records after `offsets.latest_offset`
    stay. A batch with tombstones gets the delete horizon `now_ms` + `delete_retention_ms`.
    `retention` has one byte for each batch: `DISCARD`, `RETAIN_EMPTY`, `ENDS_NOTHING`, or 0. A
    batch is written again only if a record went or the horizon was set; it keeps its codec, base
    offset and last offset. A batch may inflate to `budget` bytes.

    Raises CorruptRecordError for malformed bytes, and the errors of compression.
    """
