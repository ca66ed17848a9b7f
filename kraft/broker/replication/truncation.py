"""Truncation: where a follower cuts its log when its leader reports a diverging epoch.

Rules: ``AbstractFetcherThread.getOffsetTruncationState`` with truncation on Fetch (KIP-595's form
of KIP-101 and KIP-279; Fetch 12 and later).
"""

from __future__ import annotations

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.replication.ports import ReplicatedLog


def truncation_offset(log: ReplicatedLog, diverging: EpochEndOffset) -> int:
    """Return the offset to truncate to, given the leader's epoch and its end there.

    If the follower lacks that epoch, everything above its own next lower epoch goes: the next fetch
    then names that epoch, and the leader's answer may diverge again (KIP-279). A log whose epochs
    all are higher is cut at the leader's end.
    """
    known = log.end_offset_of(diverging.epoch)
    if known is None or known.epoch != diverging.epoch:
        end = diverging.end_offset if known is None else known.end_offset
    else:
        end = min(known.end_offset, diverging.end_offset)
    return min(end, log.end_offset)
