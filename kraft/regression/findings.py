"""What an analysis finds. Values without behaviour, made by `history`, `comparison` and `scaling`
(in Spark's workers, too) and read by the reports.

Ratios are new / old of a value where smaller is better: 1.10 is 10 % slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import Settings


class Kind(StrEnum):
    """Which way a value went."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"


class Outcome(StrEnum):
    """What could be said of a series."""

    STABLE = "stable"
    CHANGED = "changed"
    TOO_LITTLE_DATA = "too little data"


@dataclass(frozen=True)
class Ratio:
    """new / old with its confidence interval (bootstrap over runs and their rounds)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ChangePoint:
    """One change in one history: `index` is the first run of the new level."""

    key: SeriesKey
    statistic: str
    index: int
    time_us: int  # of the first run of the new level
    run_before: str
    run_after: str
    commit_before: str | None  # of the last run of the old level
    commit_after: str | None  # of the first run of the new one
    count_before: int  # runs of the old level, back to the change point before
    count_after: int
    mean_before: float
    mean_after: float
    stddev_before: float
    stddev_after: float
    ratio: Ratio
    p_value: float
    q_value: float  # p value corrected for all tests of the analysis

    @property
    def kind(self) -> Kind:
        return Kind.REGRESSION if self.ratio.value > 1 else Kind.IMPROVEMENT

    @property
    def same_commit(self) -> bool:
        """Both sides measured the same code: what changed is the machine, or its noise."""
        return self.commit_before is not None and self.commit_before == self.commit_after


@dataclass(frozen=True)
class SeriesFinding:
    """One series looked at: what came of it, and its change points, oldest first."""

    key: SeriesKey
    outcome: Outcome
    run_count: int
    first_time_us: int
    last_time_us: int
    last_value: float
    noise: float  # standard deviation / mean within the levels between change points
    change_points: tuple[ChangePoint, ...] = ()
    series: Series | None = None  # kept where a report draws it


@dataclass(frozen=True)
class ScalingLaw:
    """value ~ size ** exponent for one benchmark, machine and size parameter."""

    key: SeriesKey  # params without the size
    size_param: str
    sizes: tuple[float, ...]
    values: tuple[float, ...]  # of the newest run of each size
    exponent: float
    low: float
    high: float
    change_points: tuple[ChangePoint, ...] = ()  # of the exponent's own history
    run_count: int = 0


@dataclass(frozen=True)
class Comparison:
    """A candidate against its baseline, one benchmark, parameters and machine."""

    key: SeriesKey
    statistic: str
    runs_base: int
    runs_candidate: int
    base: float
    candidate: float
    ratio: Ratio | None  # None where there is too little to say how certain it is
    p_value: float | None  # None for counts that do not vary
    q_value: float | None
    is_significant: bool
    is_regression: bool  # significant, and beyond the threshold
    is_improvement: bool
    note: str = ""  # why nothing can be said, or what to beware of


@dataclass(frozen=True)
class Analysis:
    """Everything that one call found."""

    settings: Settings
    series: tuple[SeriesFinding, ...]
    scaling: tuple[ScalingLaw, ...] = ()
    machines: dict[str, str] | None = None  # machine -> its description, JSON
    problems: tuple[str, ...] = ()  # what was skipped, and why

    @property
    def change_points(self) -> list[ChangePoint]:
        """All of them, worst regression first."""
        found = [point for each in self.series for point in each.change_points]
        return sorted(found, key=lambda point: -point.ratio.value)
