"""The report of a scenario: one row a stage, and whether the loaded state equals the dropped one.

Holds the measured values, as rows of text and as a JSON document. ``kraft.lab.scenario`` adds one
``Stage`` after the other; ``kraft lab`` prints it.

Invariant: the rows and the document contain the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kraft.lab.state_comparison import COLUMNS, StateDifference

#: The columns of :meth:`Report.rows`; all but the first hold numbers.
HEADINGS = ("STAGE", "COUNT", "TIME", "PER SECOND", "WRITTEN", "RSS", "B/PARTITION")


@dataclass(frozen=True, slots=True)
class Stage:
    """The measurements of one stage.

    ``count`` is a number of ``unit``, ``records`` the number of records written. ``parts`` are
    seconds by part: decide, apply, append (write and fsync). Sizes are bytes; ``table_size`` is the
    table's memory for ``partitions`` partitions at the end of the stage: columns, topics,
    directories and indexes, without the journal, which is empty then.
    """

    name: str
    count: int
    unit: str
    seconds: float
    records: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)
    bytes_written: int = 0
    resident_size: int = 0
    table_size: int = 0
    partitions: int = 0

    @property
    def per_second(self) -> float:
        """``count`` divided by ``seconds``."""
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_a_partition(self) -> float:
        """``table_size`` divided by ``partitions``."""
        return self.table_size / self.partitions if self.partitions else 0.0

    def as_row(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{self.count:,} {self.unit}",
            duration(self.seconds),
            f"{self.per_second:,.0f}",
            size(self.bytes_written) if self.bytes_written else "",
            size(self.resident_size),
            f"{self.bytes_a_partition:.1f}" if self.partitions else "",
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "stage": self.name,
            "count": self.count,
            "unit": self.unit,
            "records": self.records,
            "seconds": round(self.seconds, 6),
            "perSecond": round(self.per_second, 1),
            "parts": {name: round(seconds, 6) for name, seconds in self.parts.items()},
            "bytesWritten": self.bytes_written,
            "residentBytes": self.resident_size,
            "bytesAPartition": round(self.bytes_a_partition, 2),
        }


@dataclass(frozen=True, slots=True)
class LoadCheck:
    """The comparison of a loaded state with the dropped one; ``difference`` is None where equal."""

    loaded_from: str
    partitions: int
    difference: StateDifference | None

    def as_text(self) -> str:
        if self.difference is not None:
            return f"DIFFERENT, loaded from {self.loaded_from}: {self.difference}"
        return (
            f"equal, loaded from {self.loaded_from}: {self.partitions:,} partitions in "
            f"{len(COLUMNS)} columns, topics, and everything else"
        )

    def as_dict(self) -> dict[str, Any]:
        different = None if self.difference is None else self.difference._asdict()
        return {
            "loadedFrom": self.loaded_from,
            "partitions": self.partitions,
            "columns": list(COLUMNS),
            "equal": self.difference is None,
            "firstDifference": different,
        }


@dataclass(slots=True)
class Report:
    """The report of a whole run; sizes are bytes. ``directory`` is None where its files are
    removed.
    """

    settings: Mapping[str, Any]
    stages: list[Stage] = field(default_factory=list)
    checks: list[LoadCheck] = field(default_factory=list)
    peak_resident_size: int = 0
    seconds: float = 0.0
    directory: str | None = None

    @property
    def is_equal(self) -> bool:
        """True where every loaded state equals the dropped one."""
        return bool(self.checks) and all(check.difference is None for check in self.checks)

    @property
    def title(self) -> str:
        return (
            f"{self.settings['partitions']:,} partitions, replication factor "
            f"{self.settings['replicationFactor']}, {self.settings['brokers']:,} brokers in "
            f"{self.settings['racks']} racks"
        )

    def split_off(self, part: str, *, within: str) -> None:
        """Make ``part``, measured inside ``within`` of the last stage, a stage before it."""
        whole = self.stages.pop()
        parts = dict(whole.parts)
        seconds = parts.pop(part, 0.0)
        parts[within] -= seconds
        self.stages.append(
            replace(whole, name=part, seconds=seconds, parts={}, records=0, bytes_written=0)
        )
        self.stages.append(replace(whole, seconds=whole.seconds - seconds, parts=parts))

    def rows(self) -> Sequence[tuple[str, ...]]:
        """Return a row of text for each stage, under ``HEADINGS``."""
        return [stage.as_row() for stage in self.stages]

    def closing(self) -> Sequence[tuple[str, str]]:
        """Return names and texts to print below the table."""
        return [
            *(("check", check.as_text()) for check in self.checks),
            ("time", f"{duration(self.seconds)} in total"),
            ("memory", f"at most {size(self.peak_resident_size)} resident"),
            *([("kept in", self.directory)] if self.directory is not None else []),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``kraft lab million --json`` without the seed."""
        return {
            "settings": dict(self.settings),
            "stages": [stage.as_dict() for stage in self.stages],
            "checks": [check.as_dict() for check in self.checks],
            "equal": self.is_equal,
            "peakResidentBytes": self.peak_resident_size,
            "seconds": round(self.seconds, 3),
            "directory": self.directory,
        }


def duration(seconds: float) -> str:
    """Return seconds as text: milliseconds below a second."""
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def size(count: int) -> str:
    """Return bytes as text, in powers of 1024."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"
