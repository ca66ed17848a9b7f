"""Which part of a compacted log is cleaned next, and which segments become one.

Offsets below the first dirty offset are clean: no two records there have one key. A round of
compaction cleans segments from there on, up to the first one that must stay: the last segment, one
with records that are not committed or not on the device, or one that is younger than
min.compaction.lag.ms.

Pure functions of the facts of a log. Rules: ``storage/.../log/LogCleanerManager.java``,
``LogToClean.java``, ``Cleaner.java`` (groupSegmentsBySize). Kafka takes the time of the file for a
segment without timestamps; here such a segment counts as old.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kraft._core.log.data_log import DataLog, SegmentFacts
from kraft.broker.log.settings import FOR_EVER, LogSettings

_FARTHEST_OFFSET = 2**31 - 1


class CleanableRange(NamedTuple):
    """The offsets of a log that a round cleans, the end exclusive, and sizes in bytes."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    #: Whether max.compaction.lag.ms has passed for a dirty record.
    is_overdue: bool
    #: Whether the checkpoint was not an offset of the log.
    is_reset: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, settings: LogSettings) -> bool:
        """Return whether the range is dirty enough, or too old, to wait."""
        return (
            self.is_overdue and self.cleanable_bytes > 0
        ) or self.dirty_ratio > settings.min_cleanable_dirty_ratio


def cleanable_range(
    log: DataLog, settings: LogSettings, checkpoint: int | None, stable_offset: int, now_ms: int
) -> CleanableRange:
    """Return what may be cleaned; ``checkpoint`` is the first dirty offset of the last round.

    Nothing at or after ``stable_offset`` may change: the high watermark, an open transaction, or
    the recovery point on disk. Opens the files of dirty segments if a lag is set.
    """
    bases, sizes = log.base_offsets, log.segment_sizes
    first = log.log_start_offset if checkpoint is None else checkpoint
    is_reset = not log.log_start_offset <= first <= log.log_end_offset
    if is_reset:
        first = log.log_start_offset
    last = len(bases) - 1
    dirty = range(max(bisect_right(bases, first) - 1, 0), last)
    bound = min(stable_offset, bases[last])
    lag = max(settings.min_compaction_lag_ms, 0)
    if lag:
        for index in dirty:
            facts = log.segment_facts(index)
            if facts.max_timestamp > now_ms - lag:
                bound = min(bound, facts.base_offset)
                break
    end_index = max(bisect_right(bases, max(first, bound)) - 1, 0)
    end = bases[end_index]
    return CleanableRange(
        first,
        end,
        sum(sizes[: bisect_left(bases, first)]),
        sum(sizes[index] for index in dirty if index < end_index and first < end),
        _is_overdue(log, dirty, settings.max_compaction_lag_ms, now_ms),
        is_reset,
    )


def _is_overdue(log: DataLog, dirty: range, lag_ms: int, now_ms: int) -> bool:
    if lag_ms == FOR_EVER:
        return False
    times = (log.segment_facts(index).first_timestamp for index in dirty)
    return any(0 < time < now_ms - max(lag_ms, 0) for time in times)


def grouped(
    segments: Sequence[SegmentFacts], settings: LogSettings, end_offset: int
) -> Iterator[list[SegmentFacts]]:
    """Yield runs of segments that become one, by their present sizes.

    The log and both indexes of a run fit into the limits of one segment, and its offsets into an
    i32 after the first; ``end_offset`` is that of the round.
    """
    limits = (settings.segment_bytes, settings.segment_index_bytes, settings.segment_index_bytes)
    group: list[SegmentFacts] = []
    sizes = [0, 0, 0]
    for index, facts in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        together = [before + own for before, own in zip(sizes, _sizes(facts), strict=True)]
        if group and not (
            all(size <= limit for size, limit in zip(together, limits, strict=True))
            # An empty segment always fits: else one would be left for every 2**31 offsets.
            and (facts.size == 0 or following - 1 - group[0].base_offset <= _FARTHEST_OFFSET)
        ):
            yield group
            group, together = [], _sizes(facts)
        group.append(facts)
        sizes = together
    if group:
        yield group


def _sizes(facts: SegmentFacts) -> list[int]:
    return [facts.size, facts.offset_index_bytes, facts.time_index_bytes]
