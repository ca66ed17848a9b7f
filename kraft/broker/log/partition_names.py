"""The names of partitions' directories, as Kafka gives them (``LocalLog.java``).

payments-0                              a partition
payments-0.<32 hex digits>-delete       a deleted partition, until its files are removed
payments-0.<32 hex digits>-stray        a partition that the broker should not have
payments-0.<32 hex digits>-future       a copy that will replace the one of another directory
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

MAX_NAME_BYTES = 255


class PartitionDirectoryKind(Enum):
    """The state that the suffix of a partition's directory tells."""

    CURRENT = ""
    DELETED = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"


class PartitionName(NamedTuple):
    """The parts of the name of a partition's directory."""

    topic: str
    partition: int
    kind: PartitionDirectoryKind = PartitionDirectoryKind.CURRENT


_SUFFIXED = re.compile(r"(.+)-(\d+)\.([^.\s]+)(-delete|-stray|-future)")
_CURRENT = re.compile(r"(.+)-(\d+)")


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def renamed(topic: str, partition: int, kind: PartitionDirectoryKind, unique: str) -> str:
    """Return the name with a suffix; ``unique`` are 32 hex digits, and a long topic is cut."""
    end = f"-{partition}.{unique}{kind.value}"
    return topic[: MAX_NAME_BYTES - len(end)] + end


def future_name(topic: str, partition: int, unique: str) -> str:
    """Return the name of a copy; as in Kafka a long topic is not cut: it may be too long."""
    return f"{topic}-{partition}.{unique}{PartitionDirectoryKind.FUTURE.value}"


def parse_name(name: str) -> PartitionName | None:
    """Return the parts of a partition's directory name, or None for any other name."""
    match = _SUFFIXED.fullmatch(name)
    if match is not None:
        return PartitionName(match[1], int(match[2]), PartitionDirectoryKind(match[4]))
    match = _CURRENT.fullmatch(name)
    return None if match is None else PartitionName(match[1], int(match[2]))
