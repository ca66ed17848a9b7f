"""``kraft-regress.toml``: what it may hold, and what it means for a benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.errors import InvalidConfigError
from kraft.regression import comparison
from kraft.regression.findings import Comparison, Ratio
from kraft.regression.points import SECONDS, BenchmarkMetric, SeriesKey
from kraft.regression.project_rules import FILE_NAME, ProjectRules, find, load
from kraft.regression.settings import AnalysisSettings

LOOKUP = SeriesKey("bench_table.py", "Table::lookup", '{"size":10}', "m")
SERVE = SeriesKey("bench_load.py", "serve", "{}", "m")

FILE = """
threshold = "2%"

[[benchmarks]]
match = "bench_load.py::*"
threshold = 0.1
unit = "ops/s"

[[benchmarks]]
match = "*::Table::lookup[size=10]"
threshold = "7.5%"
unit = "score"
bigger_is_better = true

[[benchmarks]]
match = "serve"
threshold = "20%"

[rename]
"bench_old.py" = "bench_mid.py"
"bench_mid.py::lookup" = "bench_table.py::Table::lookup"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / FILE_NAME
    path.write_text(text, encoding="utf-8")
    return path


def test_the_last_rule_that_matches_decides_each_value(tmp_path: Path) -> None:
    rules = load(written(tmp_path, FILE))
    assert rules.threshold == 0.02
    assert rules.threshold_of(SERVE, 0.02) == 0.2
    assert rules.threshold_of(LOOKUP, 0.02) == 0.075
    assert rules.threshold_of(LOOKUP._replace(params="{}"), 0.02) == 0.02
    assert rules.metric_of(SERVE, SECONDS) == BenchmarkMetric("ops/s", bigger_is_better=True)
    assert rules.metric_of(LOOKUP, SECONDS) == BenchmarkMetric("score", bigger_is_better=True)
    assert rules.metric_of(SERVE._replace(suite="x", benchmark="y"), SECONDS) == SECONDS


def test_names_are_followed_through_suites_and_benchmarks(tmp_path: Path) -> None:
    rules = load(written(tmp_path, FILE))
    assert rules.renamed("bench_old.py", "lookup") == ("bench_table.py", "Table::lookup")
    assert rules.renamed("bench_old.py", "other") == ("bench_mid.py", "other")
    assert rules.now(LOOKUP._replace(suite="bench_old.py", benchmark="lookup")) == LOOKUP
    assert rules.unused_renames([LOOKUP._replace(suite="bench_old.py", benchmark="lookup")]) == []
    assert rules.unused_renames([SERVE]) == ["bench_old.py", "bench_mid.py::lookup"]


def test_a_directory_without_the_file_has_no_rules(tmp_path: Path) -> None:
    assert find(tmp_path) == ProjectRules()
    assert not find(tmp_path)
    written(tmp_path, FILE)
    assert find(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("treshold = 1", r"treshold: unknown key; did you mean threshold\?"),
        (
            "[[benchmarks]]\nmatch='a'\nbigger_better=true",
            r"benchmarks\[0\]\.bigger_better: "
            r"unknown key; did you mean bigger_is_better\?",
        ),
        ("[zz]\n", "zz: unknown key; known keys are threshold, benchmarks, rename"),
        ("threshold = 'much'", "threshold: expected \"5%\" or 0.05, found 'much'"),
        ("threshold = -1", "threshold: expected"),
        ("threshold = true", "threshold: expected"),
        ("threshold = 5", 'threshold: expected "5%" or 0.05, found 5'),
        ("threshold = '5'", "threshold: expected \"5%\" or 0.05, found '5'"),
        (
            "[[benchmarks]]\nmatch = 'a'\nunit = '<b>'",
            r"benchmarks\[0\]\.unit: expected at most 24 letters.*, found '<b>'",
        ),
        ("[[benchmarks]]\nthreshold = 1", r"benchmarks\[0\]: the key match is missing"),
        ("[[benchmarks]]\nmatch = 'a'", r"benchmarks\[0\]: expected threshold, unit or"),
        ("[[benchmarks]]\nmatch = 'a'\nunit = 3", r"benchmarks\[0\]\.unit: expected a text"),
        ("benchmarks = 3", r"benchmarks: expected \[\[benchmarks\]\] tables"),
        ("[rename]\na = 3", 'rename: expected "old" = "new" texts'),
        ("[rename]\n'a::b' = 'c'", "rename 'a::b' to 'c': both are suites, or both"),
        ("[rename]\n'a' = 'b'\n'b' = 'a'", "rename 'a': it is renamed in a circle"),
        ("[rename]\n'a::b' = 'a::b'", "rename 'a::b': it is renamed in a circle"),
        ("threshold = ", "not TOML: Invalid value"),
    ],
)
def test_an_error_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=rf"{FILE_NAME}: {message}"):
        load(written(tmp_path, text))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"no\.toml: cannot be read: No such file"):
        load(tmp_path / "no.toml")


def compared(key: SeriesKey, ratio: float, q_value: float | None) -> Comparison:
    return Comparison(
        key=key,
        statistic="median",
        runs_base=5,
        runs_candidate=5,
        base=1.0,
        candidate=ratio,
        ratio=Ratio(ratio, ratio, ratio),
        p_value=q_value,
        q_value=q_value,
        is_significant=True,
        is_regression=True,
        is_improvement=False,
    )


def test_a_comparison_is_judged_by_the_rules_of_its_benchmark(tmp_path: Path) -> None:
    rules = load(written(tmp_path, FILE))
    given = [
        compared(LOOKUP, 1.07, 0.001),  # bigger is better, within 7.5 %
        compared(LOOKUP, 0.9, 0.001),
        compared(SERVE, 0.85, 0.001),  # 18 % fewer ops/s, within 20 %
        compared(SERVE, 0.7, None),  # constant
        compared(SERVE._replace(benchmark="b", suite="c"), 1.04, 0.001),
        compared(SERVE._replace(benchmark="b", suite="c"), 1.04, 0.2),
    ]
    judged = comparison.with_rules(given, rules, AnalysisSettings(), 0.02)
    assert [each.is_regression for each in judged] == [False, True, False, True, True, False]
    assert not any(each.is_improvement for each in judged)
