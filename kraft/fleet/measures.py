"""What a run measured: percentiles of its times, rates and sizes, for each step and for the run.

`measures_of` turns the events of one trace into `Measure` rows. The report, the tables on Spark and
the scaling laws all use these rows, so that their figures agree. Pure: columns in, values out.

Percentiles are measured values (no interpolation). A measure without events has no row, one with a
single event has only its ``worst``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.fleet.traces import EVENTS, RecordedRun, TraceColumns

#: `Measure.step` of the whole run.
WHOLE_RUN = "(run)"

_Values = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Measure:
    """One statistic of one kind of event in one step; ``events`` is the number of its values.

    ``is_complete`` is false where the step, or any step of the run, has no end: the run was
    interrupted, and its measures say less than those of others.
    """

    step: str
    name: str
    statistic: str
    unit: str
    value: float
    events: int
    is_complete: bool = True

    @property
    def title(self) -> str:
        """The measure in words: ``applied p99``."""
        return f"{self.name} {self.statistic}"

    def as_dict(self) -> dict[str, Any]:
        """Return the measure as JSON."""
        return {
            "step": self.step,
            "name": self.name,
            "statistic": self.statistic,
            "unit": self.unit,
            "value": self.value,
            "events": self.events,
            "is_complete": self.is_complete,
        }


class _Statistic(NamedTuple):
    name: str
    of: Callable[[_Values], float]
    unit: str | None = None
    #: Values that it needs to say more than ``worst``.
    least: int = 1


def percentile(values: Sequence[float] | _Values, share: float) -> float:
    """Return the smallest value that at least this share of the values do not exceed."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def _quantile(share: float) -> Callable[[_Values], float]:
    return lambda values: percentile(values, share)


_P50 = _Statistic("p50", _quantile(0.5), least=2)
_P99 = _Statistic("p99", _quantile(0.99), least=3)
_WORST = _Statistic("worst", lambda values: float(values.max()))
_MEAN = _Statistic("mean", lambda values: float(values.mean()))
_TOTAL = _Statistic("total", lambda values: float(values.sum()))
_COUNT = _Statistic("count", lambda values: float(len(values)), "events")

_TIMES = (_P50, _P99, _WORST)

#: The statistics of each kind of event, in the order of reports.
STATISTICS: dict[str, tuple[_Statistic, ...]] = {
    "caught_up": _TIMES,
    "all_unfenced": _TIMES,
    "in_sync_everywhere": _TIMES,
    "applied": _TIMES,
    "first_write": _TIMES,
    "fenced_after": _TIMES,
    "decided": _TIMES,
    "applied_everywhere": _TIMES,
    "heartbeat_late": (_COUNT, _P99, _WORST),
    "own_delay": (_WORST,),
    "own_delay_error": (_WORST,),
    "own_applying": (_WORST,),
    "copy_floor": (_WORST,),
    "queue_time_p99": (_P50, _WORST),
    "fleet_delay": (_P50, _WORST),
    "applied_lag_records": (_P50, _P99, _WORST),
    "controller_cpu": (_MEAN, _WORST),
    "active_controller_cpu": (_MEAN, _WORST),
    "fleet_cpu": (_MEAN, _WORST),
    "controller_rss": (_WORST,),
    "fleet_rss": (_WORST,),
    "network_bytes": (_TOTAL,),
    "disk_bytes": (_TOTAL,),
    "heartbeats": (_TOTAL,),
    "observer_fetches": (_TOTAL,),
    "metadata_offset": (_TOTAL,),
    "broker_registered": (_COUNT,),
    "broker_caught_up": (_COUNT,),
    "broker_unfenced": (_COUNT,),
    "broker_fenced": (_COUNT,),
    "broker_stopped": (_COUNT,),
    "controller_elected": (_COUNT,),
}

#: Of these, a larger value is neither better nor worse: a comparison has no colour.
NEUTRAL = frozenset(
    {
        "broker_registered",
        "broker_caught_up",
        "broker_unfenced",
        "broker_fenced",
        "broker_stopped",
        "heartbeats",
    }
)


def measures_of(trace: TraceColumns) -> list[Measure]:
    """Return the measures of every step in their order, then those of the whole run.

    Steps of one name count as one; their length is the sum.
    """
    found: list[Measure] = []
    seconds: dict[str, float] = {}
    for span in trace.spans:
        seconds[span.step] = seconds.get(span.step, 0.0) + span.seconds
    for step, length in seconds.items():
        is_complete = step not in trace.unfinished_steps
        found.append(Measure(step, "step", "length", "s", length, 1, is_complete))
        found += _measures(trace, step, is_complete)
    if len(trace):
        is_complete = not trace.unfinished_steps
        length = trace.end_ms / 1000
        found.append(Measure(WHOLE_RUN, "step", "length", "s", length, 1, is_complete))
        found += _measures(trace, None, is_complete)
    return found


def _measures(trace: TraceColumns, step: str | None, is_complete: bool) -> Iterable[Measure]:
    """Yield the measures of one step, or of the whole run."""
    for name, statistics in STATISTICS.items():
        if EVENTS[name].is_counter:
            _, values = trace.increments(name, step)
        else:
            values = trace.values(name, step)
        if not len(values):
            continue
        for each in statistics:
            if len(values) < each.least:
                continue
            unit = each.unit or EVENTS[name].unit or "events"
            yield Measure(
                step or WHOLE_RUN, name, each.name, unit, each.of(values), len(values), is_complete
            )


class Row(NamedTuple):
    """One measure of several runs: ``values`` has None where a run lacks it."""

    step: str
    name: str
    statistic: str
    unit: str
    values: tuple[float | None, ...]

    @property
    def ratio(self) -> float | None:
        """The second value divided by the first; None for another number of runs or without one."""
        if len(self.values) != 2:
            return None
        first, second = self.values
        return None if not first or second is None else second / first


def table_of(runs: Sequence[RecordedRun]) -> list[Row]:
    """Return the measures of several runs side by side, step by step in the scenario's order."""
    found: dict[tuple[str, str, str, str], list[float | None]] = {}
    for place, run in enumerate(runs):
        for each in measures_of(run.trace):
            key = (each.step, each.name, each.statistic, each.unit)
            found.setdefault(key, [None] * len(runs))[place] = each.value
    steps = list(dict.fromkeys(step for step, *_ in found if step != WHOLE_RUN))
    places = {step: place for place, step in enumerate([*steps, WHOLE_RUN])}
    names = {name: place for place, name in enumerate(["step", *STATISTICS])}
    rows = [Row(*key, tuple(values)) for key, values in found.items()]
    return sorted(rows, key=lambda row: (places[row.step], names[row.name]))
