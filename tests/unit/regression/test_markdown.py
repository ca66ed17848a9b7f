"""Findings for a pull request: compact, bounded, with every name escaped."""

from __future__ import annotations

import html
import re

import pytest

from kraft.regression import markdown
from kraft.regression.findings import Analysis
from tests.unit.regression import examples


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row, split like GitHub at pipes that are not escaped."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and "---" not in line
    ]


def test_regressions_are_open_and_everything_else_is_folded() -> None:
    text = markdown.comment(examples.analysis())
    opened, _, folded = text.partition("<details>")
    verdict = "3 regressions, 1 drift to slower, 1 scaling law steeper"
    assert opened.startswith(f"### Benchmarks: {verdict}\n")
    assert "bench_elect" in opened
    assert "bench_scan" in opened, "the scaling law that changed is missing"
    assert "bench_decode" not in opened
    assert re.findall(r"<summary>(.*?)</summary>", text) == [
        "2 improvements",
        "1 change of variance",
        "1 scaling law that holds",
        "1 series with too little data",
        "1 problem",
    ]
    assert "bench_decode" in folded
    assert text.count("<details>") == text.count("</details>")


def test_every_row_of_a_table_has_its_columns_whatever_the_names() -> None:
    text = markdown.comment(examples.analysis(hostile=True))
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(cells) for cells in rows(table)}) == 1


def test_a_hostile_name_is_shown_as_it_is() -> None:
    text = markdown.comment(examples.analysis(hostile=True))
    name = next(cells[0] for cells in rows(text) if "alert" in cells[0])
    inside = name.removeprefix("<code>").removesuffix("</code>")
    assert not re.search(r"[<>|`*\[\]@\\]|://", inside)
    assert html.unescape(inside) == (
        "Bench</script><script>alert('x')</script>::|`*_[x](http://evil.example)\\x1b[31m@here"
        "[<img src=x onerror=alert(1)>=|`\\n]"
    )


def test_commits_are_links_where_the_repository_is_known() -> None:
    analysis = examples.analysis()
    link = f"https://github.com/me/kraft/compare/{examples.commit(39)}...{examples.commit(40)}"
    assert link in markdown.comment(analysis, repository_url="git@github.com:me/kraft.git")
    assert "https://" not in markdown.comment(analysis)


def test_a_comment_never_exceeds_the_limit() -> None:
    changed = examples.analysis().series[0]
    many = [
        changed.__class__(
            **{
                **vars(changed),
                "key": changed.key._replace(benchmark=f"{'B[' * 200}{number}"),
            }
        )
        for number in range(1000)
    ]
    text = markdown.comment(Analysis(settings=examples.SETTINGS, series=tuple(many)))
    assert len(text) <= markdown.MOST_CHARACTERS
    assert "and 9" in text, "the comment must say how many are left out"


def test_a_comparison_names_its_threshold_and_notes() -> None:
    text = markdown.comparison(examples.comparisons(), 0.05)
    assert text.startswith("### Benchmarks: 3 regressions\n")
    assert "more than 5 % slower" in text
    assert [html.unescape(cells[1]) for cells in rows(text.partition("<details>")[0])[1:]] == [
        "**+52.6 %**",
        "**+14.0 %**",
        "**+8.1 %**",
    ]
    assert "one run in the baseline: 5 are needed" in text


@pytest.mark.parametrize("text_of", [markdown.comment, lambda given: markdown.comparison([], 0.1)])
def test_an_analysis_without_findings_says_so(text_of) -> None:  # type: ignore[no-untyped-def]
    text = text_of(Analysis(settings=examples.SETTINGS, series=()))
    assert text.startswith("### Benchmarks: no regression\n")
    assert "|" not in text


def test_a_drift_to_slower_is_open_and_a_change_of_variance_folded() -> None:
    opened, _, folded = markdown.comment(examples.analysis()).partition("<details>")
    assert "**Slow drifts to slower**" in opened
    assert "SlowBench::bench_slow" in opened
    assert "1 change of variance" in folded
    assert "WildBench::bench_wild" in folded
