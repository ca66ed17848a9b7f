"""Texts that all reports share: values with units, ratios, times, commits, names.

The terminal, the page, the comment and JSON reports call these functions, so that they agree. The
texts contain no colour, markup or escaping, except that `printable` makes a name from a foreign
file safe to print on one line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from kraft.errors import InvalidConfigError
from kraft.regression.findings import (
    Analysis,
    ChangeKind,
    ChangePoint,
    Comparison,
    Drift,
    Ratio,
    ScalingLaw,
    SeriesFinding,
    SeriesOutcome,
    VarianceChange,
    is_alarm,
)
from kraft.regression.points import SECONDS, BenchmarkMetric, SeriesKey
from kraft.regression.verdicts import ExpectationState

#: Marks a change whose two sides measured one commit.
SAME_CODE = "same code on both sides"

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_COUNTS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_PLAIN = ((1.0, ""),)
#: Units that take a prefix without a space: MB, kHz; and those that take none.
_PREFIXED = ("B", "B/s", "Hz", "b/s")
_UNSCALED = ("%", "percent")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Below this relative difference, three digits could show two values as equal.
_CLOSE = 0.02


def unit_of(statistic: str, value: float, metric: BenchmarkMetric = SECONDS) -> tuple[float, str]:
    """Return the scale and the unit that show a value: (0.001, "ms") for 0.0123 s.

    ``instructions`` are counts, whatever the metric; an ``exponent`` has no unit.
    """
    units: Sequence[tuple[float, str]]
    if statistic == "exponent":
        units = _PLAIN
    elif statistic == "instructions":
        units = _COUNTS
    elif metric.unit == "s":
        units = _SECONDS
    elif metric.unit in _UNSCALED:
        units = ((1.0, metric.unit),)
    else:
        space = "" if metric.unit in _PREFIXED else " "
        units = [(scale, f"{prefix}{space}{metric.unit}".strip()) for scale, prefix in _COUNTS]
    # A value that rounds to 1000 of a unit is shown as 1.00 of the next one.
    for scale, unit in units:
        if abs(value) >= 0.9995 * scale:
            return scale, unit
    return units[-1]


def value_text(
    value: float, statistic: str, metric: BenchmarkMetric = SECONDS, *, digits: int = 3
) -> str:
    """Return a value with its unit and ``digits`` significant digits: ``12.3 ms``, ``1.23 M``."""
    if not math.isfinite(value):
        return "-"
    return _in_unit(value, *unit_of(statistic, value, metric), digits)


def pair_text(
    old: float, new: float, statistic: str, metric: BenchmarkMetric = SECONDS
) -> tuple[str, str]:
    """Return two values in one unit, with enough digits to distinguish them."""
    finite = [abs(value) for value in (old, new) if math.isfinite(value)]
    scale, unit = unit_of(statistic, max(finite, default=0.0), metric)
    close = old != 0 and abs(new / old - 1) < _CLOSE
    first, second = (
        _in_unit(value, scale, unit, 4 if close else 3) if math.isfinite(value) else "-"
        for value in (old, new)
    )
    return first, second


def _in_unit(value: float, scale: float, unit: str, digits: int) -> str:
    shown = float(f"{value / scale:.{digits}g}")
    whole_digits = 1 if shown == 0 else math.floor(math.log10(abs(shown))) + 1
    text = f"{shown:,.{min(max(digits - whole_digits, 0), 6)}f}"
    return f"{text} {unit}".rstrip()


def change_text(ratio: float) -> str:
    """Return the change of a ratio new / old: ``+12.3 %``, ``-45.0 %``; ``x12.3`` from 11 on."""
    if not math.isfinite(ratio):
        return "-"
    if ratio >= 11:
        return f"x{ratio:,.1f}"
    return f"{(ratio - 1) * 100:+.1f} %"


def interval_text(ratio: Ratio) -> str:
    """Return ``[10.1, 14.2]``, in percent or as ratios, like `change_text` of the ratio."""
    if not (math.isfinite(ratio.low) and math.isfinite(ratio.high)):
        return ""
    if ratio.value >= 11:
        return f"[{ratio.low:,.1f}, {ratio.high:,.1f}]"
    return f"[{(ratio.low - 1) * 100:.1f}, {(ratio.high - 1) * 100:.1f}]"


def ratio_text(ratio: Ratio) -> str:
    """Return ``+12.3 % [10.1, 14.2]``."""
    return f"{change_text(ratio.value)} {interval_text(ratio)}".rstrip()


def exponent_text(law: ScalingLaw) -> str:
    """Return ``1.02 [0.98, 1.06]``."""
    return f"{law.exponent:z.2f} [{law.low:z.2f}, {law.high:z.2f}]"


def growth_text(exponent: float) -> str:
    """Return an exponent as the growth of time for ten times the size: ``x10.5``."""
    return f"x{10**exponent:.3g}"


def p_text(p_value: float | None) -> str:
    """Return a p value as ``0.012``, ``3e-07``; ``-`` for None."""
    if p_value is None or not math.isfinite(p_value):
        return "-"
    if p_value < 1e-99:
        return "<1e-99"
    return f"{p_value:.2g}" if p_value >= 0.001 else f"{p_value:.0e}"


def time_text(time_us: int) -> str:
    """Return ``2026-11-21 15:54``, UTC."""
    return _time(time_us).strftime("%Y-%m-%d %H:%M")


def date_text(time_us: int) -> str:
    """Return ``2026-11-21``, UTC."""
    return _time(time_us).strftime("%Y-%m-%d")


def iso_time(time_us: int) -> str:
    """Return ``2026-11-21T15:54:00.000000Z``: ISO 8601, UTC, with microseconds."""
    return _time(time_us).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=int(time_us))


def commit_text(commit: str | None) -> str:
    """Return the first ten digits of a commit's hash; ``?`` if unknown."""
    return "?" if not commit else printable(commit)[:10]


def commits_text(point: ChangePoint) -> str:
    """Return ``1a2b3c4d5e..6f7a8b9c0d``, or that the commit is the same or unknown."""
    if point.same_commit:
        return SAME_CODE
    return between_text(point.commit_before, point.commit_after)


def between_text(before: str | None, after: str | None) -> str:
    """Return ``1a2b3c4d5e..6f7a8b9c0d``, or that both commits are unknown."""
    if not (before or after):
        return "commits unknown"
    return f"{commit_text(before)}..{commit_text(after)}"


#: The columns of a table of slow drifts, after the columns that identify the series.
DRIFT_COLUMNS = ("from", "to", "commits", "old", "new", "change %", "interval", "per run", "q")

#: The same for a table of changes of variance.
VARIANCE_COLUMNS = ("since", "commits", "noise before", "noise after", "q")


def drift_cells(drift: Drift) -> list[str]:
    """Return the texts of `DRIFT_COLUMNS`."""
    old, new = pair_text(drift.mean_before, drift.mean_after, drift.statistic, drift.metric)
    return [
        date_text(drift.start_time_us),
        "ongoing" if drift.is_ongoing else date_text(drift.end_time_us),
        between_text(drift.commit_start, drift.commit_end),
        old,
        new,
        change_text(drift.ratio.value),
        interval_text(drift.ratio),
        slope_text(drift),
        p_text(drift.q_value),
    ]


def variance_cells(change: VarianceChange) -> list[str]:
    """Return the texts of `VARIANCE_COLUMNS`."""
    return [
        date_text(change.time_us),
        between_text(change.commit_before, change.commit_after),
        noise_text(change.noise_before),
        noise_text(change.noise_after),
        p_text(change.q_value),
    ]


def end_text(finding: SeriesFinding) -> str:
    """Return ``last run 2026-11-21``, and the new name of a renamed series."""
    text = f"last run {date_text(finding.last_time_us)}"
    if finding.renamed_to is not None:
        text += f", since then {printable(finding.renamed_to)}"
    return text


def begin_text(finding: SeriesFinding) -> str:
    """Return ``first run 2026-11-21``."""
    return f"first run {date_text(finding.first_time_us)}"


def slope_text(drift: Drift) -> str:
    """Return ``+0.2 %``: change per run, relative to the level at the start of the drift."""
    return f"{drift.slope * 100:+.2g} %"


def noise_text(noise: float) -> str:
    """Return ``2.1 %``: standard deviation / mean; ``-`` if unknown."""
    return f"{noise * 100:.2g} %" if math.isfinite(noise) else "-"


def exponent_change_text(point: ChangePoint) -> str:
    """Return ``1.002 -> 1.352 since 2026-11-21 (1a2b3c4d5e..6f7a8b9c0d)`` of a changed law."""
    before, after = exponent_pair(point)
    return f"{before} -> {after} since {date_text(point.time_us)} ({commits_text(point)})"


def exponent_pair(point: ChangePoint) -> tuple[str, str]:
    """Return ``("1.002", "1.010")``: 0.01 of an exponent is 10 % of the time over four decades."""
    return f"{point.mean_before:.3f}", f"{point.mean_after:.3f}"


def kind_text(kind: ChangeKind) -> str:
    """Return ``slower`` or ``faster``, for counts as well."""
    return "slower" if kind is ChangeKind.REGRESSION else "faster"


def change_word(kind: ChangeKind, metric: BenchmarkMetric) -> str:
    """Return ``slower`` or ``faster`` for times, counts of instructions and rates; ``worse`` or
    ``better`` for other units.
    """
    if metric.unit in ("s", "") or metric.unit.endswith("/s"):
        return kind_text(kind)
    return "worse" if kind is ChangeKind.REGRESSION else "better"


def direction_text(metric: BenchmarkMetric) -> str:
    """Return ``bigger is better``; nothing for a metric where smaller is better."""
    return "bigger is better" if metric.bigger_is_better else ""


def printable(text: str) -> str:
    """Return text on one line, with characters that control a terminal escaped."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def printable_json(value: object) -> str:
    """Return a JSON value for readers: text without its quotes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text)


class Names:
    """Short names for the series of one report: ``benchmark[partitions=1000]``.

    A name that two suites share is prefixed with its suite.
    """

    def __init__(self, keys: Iterable[SeriesKey]) -> None:
        suites: dict[tuple[str, str], set[str]] = {}
        self.machines: set[str] = set()
        keys = list(keys)
        self._lines = {(key.project, key.branch) for key in keys}
        for key in keys:
            suites.setdefault((key.benchmark, key.params), set()).add(key.suite)
            self.machines.add(key.machine)
        self._shared = {short for short, found in suites.items() if len(found) > 1}

    @classmethod
    def of(cls, analysis: Analysis) -> Names:
        """Return the names of everything in an analysis."""
        return cls([each.key for each in analysis.series] + [law.key for law in analysis.scaling])

    def __call__(self, key: SeriesKey) -> str:
        # `SeriesKey.name` is the suite, two colons and the short name.
        name = (
            key.name
            if (key.benchmark, key.params) in self._shared
            else key.name[len(key.suite) + 2 :]
        )
        if len(self._lines) > 1:
            name += f" ({key.project or 'unknown project'}, {key.branch or 'unknown branch'})"
        return printable(name)


def summary(analysis: Analysis) -> str:
    """Return one line of counts: series, changed series, series with too little data, machines."""
    outcomes = [each.outcome for each in analysis.series]
    points = analysis.change_points
    regressions = sum(point.kind is ChangeKind.REGRESSION for point in points)
    improvements = len(points) - regressions
    machines = {each.key.machine for each in analysis.series}
    parts = [
        counted(len(outcomes), "series", "series"),
        f"{outcomes.count(SeriesOutcome.CHANGED):,} changed "
        f"({counted(regressions, 'regression')}, {counted(improvements, 'improvement')})",
        f"{outcomes.count(SeriesOutcome.TOO_LITTLE_DATA):,} with too little data",
        counted(len(machines), "machine"),
    ]
    if any(law.change_points for law in analysis.scaling):
        changed = sum(bool(law.change_points) for law in analysis.scaling)
        parts.insert(2, f"{counted(changed, 'scaling law')} changed")
    if analysis.variance_changes:
        parts.insert(
            2, counted(len(analysis.variance_changes), "change of variance", "changes of variance")
        )
    if analysis.drifts:
        parts.insert(2, counted(len(analysis.drifts), "slow drift"))
    quiet = len(analysis.regressions) - len(analysis.alarms)
    if quiet:
        parts.append(f"{counted(quiet, 'regression')} covered by verdicts")
    missed = sum(each.state is ExpectationState.DID_NOT_COME for each in analysis.expectations)
    if missed:
        expected = counted(missed, "expected change", "expected changes")
        parts.append(f"{expected} did not come")
    if analysis.problems:
        parts.append(counted(len(analysis.problems), "problem"))
    return ", ".join(parts)


def verdict(analysis: Analysis) -> str:
    """Return ``3 regressions, 1 drift to slower, 1 scaling law steeper``, or ``no regression``.

    Regressions that a person's verdict covers do not count; with such, ``no new regression``.
    """
    drifts = sum(map(is_alarm, analysis.drifts))
    steeper = sum(any(is_alarm(point) for point in law.change_points) for law in analysis.scaling)
    regressions = sum(map(is_alarm, analysis.change_points))
    parts = [counted(regressions, "regression")] if regressions else []
    parts += [counted(drifts, "drift to slower", "drifts to slower")] if drifts else []
    parts += [f"{counted(steeper, 'scaling law')} steeper"] if steeper else []
    nothing = "no new regression" if analysis.regressions else "no regression"
    return ", ".join(parts) or nothing


def is_steeper(law: ScalingLaw) -> bool:
    """Return whether time grows faster with size than before."""
    return any(point.kind is ChangeKind.REGRESSION for point in law.change_points)


def changed_first(laws: Iterable[ScalingLaw]) -> list[ScalingLaw]:
    """Return scaling laws in the order of reports: changed ones first, then the steepest."""
    return sorted(laws, key=lambda law: (not law.change_points, -law.exponent))


def comparison_ratio(comparison: Comparison) -> float:
    """Return candidate / base, NaN if the base is zero."""
    if comparison.ratio is not None:
        return comparison.ratio.value
    return comparison.candidate / comparison.base if comparison.base else math.nan


def worst_first(comparisons: Iterable[Comparison], *, reverse: bool = False) -> list[Comparison]:
    """Return the comparisons sorted by how much worse the candidate is; those without a ratio are
    last in either direction.
    """

    def place(each: Comparison) -> tuple[bool, float]:
        ratio = each.metric.worsening(comparison_ratio(each))
        return math.isnan(ratio), ratio if reverse else -ratio

    return sorted(comparisons, key=place)


def comparison_summary(comparisons: Sequence[Comparison]) -> str:
    """Return one line of counts: benchmarks compared, regressions, improvements."""
    regressions = sum(each.is_regression for each in comparisons)
    improvements = sum(each.is_improvement for each in comparisons)
    machines = {each.key.machine for each in comparisons}
    parts = [
        f"{counted(len(comparisons), 'benchmark')} compared",
        counted(regressions, "regression"),
        counted(improvements, "improvement"),
        counted(len(machines), "machine"),
    ]
    unknown = sum(each.ratio is None for each in comparisons)
    if unknown:
        parts.insert(3, f"{unknown:,} undecided")
    return ", ".join(parts)


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return ``1 regression``, ``2 regressions``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def machine_text(machine: str) -> str:
    """Return a machine's name in at most 32 characters: its beginning and its unique end."""
    name = printable(machine)
    return name if len(name) <= 32 else f"{name[:20]}...{name[-9:]}"


def machine_fields(description: str | None) -> list[tuple[str, str]]:
    """Return a machine's description, a JSON object, as dotted names and values."""
    if not description:
        return []
    try:
        given = json.loads(description)
    except ValueError:
        return [("description", printable(description))]
    return list(_fields("", given))


def _fields(name: str, value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for inner, each in value.items():
            yield from _fields(f"{name}.{inner}" if name else str(inner), each)
    elif value not in (None, "", [], {}):
        yield printable(name), printable_json(value)


class Repository:
    """Links to a project's commits on its web host.

    Raises InvalidConfigError for a text that is not an http(s) or SSH address of a repository.
    """

    def __init__(self, url: str) -> None:
        address = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", url.strip())
        address = address.rstrip("/").removesuffix(".git")
        if not re.fullmatch(r"https?://[^/\s\"'<>]+/[^\s\"'<>]+", address):
            raise InvalidConfigError(
                f"{url!r} is not a repository URL; expected https://host/owner/name"
            )
        # GitLab's own pages are under /-/, because a group may have any other name.
        self._pages = f"{address}/-" if "gitlab" in address.split("/")[2] else address

    def commit(self, commit: str | None) -> str | None:
        """Return the URL of a commit's page; None if ``commit`` is not a hash."""
        return f"{self._pages}/commit/{commit}" if _is_hash(commit) else None

    def comparison(self, before: str | None, after: str | None) -> str | None:
        """Return the URL of the page that compares two commits."""
        if not (_is_hash(before) and _is_hash(after)) or before == after:
            return None
        return f"{self._pages}/compare/{before}...{after}"


def _is_hash(commit: str | None) -> bool:
    return commit is not None and re.fullmatch(r"[0-9a-fA-F]{7,64}", commit) is not None
