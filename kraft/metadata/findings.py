"""What ``kraft.verify`` found: contradictions, what is known of Kafka, notes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    """How much a finding matters.

    ``KNOWN`` is a contradiction that Apache Kafka itself writes. A ``NOTE`` contradicts nothing: an
    interrupted write, an index that is missing and that every opening makes anew.
    """

    CONTRADICTION = "contradiction"
    KNOWN = "known"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold.

    ``offset`` is that of the log, -1 where the finding has none; ``other`` is the file that says
    otherwise. ``reason`` says of a ``KNOWN`` finding why Kafka writes it.
    """

    severity: Severity
    path: Path
    message: str
    offset: int = -1
    other: Path | None = None
    reason: str | None = None

    def __str__(self) -> str:
        offset = f" at offset {self.offset}" if self.offset >= 0 else ""
        other = f" (against {self.other})" if self.other is not None else ""
        reason = f". {self.reason}" if self.reason is not None else ""
        return f"{self.severity}: {self.path}{offset}: {self.message}{other}{reason}"
