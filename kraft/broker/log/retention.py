"""Which of a log's oldest segments retention removes (``UnifiedLog.deleteOldSegments``).

Pure. A segment goes if the log's start, its size or its time says so, and only below the high
watermark. Segments go from the oldest on, without gaps. The last one goes too if it is too old,
unless it is empty: the caller rolls first.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft._core.log.data_log import SegmentFacts

#: Returns the facts of a segment by its index, the oldest is 0. Later ones are not asked for.
FactsOf = Callable[[int], SegmentFacts]


def count_removable(
    facts_of: FactsOf, count: int, high_watermark: int, is_removable: Callable[[SegmentFacts], bool]
) -> int:
    """Return how many of ``count`` segments, from the oldest on, may be removed."""
    for index in range(count):
        facts = facts_of(index)
        is_last_and_empty = index == count - 1 and facts.size == 0
        if is_last_and_empty or high_watermark < facts.next_offset or not is_removable(facts):
            return index
    return count


def count_before_start(
    facts_of: FactsOf, count: int, high_watermark: int, start_offset: int
) -> int:
    """Return how many segments end before the log's start; never the last one."""
    return count_removable(
        facts_of, count - 1, high_watermark, lambda facts: facts.next_offset <= start_offset
    )


def count_beyond_size(
    facts_of: FactsOf, count: int, high_watermark: int, size: int, retention_bytes: int
) -> int:
    """Return how many segments may go so that at least ``retention_bytes`` are left."""
    if retention_bytes < 0 or size < retention_bytes:
        return 0
    excess = size - retention_bytes

    def fits(facts: SegmentFacts) -> bool:
        nonlocal excess
        if facts.size > excess:
            return False
        excess -= facts.size
        return True

    return count_removable(facts_of, count, high_watermark, fits)


def count_expired(
    facts_of: FactsOf, count: int, high_watermark: int, now_ms: int, retention_ms: int
) -> int:
    """Return how many segments have only records older than ``retention_ms``."""
    if retention_ms < 0:
        return 0
    return count_removable(
        facts_of,
        count,
        high_watermark,
        lambda facts: facts.max_timestamp >= 0 and now_ms - facts.max_timestamp > retention_ms,
    )
