"""Findings in a terminal and in a pipe: worst first, complete, without control characters."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from kraft.regression import terminal
from kraft.regression.findings import Analysis
from tests.unit.regression import examples


def shown(analysis: Analysis, *, width: int | None = None) -> str:
    """Return the output without colours; without a width, as it is written to a pipe."""
    file = io.StringIO()
    console = Console(file=file, width=width or 80, force_terminal=width is not None)
    terminal.show(analysis, console)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


def test_the_summary_comes_first_and_problems_last() -> None:
    lines = shown(examples.analysis()).splitlines()
    assert lines[0] == (
        "9 series, 6 changed (3 regressions, 2 improvements), 1 slow drift, "
        "1 change of variance, 1 scaling law changed, 1 with too little data, 2 machines, 1 problem"
    )
    headings = [line for line in lines[1:] if line and not line.startswith(" ")]
    assert headings == [
        "Regressions, worst first",
        "Improvements, largest first",
        "Slow drifts, worst first",
        "Changes of variance, noisier ones first",
        "Scaling laws: time ~ size ^ exponent",
        "Too little data, fewer than 8 runs: 1 series",
        "1 problem:",
    ]
    assert lines[-1] == "  old/run-17.json: truncated at byte 4,096; skipped"


def test_a_pipe_gets_a_line_a_change_worst_first_and_aligned() -> None:
    text = shown(examples.analysis())
    table = text.split("Regressions, worst first\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table] == [
        "benchmark",
        "CrcBench::bench_crc",
        "LoadBench::bench_load[partitions=1000000]",
        "ElectBench::bench_elect[partitions=1000000]",
    ]
    assert len({line.index("2026-") for line in table[1:]}) == 1
    crc, _, elect = table[1:]
    assert "same code on both sides" in crc
    assert f"{examples.commit(39)[:10]}..{examples.commit(40)[:10]}" in elect
    assert re.search(r"12\.\d ms  14\.\d ms +\+14\.\d %  +\[1\d\.\d, 1\d\.\d\]", elect)


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_a_terminal_of_any_width_shows_all_of_it(width: int) -> None:
    text = shown(examples.analysis(), width=width)
    assert max(map(len, text.splitlines())) <= width
    words = re.sub(r"\s+", "", text)
    for said in ("bench_elect[partitions=1000000]", "samecodeonbothsides", "1.31", "AMDEPYC"):
        assert said in words


def test_the_machine_is_named_only_where_there_are_several() -> None:
    one = examples.analysis()
    alone = Analysis(settings=one.settings, series=one.series[:2])
    assert "machine  " in shown(one)
    assert "machine  " not in shown(alone)


def test_a_hostile_name_cannot_control_the_terminal() -> None:
    assert "\x1b" not in shown(examples.analysis(hostile=True), width=200)
    assert "\\x1b[31m@here" in shown(examples.analysis(hostile=True), width=200)


def test_no_findings_are_one_line() -> None:
    stable = examples.finding(examples.series("Bench::stable", [(30, 0.1)]))
    said = shown(Analysis(settings=examples.SETTINGS, series=(stable,)))
    assert said == (
        "1 series, 0 changed (0 regressions, 0 improvements), 0 with too little data, 1 machine\n"
    )


def test_a_comparison_shows_what_got_worse_then_better_then_the_rest() -> None:
    file = io.StringIO()
    terminal.show_comparison(examples.comparisons(), Console(file=file))
    text = file.getvalue()
    assert text.startswith(
        "6 benchmarks compared, 3 regressions, 1 improvement, 1 undecided, 1 machine"
    )
    order = re.findall(r"^  (\w+Bench)", text, re.MULTILINE)
    assert order == ["LoadBench", "ElectBench", "CodecBench", "CodecBench", "NewBench", "ScanBench"]
    assert "one run in the baseline: 5 are needed" in text
    assert "1.23 M     1.33 M" in text


def test_a_slow_drift_and_a_change_of_variance_have_tables_of_their_own() -> None:
    text = shown(examples.analysis())
    drift = text.partition("Slow drifts")[2].splitlines()[2]
    assert "SlowBench::bench_slow" in drift
    assert "ongoing" in drift
    variance = text.partition("Changes of variance")[2].splitlines()[2]
    assert "WildBench::bench_wild" in variance
