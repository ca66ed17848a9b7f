"""How the reports say things: values with their units, ratios, times, commits, names.

Owns every text that more than one report shows, so that the terminal, the page, the comment and a
reader's eye agree on it. Knows nothing of colours, markup or escaping, except that `printable`
makes a name from a foreign file safe to show on one line.
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
    ChangePoint,
    Comparison,
    Drift,
    Kind,
    Outcome,
    Ratio,
    ScalingLaw,
    SeriesFinding,
    VarianceChange,
)
from kraft.regression.points import SeriesKey

#: The words that mark a change whose two sides measured one commit.
SAME_CODE = "same code on both sides"

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_COUNTS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_PLAIN = ((1.0, ""),)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Relative difference below which three digits would show two values as one.
_CLOSE = 0.02


def unit_of(statistic: str, value: float) -> tuple[float, str]:
    """The scale a value of this statistic is told in, and its unit: 0.0123 s in (0.001, "ms").

    Times are in seconds; ``instructions`` are counts; an ``exponent`` has no unit.
    """
    if statistic == "exponent":
        units: tuple[tuple[float, str], ...] = _PLAIN
    else:
        units = _COUNTS if statistic == "instructions" else _SECONDS
    # What rounds to 1000 of a unit is 1.00 of the next one.
    for scale, unit in units:
        if abs(value) >= 0.9995 * scale:
            return scale, unit
    return units[-1]


def value_text(value: float, statistic: str, *, digits: int = 3) -> str:
    """``12.3 ms``, ``1.23 M``: a value with its unit, to so many digits that mean something."""
    if not math.isfinite(value):
        return "-"
    return _in_unit(value, *unit_of(statistic, value), digits)


def pair_text(old: float, new: float, statistic: str) -> tuple[str, str]:
    """Two values in one unit, with as many digits as it takes to tell them apart."""
    finite = [abs(value) for value in (old, new) if math.isfinite(value)]
    scale, unit = unit_of(statistic, max(finite, default=0.0))
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
    """``+12.3 %``, ``-45.0 %``; from eleven times on ``x12.3``, as percents are hard to read then.

    A ratio is new / old.
    """
    if not math.isfinite(ratio):
        return "-"
    if ratio >= 11:
        return f"x{ratio:,.1f}"
    return f"{(ratio - 1) * 100:+.1f} %"


def interval_text(ratio: Ratio) -> str:
    """``[10.1, 14.2]``, in percent or in the unit of `change_text` for the ratio itself."""
    if not (math.isfinite(ratio.low) and math.isfinite(ratio.high)):
        return ""
    if ratio.value >= 11:
        return f"[{ratio.low:,.1f}, {ratio.high:,.1f}]"
    return f"[{(ratio.low - 1) * 100:.1f}, {(ratio.high - 1) * 100:.1f}]"


def ratio_text(ratio: Ratio) -> str:
    """``+12.3 % [10.1, 14.2]``."""
    return f"{change_text(ratio.value)} {interval_text(ratio)}".rstrip()


def exponent_text(law: ScalingLaw) -> str:
    """``1.02 [0.98, 1.06]``."""
    return f"{law.exponent:.2f} [{law.low:.2f}, {law.high:.2f}]"


def growth_text(exponent: float) -> str:
    """What an exponent means: ``x10.5``, so many times the time for ten times the size."""
    return f"x{10**exponent:.3g}"


def p_text(p_value: float | None) -> str:
    """``0.012``, ``3e-07``; ``-`` where there is none."""
    if p_value is None or not math.isfinite(p_value):
        return "-"
    if p_value < 1e-99:
        return "<1e-99"
    return f"{p_value:.2g}" if p_value >= 0.001 else f"{p_value:.0e}"


def time_text(time_us: int) -> str:
    """``2026-11-21 15:54``, UTC."""
    return _time(time_us).strftime("%Y-%m-%d %H:%M")


def date_text(time_us: int) -> str:
    """``2026-11-21``, UTC."""
    return _time(time_us).strftime("%Y-%m-%d")


def iso_time(time_us: int) -> str:
    """``2026-11-21T15:54:00.000000Z``: ISO 8601, UTC, always with microseconds."""
    return _time(time_us).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=int(time_us))


def commit_text(commit: str | None) -> str:
    """Ten digits of a commit's hash; ``?`` where it is not known."""
    return "?" if not commit else printable(commit)[:10]


def commits_text(point: ChangePoint) -> str:
    """``1a2b3c4d5e..6f7a8b9c0d``, or that both sides are one commit, or that none is known."""
    if point.same_commit:
        return SAME_CODE
    return between_text(point.commit_before, point.commit_after)


def between_text(before: str | None, after: str | None) -> str:
    """``1a2b3c4d5e..6f7a8b9c0d``, or that no commit is known."""
    if not (before or after):
        return "commits not known"
    return f"{commit_text(before)}..{commit_text(after)}"


#: The columns of a table of slow drifts, behind those that say whose they are.
DRIFT_COLUMNS = ("from", "to", "commits", "old", "new", "change %", "interval", "a run", "q")

#: The columns of a table of changes of variance, likewise.
VARIANCE_COLUMNS = ("since", "commits", "noise before", "noise after", "q")


def drift_cells(drift: Drift) -> list[str]:
    """The texts of `DRIFT_COLUMNS`."""
    old, new = pair_text(drift.mean_before, drift.mean_after, drift.statistic)
    return [
        date_text(drift.start_time_us),
        "still going on" if drift.is_ongoing else date_text(drift.end_time_us),
        between_text(drift.commit_start, drift.commit_end),
        old,
        new,
        change_text(drift.ratio.value),
        interval_text(drift.ratio),
        slope_text(drift),
        p_text(drift.q_value),
    ]


def variance_cells(change: VarianceChange) -> list[str]:
    """The texts of `VARIANCE_COLUMNS`."""
    return [
        date_text(change.time_us),
        between_text(change.commit_before, change.commit_after),
        noise_text(change.noise_before),
        noise_text(change.noise_after),
        p_text(change.q_value),
    ]


def end_text(finding: SeriesFinding) -> str:
    """``last run 2026-11-21``, and what it is called since if it was renamed."""
    text = f"last run {date_text(finding.last_time_us)}"
    if finding.renamed_to is not None:
        text += f", since then {printable(finding.renamed_to)}"
    return text


def slope_text(drift: Drift) -> str:
    """``+0.2 % a run``: relative to the level at the start of the drift."""
    return f"{drift.slope * 100:+.2g} %"


def noise_text(noise: float) -> str:
    """``2.1 %``: standard deviation / mean; ``-`` if it is not known."""
    return f"{noise * 100:.2g} %" if math.isfinite(noise) else "-"


def exponent_change_text(point: ChangePoint) -> str:
    """``1.002 -> 1.352 since 2026-11-21 (1a2b3c4d5e..6f7a8b9c0d)``: a law that changed."""
    before, after = exponent_pair(point)
    return f"{before} -> {after} since {date_text(point.time_us)} ({commits_text(point)})"


def exponent_pair(point: ChangePoint) -> tuple[str, str]:
    """``("1.002", "1.010")``: a hundredth of an exponent is a tenth of time over four decades."""
    return f"{point.mean_before:.3f}", f"{point.mean_after:.3f}"


def kind_text(kind: Kind) -> str:
    """``slower`` or ``faster``, which a statistic of counts is as well, to whoever waits."""
    return "slower" if kind is Kind.REGRESSION else "faster"


def printable(text: str) -> str:
    """Text on one line without anything that steers a terminal: such characters are spelled."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def printable_json(value: object) -> str:
    """A value of a description or parameter as people write it: text without its quotes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text)


class Names:
    """Short names for the series of one report: ``benchmark[partitions=1000]``.

    A name that two suites share is told with its suite.
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
        """The names of everything that an analysis holds."""
        return cls([each.key for each in analysis.series] + [law.key for law in analysis.scaling])

    def __call__(self, key: SeriesKey) -> str:
        # Without a suite, `SeriesKey.name` begins with the colons that would follow it.
        name = (
            key.name
            if (key.benchmark, key.params) in self._shared
            else key.name[len(key.suite) + 2 :]
        )
        if len(self._lines) > 1:
            name += f" ({key.project or 'unknown project'}, {key.branch or 'unknown branch'})"
        return printable(name)


def summary(analysis: Analysis) -> str:
    """One line: how many series, how many changed, how many say too little, how many machines."""
    outcomes = [each.outcome for each in analysis.series]
    points = analysis.change_points
    regressions = sum(point.kind is Kind.REGRESSION for point in points)
    improvements = len(points) - regressions
    machines = {each.key.machine for each in analysis.series}
    said = [
        counted(len(outcomes), "series", "series"),
        f"{outcomes.count(Outcome.CHANGED):,} changed "
        f"({counted(regressions, 'regression')}, {counted(improvements, 'improvement')})",
        f"{outcomes.count(Outcome.TOO_LITTLE_DATA):,} with too little data",
        counted(len(machines), "machine"),
    ]
    if any(law.change_points for law in analysis.scaling):
        changed = sum(bool(law.change_points) for law in analysis.scaling)
        said.insert(2, f"{counted(changed, 'scaling law')} changed")
    if analysis.variance_changes:
        said.insert(
            2, counted(len(analysis.variance_changes), "change of variance", "changes of variance")
        )
    if analysis.drifts:
        said.insert(2, counted(len(analysis.drifts), "slow drift"))
    if analysis.problems:
        said.append(counted(len(analysis.problems), "problem"))
    return ", ".join(said)


def verdict(analysis: Analysis) -> str:
    """``3 regressions, 1 drift to slower, 1 scaling law steeper``, or ``no regression``."""
    regressions = sum(point.kind is Kind.REGRESSION for point in analysis.change_points)
    drifts = sum(drift.kind is Kind.REGRESSION for drift in analysis.drifts)
    steeper = sum(is_steeper(law) for law in analysis.scaling)
    said = [counted(regressions, "regression")] if regressions else []
    said += [counted(drifts, "drift to slower", "drifts to slower")] if drifts else []
    said += [f"{counted(steeper, 'scaling law')} steeper"] if steeper else []
    return ", ".join(said) or "no regression"


def is_steeper(law: ScalingLaw) -> bool:
    """Whether time grows faster with size than it once did."""
    return any(point.kind is Kind.REGRESSION for point in law.change_points)


def changed_first(laws: Iterable[ScalingLaw]) -> list[ScalingLaw]:
    """Scaling laws as reports list them: those that changed, then the steepest."""
    return sorted(laws, key=lambda law: (not law.change_points, -law.exponent))


def comparison_ratio(comparison: Comparison) -> float:
    """candidate / base, NaN where the base is zero."""
    if comparison.ratio is not None:
        return comparison.ratio.value
    return comparison.candidate / comparison.base if comparison.base else math.nan


def worst_first(comparisons: Iterable[Comparison], *, reverse: bool = False) -> list[Comparison]:
    """By their ratios; those without one come last in either direction."""

    def place(each: Comparison) -> tuple[bool, float]:
        ratio = comparison_ratio(each)
        return math.isnan(ratio), ratio if reverse else -ratio

    return sorted(comparisons, key=place)


def comparison_summary(comparisons: Sequence[Comparison]) -> str:
    """One line: how many benchmarks were compared, how many got worse, how many better."""
    regressions = sum(each.is_regression for each in comparisons)
    improvements = sum(each.is_improvement for each in comparisons)
    machines = {each.key.machine for each in comparisons}
    said = [
        f"{counted(len(comparisons), 'benchmark')} compared",
        counted(regressions, "regression"),
        counted(improvements, "improvement"),
        counted(len(machines), "machine"),
    ]
    unknown = sum(each.ratio is None for each in comparisons)
    if unknown:
        said.insert(3, f"{unknown:,} undecided")
    return ", ".join(said)


def counted(number: int, one: str, several: str | None = None) -> str:
    """``1 regression``, ``2 regressions``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def machine_text(machine: str) -> str:
    """A machine's name, short enough for a column: its beginning, and its end that tells it from
    others of its kind.
    """
    name = printable(machine)
    return name if len(name) <= 32 else f"{name[:20]}...{name[-9:]}"


def machine_fields(description: str | None) -> list[tuple[str, str]]:
    """A machine's description (a JSON object, maybe of objects) as dotted names and values."""
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
    """Where a project's commits can be looked at: links of a report.

    Raises InvalidConfigError where the address is no http(s) or SSH address of a repository.
    """

    def __init__(self, url: str) -> None:
        address = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", url.strip())
        address = address.rstrip("/").removesuffix(".git")
        if not re.fullmatch(r"https?://[^/\s\"'<>]+/[^\s\"'<>]+", address):
            raise InvalidConfigError(
                f"{url!r} is no address of a repository: https://host/owner/name is wanted"
            )
        # GitLab keeps its own pages under /-/, so that they never meet the name of a group.
        self._pages = f"{address}/-" if "gitlab" in address.split("/")[2] else address

    def commit(self, commit: str | None) -> str | None:
        """The page of one commit; None where that is no commit's hash."""
        return f"{self._pages}/commit/{commit}" if _is_hash(commit) else None

    def comparison(self, before: str | None, after: str | None) -> str | None:
        """The page that shows what lies between two commits."""
        if not (_is_hash(before) and _is_hash(after)) or before == after:
            return None
        return f"{self._pages}/compare/{before}...{after}"


def _is_hash(commit: str | None) -> bool:
    return commit is not None and re.fullmatch(r"[0-9a-fA-F]{7,64}", commit) is not None
