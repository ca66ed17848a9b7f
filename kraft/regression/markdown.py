"""Findings as Markdown for a pull request: regressions in a table, the rest folded.

This module limits the length (a GitHub comment holds 65,536 characters) and escapes texts: a
benchmark's name is displayed unchanged and never becomes markup, a mention or a new cell.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence

from kraft.regression import report_text, verdict_text
from kraft.regression.findings import (
    Analysis,
    ChangeKind,
    ChangePoint,
    Comparison,
    ScalingLaw,
    SeriesOutcome,
    is_alarm,
)
from kraft.regression.points import SeriesKey
from kraft.regression.verdicts import ExpectationOutcome

#: Limits of rows per table, tried in turn until the comment is short enough; the worst rows are
#: kept and the others counted.
MOST_ROWS = (50, 20, 10, 5, 2)
#: Characters of a comment: GitHub accepts 65,536, and the program that posts it may add some.
MOST_CHARACTERS = 64_000
_LONGEST_NAME = 200

_Row = Sequence[str]


def comment(analysis: Analysis, *, repository_url: str | None = None) -> str:
    """Return an analysis as a comment: regressions open, all else in ``<details>``.

    ``repository_url`` makes the commits links. Raises InvalidConfigError if it is not a repository
    URL.
    """
    repository = report_text.Repository(repository_url) if repository_url else None
    return _fitting(lambda most: _comment(analysis, repository, most))


def comparison(comparisons: Sequence[Comparison], threshold: float) -> str:
    """Return a comparison as a comment; ``threshold`` is the allowed change: 0.05 is 5 %."""
    return _fitting(lambda most: _comparison(comparisons, threshold, most))


def _fitting(text_of: Callable[[int], str]) -> str:
    """Return the text with the most rows that a comment can hold."""
    texts = map(text_of, MOST_ROWS)
    return next((text for text in texts if len(text) <= MOST_CHARACTERS), text_of(MOST_ROWS[-1]))


def _comment(analysis: Analysis, repository: report_text.Repository | None, most: int) -> str:
    names = report_text.Names.of(analysis)
    points = analysis.change_points
    changed = [law for law in analysis.scaling if law.change_points]
    steady = [law for law in analysis.scaling if not law.change_points]
    regressions = [point for point in points if point.kind is ChangeKind.REGRESSION]
    improvements = [point for point in points if point.kind is ChangeKind.IMPROVEMENT][::-1]
    blocks = [
        f"### Benchmarks: {report_text.verdict(analysis)}",
        _escaped(report_text.summary(analysis)),
    ]
    alarms = [point for point in regressions if is_alarm(point)]
    quiet = [point for point in regressions if not is_alarm(point)]
    blocks += _change_points(alarms, names, repository, most)
    blocks += _scaling_laws(changed, names, most)
    blocks += _trends(
        *verdict_text.drift_table(
            [each for each in analysis.drifts if each.kind is ChangeKind.REGRESSION]
        ),
        names,
        most,
        "Slow drifts to slower",
    )
    missed, awaited = verdict_text.missed(analysis), verdict_text.awaited(analysis)
    blocks += _expectations(missed, names, most, "Expected changes that did not come")
    blocks += _folded(
        f"{report_text.counted(len(quiet), 'regression')} covered by verdicts",
        _change_points(quiet, names, repository, most),
    )
    blocks += _folded(
        report_text.counted(len(awaited), "expected change"),
        _expectations(awaited, names, most),
    )
    better = report_text.counted(len(improvements), "improvement")
    blocks += _folded(better, _change_points(improvements, names, repository, most))
    faster = [each for each in analysis.drifts if each.kind is ChangeKind.IMPROVEMENT][::-1]
    blocks += _folded(
        report_text.counted(len(faster), "drift to faster", "drifts to faster"),
        _trends(
            report_text.DRIFT_COLUMNS,
            [(each.key, report_text.drift_cells(each)) for each in faster],
            names,
            most,
        ),
    )
    scattering = analysis.variance_changes
    blocks += _folded(
        report_text.counted(len(scattering), "change of variance", "changes of variance"),
        _trends(
            report_text.VARIANCE_COLUMNS,
            [(each.key, report_text.variance_cells(each)) for each in scattering],
            names,
            most,
        ),
    )
    blocks += _folded(
        report_text.counted(len(steady), "scaling law that holds", "scaling laws that hold"),
        _scaling_laws(steady, names, most),
    )
    ended = [each for each in analysis.series if each.ended]
    blocks += _folded(
        f"{len(ended):,} series ended",
        _table(
            ["benchmark", "end"],
            [[_code(names(each.key)), _escaped(report_text.end_text(each))] for each in ended],
            most,
        ),
    )
    began = [each for each in analysis.series if each.began]
    blocks += _folded(
        f"{len(began):,} series began",
        _table(
            ["benchmark", "begin"],
            [[_code(names(each.key)), _escaped(report_text.begin_text(each))] for each in began],
            most,
        ),
    )
    too_short = [each for each in analysis.series if each.outcome is SeriesOutcome.TOO_LITTLE_DATA]
    rows = [[_code(names(each.key)), f"{each.run_count:,}"] for each in too_short]
    blocks += _folded(
        f"{len(too_short):,} series with too little data",
        _table(["benchmark", "runs:"], rows, most),
    )
    problems = [[_code(problem)] for problem in analysis.problems]
    blocks += _folded(
        report_text.counted(len(problems), "problem"),
        _table(["skipped input and reason"], problems, most),
    )
    return "\n\n".join(blocks) + "\n"


def _comparison(comparisons: Sequence[Comparison], threshold: float, most: int) -> str:
    names = report_text.Names(each.key for each in comparisons)
    regressions = [each for each in comparisons if each.is_regression]
    improvements = [each for each in comparisons if each.is_improvement]
    rest = [each for each in comparisons if not (each.is_regression or each.is_improvement)]
    worse = report_text.counted(len(regressions), "regression")
    verdict = worse if regressions else "no regression"
    blocks = [
        f"### Benchmarks: {verdict}",
        f"{_escaped(report_text.comparison_summary(comparisons))}. A regression is significant and "
        f"more than {threshold * 100:g} % slower.",
    ]
    blocks += _comparisons(regressions, names, most)
    better = report_text.counted(len(improvements), "improvement")
    blocks += _folded(better, _comparisons(improvements, names, most, reverse=True))
    blocks += _folded(
        f"{len(rest):,} without a change beyond threshold and noise",
        _comparisons(rest, names, most),
    )
    return "\n\n".join(blocks) + "\n"


def _change_points(
    points: Sequence[ChangePoint],
    names: report_text.Names,
    repository: report_text.Repository | None,
    most: int,
) -> list[str]:
    several = len(names.machines) > 1
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["change:", "interval:", "old:", "new:", "since", "commits", "q:"]
    judged = verdict_text.has_verdict(points)
    columns += ["verdict"] if judged else []
    rows = []
    for point in points:
        old, new = report_text.pair_text(
            point.mean_before, point.mean_after, point.statistic, point.metric
        )
        rows.append(
            [
                _code(names(point.key)),
                *([_code(report_text.machine_text(point.key.machine))] if several else []),
                f"**{report_text.change_text(point.ratio.value)}**",
                _escaped(report_text.interval_text(point.ratio)),
                _escaped(old),
                _escaped(new),
                report_text.date_text(point.time_us),
                _commits(point, repository),
                _escaped(report_text.p_text(point.q_value)),
                *([_escaped(verdict_text.applied_text(point.verdict))] if judged else []),
            ]
        )
    return _table(columns, rows, most)


def _trends(
    columns: Sequence[str],
    found: Sequence[tuple[SeriesKey, list[str]]],
    names: report_text.Names,
    most: int,
    title: str = "",
) -> list[str]:
    several = len(names.machines) > 1
    rows = [
        [
            _code(names(key)),
            *([_code(report_text.machine_text(key.machine))] if several else []),
            *map(_escaped, cells),
        ]
        for key, cells in found
    ]
    blocks = _table(["benchmark", *(["machine"] if several else []), *columns], rows, most)
    return [f"**{title}**", *blocks] if title and blocks else blocks


def _expectations(
    found: Sequence[ExpectationOutcome], names: report_text.Names, most: int, title: str = ""
) -> list[str]:
    cells = [(each.key, verdict_text.expectation_cells(each)) for each in found]
    return _trends(verdict_text.EXPECTATION_COLUMNS, cells, names, most, title)


def _commits(point: ChangePoint, repository: report_text.Repository | None) -> str:
    if point.same_commit:
        return report_text.SAME_CODE
    text = _code(report_text.commits_text(point))
    url = repository and repository.comparison(point.commit_before, point.commit_after)
    return f"[{text}]({url})" if url else text


def _comparisons(
    comparisons: Sequence[Comparison], names: report_text.Names, most: int, *, reverse: bool = False
) -> list[str]:
    several = len(names.machines) > 1
    noted = any(each.note for each in comparisons)
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["change:", "interval:", "base:", "candidate:", "q:", *(["note"] if noted else [])]
    rows = []
    for each in report_text.worst_first(comparisons, reverse=reverse):
        base, candidate = report_text.pair_text(
            each.base, each.candidate, each.statistic, each.metric
        )
        rows.append(
            [
                _code(names(each.key)),
                *([_code(report_text.machine_text(each.key.machine))] if several else []),
                f"**{report_text.change_text(report_text.comparison_ratio(each))}**",
                _escaped(report_text.interval_text(each.ratio)) if each.ratio else "",
                _escaped(base),
                _escaped(candidate),
                _escaped(report_text.p_text(each.q_value)),
                *([_escaped(each.note)] if noted else []),
            ]
        )
    return _table(columns, rows, most)


def _scaling_laws(laws: Sequence[ScalingLaw], names: report_text.Names, most: int) -> list[str]:
    rows = [
        [
            _code(names(law.key)),
            _code(law.size_param),
            _escaped(report_text.exponent_text(law)),
            report_text.growth_text(law.exponent),
            _escaped("; ".join(map(verdict_text.exponent_change_text, law.change_points))),
        ]
        for law in report_text.changed_first(laws)
    ]
    columns = ["benchmark", "size", "exponent:", "10x the size:", "changed"]
    return _table(columns, rows, most)


def _table(columns: Sequence[str], rows: Sequence[_Row], most: int) -> list[str]:
    """Return a table and a count of omitted rows; a column whose name ends with a colon is
    right-aligned.
    """
    if not rows:
        return []
    lines = [
        _line([column.rstrip(":") for column in columns]),
        _line(["--:" if column.endswith(":") else "---" for column in columns]),
        *map(_line, rows[:most]),
    ]
    return ["\n".join(lines), *([f"and {len(rows) - most:,} more"] if len(rows) > most else [])]


def _line(cells: _Row) -> str:
    return f"| {' | '.join(cells)} |"


def _folded(title: str, blocks: Sequence[str]) -> list[str]:
    """Return the blocks inside ``<details>``; nothing for no blocks."""
    if not blocks:
        return []
    return [f"<details><summary>{title}</summary>", *blocks, "</details>"]


def _code(text: str) -> str:
    """Return text as code: an element, because backticks inside a table need escaping."""
    short = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
    return f"<code>{_escaped(short)}</code>"


def _escaped(text: str) -> str:
    """Return text that Markdown displays unchanged, on one line."""
    plain = html.escape(report_text.printable(text), quote=False)
    return re.sub(
        r"[|`*\[\]\\~@]|:(?=//)|(?<=www)\.|(?<!\w)_|_(?!\w)",
        lambda found: f"&#{ord(found[0])};",
        plain,
    )
