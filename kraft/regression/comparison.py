"""Compare a candidate with its baseline: which benchmarks are slower beyond a threshold and noise.

CI calls `compare` with the points of two files, or of runs of a store and one file. It needs
neither Otava nor Spark, and of scipy only Student's distribution: two files take far less than a
second.

The test depends on the data, for each benchmark, parameter set and machine:

* several runs on both sides: Welch's t test of the runs' values;
* one run on one side: Student's t test of whether it could be one more run of the other side;
* one run on each side: Mann and Whitney's test of their rounds, or Welch's below `RANKED_ROUNDS`;
  without saved rounds, Welch's test of the means. The rounds of one run do not show how much runs
  differ, so this p value is too small, and the note says so;
* counts that do not vary: no test; any difference beyond the threshold is a change.

The p values of one call are corrected together (`multiple_testing`). A corrected p value of at most
`AnalysisSettings.false_discovery_rate` is significant. `AnalysisSettings.max_p_value` does not
apply: it is for histories, where the best of many splits is selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import erfc, isfinite, isnan, nan, sqrt

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft.errors import InvalidRequestError
from kraft.regression import bootstrap, multiple_testing
from kraft.regression.findings import Comparison, Ratio
from kraft.regression.points import (
    INSTRUCTIONS,
    METRIC_COLUMNS,
    SECONDS,
    BenchmarkMetric,
    SeriesKey,
)
from kraft.regression.project_rules import ProjectRules
from kraft.regression.settings import AnalysisSettings

#: With this many rounds on both sides, ranks are compared: an outlier does not change them, and the
#: normal approximation of their sum is accurate enough.
RANKED_ROUNDS = 10

#: Above this many, an even selection of the rounds is used.
MAX_ROUNDS = 10_000

#: The allowed change of a comparison that names none.
DEFAULT_THRESHOLD = 0.05

#: Identity of a benchmark in a comparison; the branches of candidate and baseline may differ.
KEY = [name for name in SeriesKey._fields if name != "branch"]

ROUNDS_ONLY = "one run on each side: variance between runs unknown"
NOT_VARYING = "constant, compared without a test"
TOO_LITTLE = "one run on each side, without rounds: noise unknown"

_NO_ROUNDS = np.zeros(0)


@dataclass
class _Side:
    """The runs of one benchmark on one side, in the order of the table, each run once."""

    values: list[float] = field(default_factory=list)
    rounds: list[NDArray[np.float64]] = field(default_factory=list)
    means: list[tuple[float, float, int]] = field(default_factory=list)  # mean, stddev, rounds
    run_ids: set[str] = field(default_factory=set)
    unusable: int = 0
    metric: BenchmarkMetric = SECONDS  # of the last run

    def column(self) -> NDArray[np.float64]:
        return np.array(self.values, dtype=np.float64)


def compare(
    base: pa.Table, candidate: pa.Table, settings: AnalysisSettings, threshold: float
) -> list[Comparison]:
    """Return the comparison of every benchmark in two tables of points, sorted by key.

    ``threshold`` is the allowed relative change: at 0.05, a regression is significant and above a
    ratio of 1.05, an improvement significant and below 1 / 1.05; where bigger is better, it is the
    opposite. A benchmark that cannot be
    compared is included, with a note that says why, and NaN for a side without a value.

    Raises:
        InvalidRequestError: a table lacks columns of `points.POINTS`; ``threshold`` is negative.
    """
    if not threshold >= 0:
        raise InvalidRequestError(f"threshold is {threshold}, must be 0 or more")
    old, new = _sides(base, settings.statistic), _sides(candidate, settings.statistic)
    old, new = _with_known_projects(old, new), _with_known_projects(new, old)
    compared = [
        _compared(key, old.get(key, _Side()), new.get(key, _Side()), settings, threshold)
        for key in sorted(old.keys() | new.keys())
    ]
    compared = [_other_machines(each, old, new) for each in compared]
    return correct(compared, settings, threshold)


def correct(
    compared: Sequence[Comparison], settings: AnalysisSettings, threshold: float
) -> list[Comparison]:
    """Return the comparisons sorted by key, judged by p values that are corrected together.

    For callers that compare benchmark by benchmark, in any process, and collect the results.
    """
    compared = sorted(compared, key=lambda each: each.key)
    tested = [at for at, each in enumerate(compared) if each.p_value is not None]
    p_values = np.array([compared[at].p_value for at in tested], dtype=np.float64)
    for at, q in zip(tested, multiple_testing.q_values(p_values, len(tested)), strict=True):
        compared[at] = _judged(
            replace(compared[at], q_value=float(q)),
            bool(q <= settings.false_discovery_rate),
            threshold,
        )
    return compared


def with_rules(
    compared: Sequence[Comparison],
    rules: ProjectRules,
    settings: AnalysisSettings,
    threshold: float,
) -> list[Comparison]:
    """Return the comparisons judged by a project's rules; ``threshold`` is that of the others."""
    return [_ruled(each, rules, settings, threshold) for each in compared]


def _ruled(
    result: Comparison, rules: ProjectRules, settings: AnalysisSettings, threshold: float
) -> Comparison:
    if result.statistic != "instructions":
        result = replace(result, metric=rules.metric_of(result.key, result.metric))
    if result.ratio is None:
        return result
    threshold = rules.threshold_of(result.key, threshold)
    if result.q_value is None:
        value = result.ratio.value  # of a count that does not vary
        is_significant = not 1 / (1 + threshold) <= value <= 1 + threshold
    else:
        is_significant = result.q_value <= settings.false_discovery_rate
    return _judged(result, is_significant, threshold)


def _sides(table: pa.Table, statistic: str) -> dict[SeriesKey, _Side]:
    """Return the usable runs of a table, by benchmark."""
    names = [*KEY, *METRIC_COLUMNS, "run_id", statistic, "mean", "stddev", "rounds"]
    missing = [name for name in (*names, "values") if name not in table.column_names]
    if missing:
        raise InvalidRequestError(f"not a table of points; missing columns: {', '.join(missing)}")
    table = table.select(dict.fromkeys((*names, "values"))).combine_chunks()
    rounds = _rounds(table)
    columns = [table.column(name).to_pylist() for name in names]
    sides: dict[SeriesKey, _Side] = {}
    for at, (
        suite,
        benchmark,
        params,
        machine,
        project,
        unit,
        bigger,
        run_id,
        value,
        *rest,
    ) in enumerate(zip(*columns, strict=True)):
        key = SeriesKey(suite, benchmark, params, machine, project or "")
        side = sides.setdefault(key, _Side())
        if run_id in side.run_ids:
            continue
        side.run_ids.add(run_id)
        counted = statistic == "instructions"
        side.metric = INSTRUCTIONS if counted else BenchmarkMetric.of(unit, bigger)
        if not _is_usable(value, side.metric):
            side.unusable += 1
            continue
        mean, stddev, count = (nan if each is None else each for each in rest)
        side.values.append(value)
        side.means.append((mean, stddev, 0 if isnan(count) else int(count)))
        side.rounds.append(_NO_ROUNDS if statistic == "instructions" else rounds[at])
    return sides


def _with_known_projects(
    side: dict[SeriesKey, _Side], other: dict[SeriesKey, _Side]
) -> dict[SeriesKey, _Side]:
    """Return ``side`` with the other side's project for benchmarks whose own project is unknown.

    pytest-benchmark up to 3.0 writes no project. The other side's project is used if there is
    exactly one.
    """
    found: dict[tuple[str, ...], set[str]] = {}
    for key in other:
        found.setdefault(key[:4], set()).add(key.project)
    renamed = {}
    for key, runs in side.items():
        projects = found.get(key[:4], set())
        (only,) = projects if len(projects) == 1 else (key.project,)
        renamed[key._replace(project=only) if not key.project else key] = runs
    return renamed


def _is_usable(value: float | None, metric: BenchmarkMetric) -> bool:
    """Return whether a value was measured: a time of zero was not, a count of zero may be."""
    if value is None or not isfinite(value):
        return False
    return value > 0 or (value == 0 and metric.unit != "s")


def _rounds(table: pa.Table) -> list[NDArray[np.float64]]:
    """Return the usable round values of each row; empty if they were not saved."""
    found = []
    for chunk in table.column("values").chunks:
        inner = chunk.values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        starts = chunk.offsets.to_numpy()
        for at, saved in enumerate(chunk.is_valid().to_pylist()):
            row = inner[starts[at] : starts[at + 1]] if saved else _NO_ROUNDS
            row = row[:: 1 + (len(row) - 1) // MAX_ROUNDS] if len(row) > MAX_ROUNDS else row
            found.append(row[np.isfinite(row) & (row > 0)])
    return found


def _compared(
    key: SeriesKey, old: _Side, new: _Side, settings: AnalysisSettings, threshold: float
) -> Comparison:
    """Compare one benchmark; `correct` judges those with a p value once all are known."""
    before, after = old.column(), new.column()
    result = Comparison(
        key=key,
        statistic=settings.statistic,
        runs_base=len(before),
        runs_candidate=len(after),
        base=float(before.mean()) if len(before) else nan,
        candidate=float(after.mean()) if len(after) else nan,
        ratio=None,
        p_value=None,
        q_value=None,
        is_significant=False,
        is_regression=False,
        is_improvement=False,
        note=_missing(old, new, settings.statistic),
        metric=(new if len(after) else old).metric,
    )
    if len(before) and len(after) and old.metric.unit != new.metric.unit:
        note = f"the baseline is in {old.metric.unit!r}, the candidate in {new.metric.unit!r}"
        return replace(result, note=_joined(result.note, note))
    if not len(before) or not len(after):
        return result
    if _is_constant(before, after, settings.statistic):
        value = bootstrap.quotient(result.candidate, result.base)
        result = replace(
            result, ratio=Ratio(value, value, value), note=_joined(result.note, NOT_VARYING)
        )
        return _judged(result, not 1 / (1 + threshold) <= value <= 1 + threshold, threshold)
    p_value, note = _p_value(before, after, old, new)
    if p_value is None:
        return replace(result, note=_joined(result.note, note))
    ratio = bootstrap.ratio(before, after, old.rounds, new.rounds, settings, *key[:4])
    return replace(result, ratio=ratio, p_value=p_value, note=_joined(result.note, note))


def _judged(result: Comparison, is_significant: bool, threshold: float) -> Comparison:
    assert result.ratio is not None, f"{result.key.name}: judged without a ratio"
    worsening = result.metric.worsening(result.ratio.value)
    return replace(
        result,
        is_significant=is_significant,
        is_regression=is_significant and worsening > 1 + threshold,
        is_improvement=is_significant and worsening < 1 / (1 + threshold),
    )


def _is_constant(before: NDArray[np.float64], after: NDArray[np.float64], statistic: str) -> bool:
    """Return whether no side varies; with one run each, only a count is known not to vary."""
    if len(before) == len(after) == 1:
        return statistic == "instructions"
    return bool(np.ptp(before) == 0 and np.ptp(after) == 0)


def _p_value(
    before: NDArray[np.float64], after: NDArray[np.float64], old: _Side, new: _Side
) -> tuple[float | None, str]:
    """Return the two-sided p value of the test that fits the data, and a note on its limits."""
    if min(len(before), len(after)) > 1:
        return welch(*_moments(before), *_moments(after)), ""
    if max(len(before), len(after)) > 1:
        return single_run_test(before, after), ""
    rounds_old, rounds_new = old.rounds[0], new.rounds[0]
    fewest = min(len(rounds_old), len(rounds_new))
    if fewest >= RANKED_ROUNDS:
        return mann_whitney(rounds_old, rounds_new), ROUNDS_ONLY
    if fewest > 1:
        return welch(*_moments(rounds_old), *_moments(rounds_new)), ROUNDS_ONLY
    (mean_old, stddev_old, count_old), (mean_new, stddev_new, count_new) = (
        old.means[0],
        new.means[0],
    )
    if min(count_old, count_new) > 1 and isfinite(mean_old + stddev_old + mean_new + stddev_new):
        p_value = welch(mean_old, stddev_old**2, count_old, mean_new, stddev_new**2, count_new)
        return p_value, f"{ROUNDS_ONLY}; rounds were not saved, means are compared"
    return None, TOO_LITTLE


def _moments(values: NDArray[np.float64]) -> tuple[float, float, int]:
    return float(values.mean()), float(values.var(ddof=1)), len(values)


def welch(
    mean_old: float,
    variance_old: float,
    count_old: int,
    mean_new: float,
    variance_new: float,
    count_new: int,
) -> float:
    """Return the two-sided p value of Welch's t test (1947); the variances may differ."""
    share_old, share_new = variance_old / count_old, variance_new / count_new
    error = share_old + share_new
    if error == 0:
        return 1.0 if mean_old == mean_new else 0.0
    freedom = error**2 / (share_old**2 / (count_old - 1) + share_new**2 / (count_new - 1))
    return _student((mean_new - mean_old) / sqrt(error), freedom)


def single_run_test(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return the two-sided p value of a single run being one more run of the other side.

    Student's t test, with the variance of the other side.
    """
    many, (one,) = (before, after) if len(after) == 1 else (after, before)
    error = float(many.var(ddof=1)) * (1 + 1 / len(many))
    assert error > 0, "runs that do not vary are compared as they are"
    return _student((float(one) - float(many.mean())) / sqrt(error), len(many) - 1)


def _student(t: float, freedom: float) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def mann_whitney(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return the two-sided p value of Mann and Whitney's U test (1947).

    Normal approximation, corrected for ties and for continuity.
    """
    count, size = len(before) * len(after), len(before) + len(after)
    _, place, ties = np.unique(
        np.concatenate([before, after]), return_inverse=True, return_counts=True
    )
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    u = float(ranks[: len(before)].sum()) - len(before) * (len(before) + 1) / 2
    tied = float((ties.astype(np.float64) ** 3 - ties).sum()) / (size * (size - 1))
    variance = count / 12 * (size + 1 - tied)
    if variance <= 0:
        return 1.0
    return erfc(max(abs(u - count / 2) - 0.5, 0.0) / sqrt(2 * variance))


def _missing(old: _Side, new: _Side, statistic: str) -> str:
    """Return a note on a side without usable runs."""
    notes = []
    for name, side in (("baseline", old), ("candidate", new)):
        if side.unusable:
            runs = f"{side.unusable} run" + ("s" if side.unusable > 1 else "")
            notes.append(f"{runs} of the {name} without a usable {statistic}")
        elif not side.values:
            notes.append(f"not in the {name}")
    return "; ".join(notes)


def _other_machines(
    result: Comparison, old: Mapping[SeriesKey, _Side], new: Mapping[SeriesKey, _Side]
) -> Comparison:
    """Add a note if the missing side was measured on another machine or in another project."""
    notes = [result.note]
    for name, own, side in (
        ("baseline", result.runs_base, old),
        ("candidate", result.runs_candidate, new),
    ):
        machines = sorted(key.machine for key in side if key[:3] == result.key[:3])
        projects = sorted(
            key.project for key in side if key[:4] == result.key[:4] and key != result.key
        )
        if not own and projects:
            named = ", ".join(project or "unknown" for project in projects)
            notes.append(f"the {name} is of another project ({named})")
        if not own and machines and result.key.machine not in machines:
            notes.append(f"the {name} was measured on another machine ({', '.join(machines)})")
    return replace(result, note=_joined(*notes))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
