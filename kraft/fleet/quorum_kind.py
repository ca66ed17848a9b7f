"""``QuorumKind``: whose controllers a run or an estimate is about.

It imports nothing, so that the options of commands can use it.
"""

from __future__ import annotations

from enum import StrEnum


class QuorumKind(StrEnum):
    """The implementation of a quorum's controllers."""

    KRAFT = "kraft"
    KAFKA = "kafka"
