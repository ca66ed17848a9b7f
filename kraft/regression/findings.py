"""Results of an analysis: change points, drifts, changes of variance, comparisons, scaling laws.

Values without behaviour. `series_analysis`, `comparison` and `scaling` create them, also in Spark's
workers; the reports read them. Ratios are new / old: 1.10 is 10 % more. More is worse, unless the
`metric` says that bigger is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kraft.regression.points import SECONDS, BenchmarkMetric, Series, SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.regression.verdicts import AppliedVerdict, ExpectationOutcome


class ChangeKind(StrEnum):
    """Direction of a change."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"


class SeriesOutcome(StrEnum):
    """Result of the analysis of one series."""

    STABLE = "stable"
    CHANGED = "changed"
    TOO_LITTLE_DATA = "too little data"


@dataclass(frozen=True)
class Ratio:
    """A ratio new / old with its confidence interval (bootstrap over runs and their rounds)."""

    value: float
    low: float
    high: float


def worsening_interval(change: ChangePoint | Drift) -> tuple[float, float]:
    """Return the interval of how much worse a change made it: (1.08, 1.12) is 8 to 12 % slower."""
    ends = [change.metric.worsening(end) for end in (change.ratio.low, change.ratio.high)]
    return min(ends), max(ends)


def _kind(ratio: Ratio, metric: BenchmarkMetric) -> ChangeKind:
    worse = metric.worsening(ratio.value) > 1
    return ChangeKind.REGRESSION if worse else ChangeKind.IMPROVEMENT


@dataclass(frozen=True)
class ChangePoint:
    """One change in one history; `index` is the first run of the new level."""

    key: SeriesKey
    statistic: str
    index: int
    time_us: int  # of the first run of the new level
    run_before: str
    run_after: str
    commit_before: str | None  # of the last run of the old level
    commit_after: str | None  # of the first run of the new one
    count_before: int  # runs of the old level, since the previous change point
    count_after: int
    mean_before: float
    mean_after: float
    stddev_before: float
    stddev_after: float
    ratio: Ratio
    p_value: float
    q_value: float  # p value corrected for all tests of the analysis
    metric: BenchmarkMetric = SECONDS
    surely_old_run: str = ""  # the new level begins after this run
    surely_new_run: str = ""  # and at this run at the latest (`change_position`)
    verdict: AppliedVerdict | None = None

    @property
    def kind(self) -> ChangeKind:
        return _kind(self.ratio, self.metric)

    @property
    def worsening(self) -> float:
        """Return how much worse it became: 1.10 is 10 % slower."""
        return self.metric.worsening(self.ratio.value)

    @property
    def same_commit(self) -> bool:
        """Return whether both sides measured one commit: then the machine or its noise changed."""
        return self.commit_before is not None and self.commit_before == self.commit_after


@dataclass(frozen=True)
class Drift:
    """A slow change, linear from run ``start_index`` to run ``end_index``."""

    key: SeriesKey
    statistic: str
    start_index: int  # the last run of the old level
    end_index: int  # the first run of the new one
    start_time_us: int
    end_time_us: int
    run_start: str
    run_end: str
    commit_start: str | None
    commit_end: str | None
    is_ongoing: bool  # too few runs since `end_index` to know that it ended
    mean_before: float  # the level at its start
    mean_after: float  # the level at its end
    slope: float  # relative change per run: 0.002 is 0.2 % of `mean_before`
    ratio: Ratio
    p_value: float
    q_value: float
    metric: BenchmarkMetric = SECONDS
    surely_old_run: str = ""  # it begins after this run
    surely_new_run: str = ""  # and ends at this run at the latest
    verdict: AppliedVerdict | None = None

    @property
    def kind(self) -> ChangeKind:
        return _kind(self.ratio, self.metric)

    @property
    def worsening(self) -> float:
        """Return how much worse it became: 1.10 is 10 % slower."""
        return self.metric.worsening(self.ratio.value)


@dataclass(frozen=True)
class VarianceChange:
    """A change of variance: from run ``index`` on, runs scatter differently around their level."""

    key: SeriesKey
    statistic: str
    index: int
    time_us: int
    run_before: str
    run_after: str
    commit_before: str | None
    commit_after: str | None
    noise_before: float  # standard deviation / mean within levels
    noise_after: float
    p_value: float
    q_value: float

    @property
    def is_noisier(self) -> bool:
        return self.noise_after > self.noise_before


@dataclass(frozen=True)
class SeriesFinding:
    """One series and its findings; each tuple is ordered by time.

    The outcome is CHANGED if there is a change point, a drift or a change of variance.
    """

    key: SeriesKey
    outcome: SeriesOutcome
    run_count: int
    first_time_us: int
    last_time_us: int
    last_value: float
    noise: float  # standard deviation / mean within the levels between change points
    change_points: tuple[ChangePoint, ...] = ()
    drifts: tuple[Drift, ...] = ()
    variance_changes: tuple[VarianceChange, ...] = ()
    first_run: str | None = None  # in the order of the history
    last_run: str | None = None
    ended: bool = False  # newer runs of its suite do not contain it
    renamed_to: str | None = None  # display name of the series that continues it
    began: bool = False  # older runs of its suite do not contain it, nor the one it continues
    series: Series | None = None  # kept if a report draws it
    metric: BenchmarkMetric = SECONDS

    @property
    def worsenings(self) -> list[float]:
        """Return how much worse each change point and drift made it: 1.10 is 10 % slower."""
        points = [point.worsening for point in self.change_points]
        return points + [drift.worsening for drift in self.drifts]


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
    history: Series | None = None  # of the exponent, kept if a report draws it


@dataclass(frozen=True)
class Comparison:
    """A candidate against its baseline for one benchmark, parameter set and machine."""

    key: SeriesKey
    statistic: str
    runs_base: int
    runs_candidate: int
    base: float
    candidate: float
    ratio: Ratio | None  # None if there is too little data for an interval
    p_value: float | None  # None for counts that do not vary
    q_value: float | None
    is_significant: bool
    is_regression: bool  # significant, and beyond the threshold
    is_improvement: bool
    note: str = ""  # why there is no result, or its limitation
    metric: BenchmarkMetric = SECONDS


@dataclass(frozen=True)
class Analysis:
    """All results of one call."""

    settings: AnalysisSettings
    series: tuple[SeriesFinding, ...]
    scaling: tuple[ScalingLaw, ...] = ()
    machines: dict[str, str] | None = None  # machine -> description, JSON
    problems: tuple[str, ...] = ()  # skipped input, with reasons
    expectations: tuple[ExpectationOutcome, ...] = ()  # of the series of this analysis

    @property
    def regressions(self) -> list[ChangePoint | Drift]:
        """Return the change points, drifts and changes of exponents that are regressions."""
        found: list[ChangePoint | Drift] = [*self.change_points, *self.drifts]
        found += [point for law in self.scaling for point in law.change_points]
        return [each for each in found if each.kind is ChangeKind.REGRESSION]

    @property
    def alarms(self) -> list[ChangePoint | Drift]:
        """Return the regressions that no verdict covers."""
        return [each for each in self.regressions if is_alarm(each)]

    @property
    def change_points(self) -> list[ChangePoint]:
        """Return all change points, worst regression first."""
        found = [point for each in self.series for point in each.change_points]
        return sorted(found, key=lambda point: -point.worsening)

    @property
    def drifts(self) -> list[Drift]:
        """Return all drifts, worst regression first."""
        found = [drift for each in self.series for drift in each.drifts]
        return sorted(found, key=lambda drift: -drift.worsening)

    @property
    def variance_changes(self) -> list[VarianceChange]:
        """Return all changes of variance, largest increase of noise first."""
        found = [change for each in self.series for change in each.variance_changes]
        return sorted(found, key=lambda each: -each.noise_after / max(each.noise_before, 1e-300))


def is_alarm(change: ChangePoint | Drift) -> bool:
    """Return whether a change is a regression that no verdict covers."""
    is_quiet = change.verdict is not None and change.verdict.is_quiet
    return change.kind is ChangeKind.REGRESSION and not is_quiet
