"""What a dashboard says about projects, and its page."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from kraft.regression import dashboard, html, project_summary
from kraft.regression.commit_order import RunInfo, Scope, runs_in_scope
from kraft.regression.findings import Analysis
from kraft.regression.page_parts import PageSite
from kraft.regression.project_summary import (
    OpenRegression,
    ProjectSummary,
    page_name,
    summary_of,
    waiting_for,
)
from tests.harness.html_pages import Page
from tests.unit.regression import examples

HOSTILE = "<script>alert('x')</script>/../\x1b[31m"


def run(number: int, project: str | None, branch: str = "main") -> RunInfo:
    return RunInfo(
        run_id=f"{number:032x}",
        machine="m",
        project=project,
        branch=branch,
        commit=examples.commit(number),
        commit_time_us=None,
        time_us=number * 3_600_000_000,
        dirty=False,
    )


def waiting(project: str = "orders") -> ProjectSummary:
    return waiting_for(project, [run(2, project), run(7, project), run(5, project)])


def shown(projects: list[ProjectSummary], **given: str) -> Page:
    site = PageSite(has_plotly_file=True, name="index", generation="3")
    page = dashboard.page(projects, title="Benchmarks", facts="Version 3", site=site, **given)
    return Page(page)


def test_a_project_before_its_analysis_has_its_last_run() -> None:
    found = waiting()
    assert (found.runs, found.first_run_us, found.last_run_us) == (3, 7_200_000_000, 25_200_000_000)
    assert found.last_commit == examples.commit(7)
    (row,) = [each for each in shown([found]).all("tr") if each.attributes.get("data-name")]
    assert "the analysis runs" in row.text
    assert "1970-01-01 07:00" in row.text


def test_the_summary_counts_what_is_new_and_what_verdicts_cover() -> None:
    analysis = examples.analysis()
    found = summary_of(waiting(), analysis)
    assert found.new == len(analysis.alarms) == len(found.alarms)
    assert (found.watched, found.accepted, found.expected, found.missed) == (0, 0, 0, 0)
    assert found.machines == 2
    worst = found.alarms[0]
    assert worst.benchmark == "CrcBench::bench_crc"
    assert worst.commits == "same code on both sides"
    # Its section is that of the page.
    section = Page(html.page(analysis)).all("section", id=str(worst.section))
    assert section[0].attributes["data-name"] == worst.benchmark
    exponents = [each for each in found.alarms if "exponent of partitions" in each.benchmark]
    assert [each.section for each in exponents] == ["law-0"]

    judged = summary_of(waiting(), examples.with_verdicts(analysis))
    assert (judged.new, judged.accepted, judged.missed) == (found.new - 1, 1, 1)
    assert judged.alarms == found.alarms[1:]


def test_the_level_is_the_geometric_mean_of_all_series() -> None:
    slower = examples.series("A::a", [(40, 1.0), (40, 1.2)])
    faster = examples.series("A::b", [(20, 1.0), (60, 0.5)], seed=2)
    stable = examples.series("A::c", [(80, 1.0)], seed=3)
    series = tuple(examples.finding(each) for each in (slower, faster, stable))
    found = summary_of(waiting(), Analysis(settings=examples.SETTINGS, series=series))
    times = [int(slower.time_us[at]) for at in (0, 20, 40, 79)]
    assert [each.time_us for each in found.steps] == times
    expected = [1.0, 0.5 ** (1 / 3), (0.5 * 1.2) ** (1 / 3), (0.5 * 1.2) ** (1 / 3)]
    assert [each.level for each in found.steps] == pytest.approx(expected, rel=0.01)
    assert found.level == found.steps[-1].level
    nothing = summary_of(waiting(), Analysis(settings=examples.SETTINGS, series=()))
    assert (nothing.steps, nothing.level) == ((), 1.0)


def test_the_page_has_each_project_and_the_new_regressions_worst_first() -> None:
    orders = summary_of(waiting("orders"), examples.analysis())
    search = summary_of(waiting("search"), examples.with_verdicts(examples.analysis()))
    quiet = replace(waiting("quiet"), is_analysed=True)
    failed = replace(waiting("failed"), error="the store has no runs")
    page = shown([quiet, failed, search, orders], message="The analysis runs: 1 of 4 projects done")
    rows = [each for each in page.all("tr") if each.attributes.get("data-name")]
    names = [each.attributes["data-name"] for each in rows]
    assert names[:4] == ["orders", "search", "failed", "quiet"]
    assert "the store has no runs" in rows[2].text
    alarms = rows[4:]
    assert len(alarms) == orders.new + search.new
    assert alarms[0].attributes["data-name"] == "orders CrcBench::bench_crc"
    links = [each.attributes["href"] for each in page.all("a")]
    assert f"{page_name('orders')}.html#series-0" in links
    assert page.all("span", id="live")[0].text == "The analysis runs: 1 of 4 projects done"
    # A plot only where there is an analysis.
    assert [each.attributes["aria-label"].split(" since")[0] for each in page.all("svg")] == [
        "Level of orders",
        "Level of search",
    ]
    for each in page.all("path"):
        assert "nan" not in each.attributes["d"]


def test_an_empty_store_says_what_to_do() -> None:
    (body,) = shown([]).all("body")
    assert "kraft bench ingest" in body.text


def test_the_page_asks_only_its_own_server() -> None:
    page = shown([summary_of(waiting(HOSTILE), examples.analysis(hostile=True))])
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = dict(rule.split(" ", 1) for rule in policy.attributes["content"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert "http" not in policy.attributes["content"]
    for each in page.elements:
        assert not any(name.startswith("on") for name in each.attributes)
        assert each.tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        if "href" in each.attributes:
            assert "//" not in each.attributes["href"]
            assert "<" not in each.attributes["href"]
    scripts = page.all("script")
    assert not any("alert(" in each.text for each in scripts)
    assert scripts[-1].attributes == {"data-page": "index", "data-generation": "3"}


def test_names_of_pages_are_safe_and_unique() -> None:
    projects = ["", "a/b", "a-b", "A-B", "..", HOSTILE, "x" * 300, "größe", "\udcff"]
    names = [page_name(each) for each in projects]
    assert len(set(names)) == len(projects)
    for name in names:
        assert name.replace("-", "").isalnum()
        assert name.isascii()
        assert len(name) < 60
    assert page_name("orders").startswith("orders-")


def test_a_project_as_json_has_no_number_that_json_lacks() -> None:
    endless = OpenRegression("b", "-", math.inf, 0, "", None, "")
    found = replace(summary_of(waiting(""), examples.analysis()), alarms=(endless,))
    document = project_summary.as_json(found)
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["project"] is None
    assert document["regressions"]["new"] == found.new
    assert document["alarms"][0]["worsening"] is None


def test_only_one_project_is_read_by_its_name_and_not_as_a_glob() -> None:
    runs = [run(1, "a*"), run(2, "ab"), run(3, None), run(4, "a*", "feature")]
    assert [each.run_id for each in runs_in_scope(runs, Scope(only="a*"))[0]] == [runs[0].run_id]
    assert [each.run_id for each in runs_in_scope(runs, Scope(only=""))[0]] == [runs[2].run_id]
