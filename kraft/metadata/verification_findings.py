"""A finding of ``kraft.verify``: a contradiction, a known fault of Kafka, or a note."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    """How severe a finding is.

    ``KNOWN`` is a contradiction that Apache Kafka itself writes. A ``NOTE`` contradicts nothing: an
    interrupted write, or a missing index that opening the log rebuilds.
    """

    CONTRADICTION = "contradiction"
    KNOWN = "known"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class VerificationFinding:
    """One contradiction or note.

    ``offset`` is an offset of the log, -1 for none; ``other`` is the file that ``path``
    contradicts. ``reason`` says why Kafka writes a ``KNOWN`` contradiction.
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
