"""Findings as Markdown for a pull request: what counts in a table, the rest folded away.

Owns the shape of the comment, its bounds (a comment of GitHub's holds 65,536 characters) and the
escaping: a benchmark's name is shown as it is and never becomes markup, a mention or a new cell.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence

from kraft.regression import wording
from kraft.regression.findings import (
    Analysis,
    ChangePoint,
    Comparison,
    Kind,
    Outcome,
    ScalingLaw,
)
from kraft.regression.points import SeriesKey

#: Rows of one table, the worst of them; the others are counted. Fewer where it gets too long.
MOST_ROWS = (50, 20, 10, 5, 2)
#: Characters of a comment: GitHub takes 65,536, and whoever posts it may add some.
MOST_CHARACTERS = 64_000
_LONGEST_NAME = 200

_Row = Sequence[str]


def comment(analysis: Analysis, *, repository_url: str | None = None) -> str:
    """An analysis: regressions open, everything else in ``<details>``.

    ``repository_url`` makes the commits links. Raises InvalidConfigError where it is none.
    """
    repository = wording.Repository(repository_url) if repository_url else None
    return _fitting(lambda most: _comment(analysis, repository, most))


def comparison(comparisons: Sequence[Comparison], threshold: float) -> str:
    """A candidate beside its baseline; ``threshold`` is the ratio's excess that counts: 0.05."""
    return _fitting(lambda most: _comparison(comparisons, threshold, most))


def _fitting(text_of: Callable[[int], str]) -> str:
    """The longest text that a comment may hold, of those with ever fewer rows."""
    texts = map(text_of, MOST_ROWS)
    return next((text for text in texts if len(text) <= MOST_CHARACTERS), text_of(MOST_ROWS[-1]))


def _comment(analysis: Analysis, repository: wording.Repository | None, most: int) -> str:
    names = wording.Names.of(analysis)
    points = analysis.change_points
    changed = [law for law in analysis.scaling if law.change_points]
    steady = [law for law in analysis.scaling if not law.change_points]
    regressions = [point for point in points if point.kind is Kind.REGRESSION]
    improvements = [point for point in points if point.kind is Kind.IMPROVEMENT][::-1]
    blocks = [f"### Benchmarks: {wording.verdict(analysis)}", _escaped(wording.summary(analysis))]
    blocks += _change_points(regressions, names, repository, most)
    blocks += _scaling_laws(changed, names, most)
    blocks += _trends(
        wording.DRIFT_COLUMNS,
        [
            (each.key, wording.drift_cells(each))
            for each in analysis.drifts
            if each.kind is Kind.REGRESSION
        ],
        names,
        most,
        "Slow drifts to slower",
    )
    better = wording.counted(len(improvements), "improvement")
    blocks += _folded(better, _change_points(improvements, names, repository, most))
    faster = [each for each in analysis.drifts if each.kind is Kind.IMPROVEMENT][::-1]
    blocks += _folded(
        wording.counted(len(faster), "drift to faster", "drifts to faster"),
        _trends(
            wording.DRIFT_COLUMNS,
            [(each.key, wording.drift_cells(each)) for each in faster],
            names,
            most,
        ),
    )
    scattering = analysis.variance_changes
    blocks += _folded(
        wording.counted(len(scattering), "change of variance", "changes of variance"),
        _trends(
            wording.VARIANCE_COLUMNS,
            [(each.key, wording.variance_cells(each)) for each in scattering],
            names,
            most,
        ),
    )
    blocks += _folded(
        wording.counted(len(steady), "scaling law that holds", "scaling laws that hold"),
        _scaling_laws(steady, names, most),
    )
    ended = [each for each in analysis.series if each.ended]
    blocks += _folded(
        f"{len(ended):,} series ended",
        _table(
            ["benchmark", "end"],
            [[_code(names(each.key)), _escaped(wording.end_text(each))] for each in ended],
            most,
        ),
    )
    silent = [each for each in analysis.series if each.outcome is Outcome.TOO_LITTLE_DATA]
    rows = [[_code(names(each.key)), f"{each.run_count:,}"] for each in silent]
    blocks += _folded(
        f"{len(silent):,} series with too little data", _table(["benchmark", "runs:"], rows, most)
    )
    problems = [[_code(problem)] for problem in analysis.problems]
    blocks += _folded(
        wording.counted(len(problems), "problem"),
        _table(["what was skipped, and why"], problems, most),
    )
    return "\n\n".join(blocks) + "\n"


def _comparison(comparisons: Sequence[Comparison], threshold: float, most: int) -> str:
    names = wording.Names(each.key for each in comparisons)
    regressions = [each for each in comparisons if each.is_regression]
    improvements = [each for each in comparisons if each.is_improvement]
    rest = [each for each in comparisons if not (each.is_regression or each.is_improvement)]
    worse = wording.counted(len(regressions), "regression")
    verdict = worse if regressions else "no regression"
    blocks = [
        f"### Benchmarks: {verdict}",
        f"{_escaped(wording.comparison_summary(comparisons))}. A regression is significant and "
        f"more than {threshold * 100:g} % slower.",
    ]
    blocks += _comparisons(regressions, names, most)
    better = wording.counted(len(improvements), "improvement")
    blocks += _folded(better, _comparisons(improvements, names, most, reverse=True))
    blocks += _folded(
        f"{len(rest):,} without a change that counts", _comparisons(rest, names, most)
    )
    return "\n\n".join(blocks) + "\n"


def _change_points(
    points: Sequence[ChangePoint],
    names: wording.Names,
    repository: wording.Repository | None,
    most: int,
) -> list[str]:
    several = len(names.machines) > 1
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["change:", "interval:", "old:", "new:", "since", "commits", "q:"]
    rows = []
    for point in points:
        old, new = wording.pair_text(point.mean_before, point.mean_after, point.statistic)
        rows.append(
            [
                _code(names(point.key)),
                *([_code(wording.machine_text(point.key.machine))] if several else []),
                f"**{wording.change_text(point.ratio.value)}**",
                _escaped(wording.interval_text(point.ratio)),
                old,
                new,
                wording.date_text(point.time_us),
                _commits(point, repository),
                _escaped(wording.p_text(point.q_value)),
            ]
        )
    return _table(columns, rows, most)


def _trends(
    columns: Sequence[str],
    found: Sequence[tuple[SeriesKey, list[str]]],
    names: wording.Names,
    most: int,
    title: str = "",
) -> list[str]:
    several = len(names.machines) > 1
    rows = [
        [
            _code(names(key)),
            *([_code(wording.machine_text(key.machine))] if several else []),
            *map(_escaped, cells),
        ]
        for key, cells in found
    ]
    blocks = _table(["benchmark", *(["machine"] if several else []), *columns], rows, most)
    return [f"**{title}**", *blocks] if title and blocks else blocks


def _commits(point: ChangePoint, repository: wording.Repository | None) -> str:
    if point.same_commit:
        return wording.SAME_CODE
    text = _code(wording.commits_text(point))
    url = repository and repository.comparison(point.commit_before, point.commit_after)
    return f"[{text}]({url})" if url else text


def _comparisons(
    comparisons: Sequence[Comparison], names: wording.Names, most: int, *, reverse: bool = False
) -> list[str]:
    several = len(names.machines) > 1
    noted = any(each.note for each in comparisons)
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["change:", "interval:", "base:", "candidate:", "q:", *(["note"] if noted else [])]
    rows = []
    for each in wording.worst_first(comparisons, reverse=reverse):
        base, candidate = wording.pair_text(each.base, each.candidate, each.statistic)
        rows.append(
            [
                _code(names(each.key)),
                *([_code(wording.machine_text(each.key.machine))] if several else []),
                f"**{wording.change_text(wording.comparison_ratio(each))}**",
                _escaped(wording.interval_text(each.ratio)) if each.ratio else "",
                base,
                candidate,
                _escaped(wording.p_text(each.q_value)),
                *([_escaped(each.note)] if noted else []),
            ]
        )
    return _table(columns, rows, most)


def _scaling_laws(laws: Sequence[ScalingLaw], names: wording.Names, most: int) -> list[str]:
    rows = [
        [
            _code(names(law.key)),
            _code(law.size_param),
            _escaped(wording.exponent_text(law)),
            wording.growth_text(law.exponent),
            _escaped("; ".join(map(wording.exponent_change_text, law.change_points))),
        ]
        for law in wording.changed_first(laws)
    ]
    columns = ["benchmark", "size", "exponent:", "10x the size:", "changed"]
    return _table(columns, rows, most)


def _table(columns: Sequence[str], rows: Sequence[_Row], most: int) -> list[str]:
    """Blocks of a table; a column whose name ends with a colon is set to the right."""
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
    """What is there only for those who open it; nothing where there is nothing."""
    if not blocks:
        return []
    return [f"<details><summary>{title}</summary>", *blocks, "</details>"]


def _code(text: str) -> str:
    """Text in the type of code. An element rather than backticks, as those would need escaping of
    their own inside a table, and within which entities hold for everything.
    """
    short = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
    return f"<code>{_escaped(short)}</code>"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    plain = html.escape(wording.printable(text), quote=False)
    return re.sub(
        r"[|`*\[\]\\~@]|:(?=//)|(?<=www)\.|(?<!\w)_|_(?!\w)",
        lambda found: f"&#{ord(found[0])};",
        plain,
    )
