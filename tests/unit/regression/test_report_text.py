"""Texts of values, ratios, times and commits in reports."""

from __future__ import annotations

import math

import pytest

from kraft.errors import InvalidConfigError
from kraft.regression import report_text
from kraft.regression.findings import Analysis, Ratio
from kraft.regression.points import SeriesKey
from tests.unit.regression import examples


@pytest.mark.parametrize(
    ("value", "statistic", "text"),
    [
        (1.234, "median", "1.23 s"),
        (75.2, "median", "75.2 s"),
        (5400.0, "mean", "5,400 s"),
        (0.0123, "min", "12.3 ms"),
        (0.00099996, "min", "1.00 ms"),
        (4.2e-5, "max", "42.0 us"),
        (3.1e-7, "median", "310 ns"),
        (2.5e-11, "median", "0.0250 ns"),
        (0.0, "median", "0.00 ns"),
        (1_234_567, "instructions", "1.23 M"),
        (999.0, "instructions", "999"),
        (3.2e10, "instructions", "32.0 G"),
        (1.314, "exponent", "1.31"),
        (math.nan, "median", "-"),
        (math.inf, "median", "-"),
    ],
)
def test_a_value_has_its_unit(value: float, statistic: str, text: str) -> None:
    assert report_text.value_text(value, statistic) == text


def test_two_values_share_a_unit_and_differ() -> None:
    assert report_text.pair_text(0.0009, 0.0021, "median") == ("0.900 ms", "2.10 ms")
    assert report_text.pair_text(0.0123, 0.01231, "median") == ("12.30 ms", "12.31 ms")
    assert report_text.pair_text(0.0, 0.5, "median") == ("0.00 ms", "500 ms")
    assert report_text.pair_text(math.nan, 0.5, "median") == ("-", "500 ms")


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Ratio(1.123, 1.101, 1.142), "+12.3 % [10.1, 14.2]"),
        (Ratio(0.55, 0.54, 0.56), "-45.0 % [-46.0, -44.0]"),
        (Ratio(1.01, 0.99, 1.03), "+1.0 % [-1.0, 3.0]"),
        (Ratio(12.34, 11.9, 12.7), "x12.3 [11.9, 12.7]"),
        (Ratio(1.5, math.nan, math.nan), "+50.0 %"),
    ],
)
def test_a_ratio_has_its_interval(ratio: Ratio, text: str) -> None:
    assert report_text.ratio_text(ratio) == text


@pytest.mark.parametrize(
    ("p_value", "text"),
    [(0.5, "0.5"), (0.0123, "0.012"), (3.4e-7, "3e-07"), (0.0, "<1e-99"), (None, "-")],
)
def test_a_p_value_is_short(p_value: float | None, text: str) -> None:
    assert report_text.p_text(p_value) == text


def test_times_are_utc_to_the_microsecond() -> None:
    assert report_text.iso_time(1_772_000_000_000_001) == "2026-02-25T06:13:20.000001Z"
    assert report_text.time_text(1_772_000_000_000_001) == "2026-02-25 06:13"
    assert report_text.iso_time(-1) == "1969-12-31T23:59:59.999999Z"


def test_control_characters_are_escaped() -> None:
    assert report_text.printable("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    assert report_text.printable("Größe 大 \\") == "Größe 大 \\"


def test_a_name_has_its_suite_only_where_two_suites_share_it() -> None:
    alone = SeriesKey("a.py", "Bench::one", '{"n": 1}', "m")
    twice = [SeriesKey(suite, "Bench::two", "{}", "m") for suite in ("a.py", "b.py")]
    names = report_text.Names([alone, *twice])
    assert names(alone) == "Bench::one[n=1]"
    assert [names(key) for key in twice] == ["a.py::Bench::two", "b.py::Bench::two"]


def test_a_machine_is_described_by_names_and_values() -> None:
    given = '{"cpu": {"brand_raw": "EPYC", "count": 8, "flags": []}, "node": null, "x": [1, 2]}'
    assert report_text.machine_fields(given) == [
        ("cpu.brand_raw", "EPYC"),
        ("cpu.count", "8"),
        ("x", "[1, 2]"),
    ]
    assert report_text.machine_fields("no {json") == [("description", "no {json")]
    assert report_text.machine_fields(None) == []


def test_a_long_name_of_a_machine_keeps_its_distinguishing_end() -> None:
    assert report_text.machine_text("laptop-1f2e3d4c") == "laptop-1f2e3d4c"
    name = report_text.machine_text("ci-runner-17-amd-epyc-7763-64-core-processor-1f2e3d4c")
    assert name == "ci-runner-17-amd-epy...-1f2e3d4c"


def test_a_steeper_scaling_law_is_part_of_the_verdict() -> None:
    assert report_text.verdict(examples.analysis()) == (
        "3 regressions, 1 drift to slower, 1 scaling law steeper"
    )
    flat = Analysis(settings=examples.SETTINGS, series=(), scaling=(examples.law("a", 1.0),))
    assert report_text.verdict(flat) == "no regression"


BEFORE, AFTER = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://github.com/me/kraft", "https://github.com/me/kraft/compare/"),
        ("https://github.com/me/kraft.git/", "https://github.com/me/kraft.git/compare/"),
        ("git@github.com:me/kraft.git", "https://github.com/me/kraft/compare/"),
        ("ssh://git@host.example/me/kraft", "https://host.example/me/kraft/compare/"),
        ("https://gitlab.com/me/kraft.git", "https://gitlab.com/me/kraft/-/compare/"),
    ],
)
def test_a_repository_links_two_commits(url: str, page: str) -> None:
    link = report_text.Repository(url).comparison(BEFORE, AFTER)
    assert link == page.replace("kraft.git/", "kraft/") + f"{BEFORE}...{AFTER}"


def test_text_that_is_not_a_commit_has_no_link() -> None:
    repository = report_text.Repository("https://github.com/me/kraft")
    assert repository.comparison(None, AFTER) is None
    assert repository.comparison('"><script>', AFTER) is None
    assert repository.comparison(AFTER, AFTER) is None
    assert repository.commit("main") is None
    assert repository.commit(AFTER) == f"https://github.com/me/kraft/commit/{AFTER}"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)//x/y", "github.com/me/x", "https://h", "", '"']
)
def test_an_invalid_repository_url_is_rejected(url: str) -> None:
    with pytest.raises(InvalidConfigError, match="not a repository URL"):
        report_text.Repository(url)
