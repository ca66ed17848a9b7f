"""Summarize a trace: the number of events of each kind, and how long they took.

Percentiles are exact, over all events. Reads ``Trace`` objects; ``kraft lab trace`` prints it.

Invariant: a percentile is a measured duration, the smallest one that is not below that share of
events, as in Spark's ``percentile_disc``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kraft.lab.report import duration
from kraft.lab.trace import TornFrame, Trace, TraceHeader

#: The columns of :meth:`TraceSummary.rows`; all but the first hold numbers.
HEADINGS = ("EVENT", "EVENTS", "OF", "P50", "P99", "WORST", "IN ALL")


@dataclass(frozen=True, slots=True)
class EventKind:
    """All events of one kind. ``count`` is their total number of items; durations are seconds."""

    what: str
    events: int
    count: int
    p50: float
    p99: float
    worst: float
    total: float

    @classmethod
    def of(cls, what: str, count: int, duration_ns: NDArray[np.int64]) -> EventKind:
        p50, p99 = np.percentile(duration_ns, (50, 99), method="inverted_cdf")
        return cls(
            what=what,
            events=len(duration_ns),
            count=count,
            p50=float(p50) / 1e9,
            p99=float(p99) / 1e9,
            worst=float(duration_ns.max()) / 1e9,
            total=float(duration_ns.sum()) / 1e9,
        )

    def as_row(self) -> tuple[str, ...]:
        times = (_duration(each) for each in (self.p50, self.p99, self.worst))
        return (self.what, f"{self.events:,}", f"{self.count:,}", *times, duration(self.total))

    def as_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "events": self.events,
            "count": self.count,
            "p50Seconds": self.p50,
            "p99Seconds": self.p99,
            "worstSeconds": self.worst,
            "totalSeconds": self.total,
        }


@dataclass(slots=True)
class TraceSummary:
    """The summary of one or several traces; the kind with the largest total time comes first."""

    headers: list[TraceHeader] = field(default_factory=list)
    kinds: list[EventKind] = field(default_factory=list)
    torn: list[TornFrame] = field(default_factory=list)

    @classmethod
    def of(cls, traces: Iterable[Trace]) -> TraceSummary:
        """Read traces to their ends; needs eight bytes an event. Raises as :meth:`Trace.blocks`."""
        made = cls()
        durations: defaultdict[str, list[NDArray[np.int64]]] = defaultdict(list)
        counts: defaultdict[str, int] = defaultdict(int)
        for trace in traces:
            made.headers.append(trace.header)
            if trace.torn is not None:
                made.torn.append(trace.torn)
            for block in trace.blocks():
                for number, name in enumerate(block.names):
                    here = block.what == number
                    durations[name].append(block.duration_ns[here])
                    counts[name] += int(block.counts[here].sum())
        made.kinds = [
            EventKind.of(name, counts[name], np.concatenate(parts))
            for name, parts in durations.items()
            if sum(map(len, parts))
        ]
        made.kinds.sort(key=lambda kind: -kind.total)
        return made

    @property
    def title(self) -> str:
        """The runs, in words."""
        return "; ".join(
            f"{header.scenario}, run {header.run_id}, {header.machine}, "
            f"commit {(header.commit or 'unknown')[:12]}"
            for header in self.headers
        )

    def rows(self) -> Sequence[tuple[str, ...]]:
        """Return a row of text for each kind, under ``HEADINGS``."""
        return [kind.as_row() for kind in self.kinds]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``kraft lab trace --json``."""
        return {
            "runs": [
                {
                    "scenario": header.scenario,
                    "runId": header.run_id,
                    "machine": header.machine,
                    "commit": header.commit,
                    "startedNs": header.started_ns,
                    "settings": dict(header.settings),
                }
                for header in self.headers
            ],
            "kinds": [kind.as_dict() for kind in self.kinds],
            "torn": [torn._asdict() for torn in self.torn],
        }


def _duration(seconds: float) -> str:
    """Return seconds as text: microseconds below 0.1 ms."""
    return f"{seconds * 1e6:,.1f} us" if seconds < 1e-4 else duration(seconds)
