"""A candidate compared with its baseline."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from kraft.errors import InvalidRequestError
from kraft.regression import comparison
from kraft.regression.comparison import compare
from kraft.regression.findings import Comparison
from kraft.regression.points import POINTS
from kraft.regression.settings import AnalysisSettings

SETTINGS = AnalysisSettings()
COUNTS = AnalysisSettings(statistic="instructions")


def row(
    rounds: Sequence[float] | NDArray[np.float64],
    run: str = "run",
    *,
    benchmark: str = "bench",
    machine: str = "here",
    **others: Any,
) -> dict[str, Any]:
    """Return a point of one benchmark's rounds, as `results` makes it."""
    drawn = np.asarray(rounds, dtype=np.float64)
    found = {
        "run_id": run,
        "machine": machine,
        "suite": "bench_x.py",
        "benchmark": benchmark,
        "params": "{}",
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "rounds": len(drawn),
        "min": float(drawn.min()),
        "max": float(drawn.max()),
        "mean": float(drawn.mean()),
        "stddev": float(drawn.std(ddof=1)) if len(drawn) > 1 else 0.0,
        "median": float(np.median(drawn)),
        "values": drawn.tolist(),
        "extra_info": "{}",
        "machine_info": "{}",
        "source": "run.json",
    }
    return {**found, **others}


def points(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=POINTS)


def runs(seed: int, count: int, level: float = 1.0, **others: Any) -> list[dict[str, Any]]:
    """Return runs of ten rounds; the noise is 2 % between runs and 1 % within a run."""
    random = np.random.default_rng(seed)
    levels = level * (1 + 0.02 * random.standard_normal(count))
    return [
        row(each * (1 + 0.01 * random.standard_normal(10)), f"{seed}-{at}", **others)
        for at, each in enumerate(levels)
    ]


def one(
    base: pa.Table, candidate: pa.Table, threshold: float = 0.0, asked: AnalysisSettings = SETTINGS
) -> Comparison:
    (found,) = compare(base, candidate, asked, threshold)
    return found


def test_a_slowdown_over_several_runs_is_a_regression_beyond_the_threshold() -> None:
    base, candidate = points(*runs(1, 8)), points(*runs(2, 8, 1.1))
    found = one(base, candidate, 0.05)
    assert (found.runs_base, found.runs_candidate, found.note) == (8, 8, "")
    assert found.ratio is not None
    assert found.ratio.low < 1.1 < found.ratio.high
    assert found.ratio.value == pytest.approx(found.candidate / found.base)
    assert found.p_value is not None
    assert found.p_value == found.q_value < 1e-4
    assert (found.is_significant, found.is_regression, found.is_improvement) == (True, True, False)
    allowed = one(base, candidate, 0.2)
    assert (allowed.is_significant, allowed.is_regression) == (True, False)


def test_a_speed_up_is_an_improvement() -> None:
    found = one(points(*runs(1, 8)), points(*runs(2, 8, 0.9)), 0.05)
    assert (found.is_significant, found.is_regression, found.is_improvement) == (True, False, True)


def test_noise_is_no_regression() -> None:
    found = one(points(*runs(1, 8)), points(*runs(2, 8)))
    assert not found.is_significant
    assert found.ratio is not None
    assert found.ratio.low < 1 < found.ratio.high


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_exchanged_sides_give_the_opposite_verdict(seed: int, few: int, many: int) -> None:
    base, candidate = points(*runs(seed, few)), points(*runs(seed + 1, many, 1.07))
    there, back = one(base, candidate), one(candidate, base)
    assert back.p_value == pytest.approx(there.p_value)
    assert back.is_significant == there.is_significant
    assert there.ratio is not None
    assert back.ratio is not None
    assert back.ratio.value == pytest.approx(1 / there.ratio.value)
    assert (back.is_regression, back.is_improvement) == (there.is_improvement, there.is_regression)


def test_machines_never_mix() -> None:
    base = points(*runs(1, 5, machine="a"), *runs(2, 5, 2.0, machine="b"))
    candidate = points(*runs(3, 5, 2.0, machine="b"), *runs(4, 5, 1.0, machine="a"))
    found = compare(base, candidate, SETTINGS, 0.05)
    assert [each.key.machine for each in found] == ["a", "b"]
    assert not any(each.is_regression or each.is_improvement for each in found)


def test_a_benchmark_measured_only_on_another_machine_is_noted() -> None:
    found = compare(
        points(*runs(1, 5, machine="a")), points(*runs(2, 5, 2.0, machine="b")), SETTINGS, 0.0
    )
    assert [each.note for each in found] == [
        "not in the candidate; the candidate was measured on another machine (b)",
        "not in the baseline; the baseline was measured on another machine (a)",
    ]
    assert [(each.ratio, each.is_significant) for each in found] == [(None, False)] * 2
    assert np.isnan([found[0].candidate, found[1].base]).all()


def test_a_new_or_missing_benchmark_is_noted() -> None:
    base = points(*runs(1, 3), *runs(2, 3, benchmark="gone"))
    candidate = points(*runs(3, 3), *runs(4, 3, benchmark="new"))
    notes = {each.key.benchmark: each.note for each in compare(base, candidate, SETTINGS, 0.0)}
    assert notes == {"bench": "", "gone": "not in the candidate", "new": "not in the baseline"}


def test_one_run_is_compared_with_the_runs_of_its_baseline() -> None:
    base = points(*runs(1, 20))
    assert not one(base, points(*runs(2, 1, 1.02))).is_significant
    slower = one(base, points(*runs(2, 1, 1.15)), 0.05)
    assert slower.is_regression
    assert slower.note == ""
    assert slower.ratio is not None
    assert slower.ratio.high - slower.ratio.low > 0.05, "the noise between runs is included"


def test_one_run_per_side_is_compared_by_rounds_with_a_note() -> None:
    found = one(points(*runs(1, 1)), points(*runs(2, 1, 1.3)), 0.05)
    assert found.is_regression
    assert found.note == comparison.ROUNDS_ONLY


def test_few_rounds_are_compared_by_their_means() -> None:
    base, candidate = points(row([1.0, 1.01, 0.99])), points(row([1.5, 1.52, 1.48]))
    found = one(base, candidate)
    expected = stats.ttest_ind([1.0, 1.01, 0.99], [1.5, 1.52, 1.48], equal_var=False).pvalue
    assert found.p_value == pytest.approx(expected)
    assert found.is_regression


def test_without_saved_rounds_mean_and_deviation_are_compared() -> None:
    slow = row([1.5, 1.52, 1.48, 1.5], values=None)
    found = one(points(row([1.0, 1.01, 0.99, 1.0], values=None)), points(slow))
    assert found.is_regression
    assert "rounds were not saved" in found.note


def test_one_round_per_side_has_no_result() -> None:
    found = one(points(row([1.0])), points(row([9.0])))
    assert (found.ratio, found.p_value, found.is_significant) == (None, None, False)
    assert (found.base, found.candidate, found.note) == (1.0, 9.0, comparison.TOO_LITTLE)


def test_constant_counts_are_compared_without_a_test() -> None:
    base = points(row([1e-3, 2e-3], instructions=1000.0))
    slightly, more = (
        one(base, points(row([1e-3, 2e-3], instructions=count)), 0.01, COUNTS)
        for count in (1005.0, 1020.0)
    )
    assert (slightly.p_value, slightly.is_significant, slightly.is_regression) == (
        None,
        False,
        False,
    )
    assert (more.p_value, more.is_significant, more.is_regression) == (None, True, True)
    assert more.note == comparison.NOT_VARYING
    assert more.ratio is not None
    assert more.ratio.low == more.ratio.value == more.ratio.high == 1.02


def test_counts_that_vary_are_tested() -> None:
    random = np.random.default_rng(1)
    base, candidate = (
        points(
            *(
                row([1.0], f"{level}-{at}", instructions=level + random.normal(0, 5))
                for at in range(6)
            )
        )
        for level in (1000.0, 1002.0)
    )
    found = one(base, candidate, 0.0, COUNTS)
    assert found.p_value is not None
    assert not found.is_significant


def test_a_count_of_nothing_that_becomes_something_is_a_regression() -> None:
    found = one(
        points(row([1.0], instructions=0.0)), points(row([1.0], instructions=7.0)), 0.5, COUNTS
    )
    assert found.is_regression
    assert found.ratio is not None
    assert found.ratio.value == np.inf


@pytest.mark.parametrize("broken", [None, float("nan"), float("inf"), 0.0])
def test_an_invalid_time_is_omitted_and_noted(broken: float | None) -> None:
    base = runs(1, 4)
    base[2]["median"] = broken
    found = one(points(*base), points(*runs(2, 4, 1.2)))
    assert (found.runs_base, found.runs_candidate) == (3, 4)
    assert found.note == "1 run of the baseline without a usable median"
    assert found.is_regression


def test_invalid_rounds_are_omitted() -> None:
    rounds = np.full(30, 1.0) + np.arange(30) * 1e-3
    broken = [*rounds, float("nan"), 0.0, float("inf")]
    slow = points(row(rounds * 1.2))
    clean = one(points(row(rounds)), slow)
    found = one(points(row(rounds, values=broken)), slow)
    assert found.p_value == clean.p_value
    assert found.ratio == clean.ratio


def test_a_duplicate_run_counts_once() -> None:
    base = runs(1, 4)
    found = one(points(*base, *base), points(*runs(2, 4)))
    assert found.runs_base == 4


def test_many_benchmarks_are_corrected_together() -> None:
    base = points(*(each for at in range(40) for each in runs(at, 4, benchmark=f"b{at:02}")))
    candidate = points(
        *(
            each
            for at in range(40)
            for each in runs(100 + at, 4, 1.3 if at == 7 else 1.0, benchmark=f"b{at:02}")
        )
    )
    found = compare(base, candidate, SETTINGS, 0.05)
    assert [each.key.benchmark for each in found if each.is_regression] == ["b07"]
    p_values = sorted(each.p_value for each in found if each.p_value is not None)
    assert sum(p <= 0.05 for p in p_values) >= 2, "chance alone makes small p values"
    assert all(
        each.q_value >= each.p_value
        for each in found
        if each.q_value is not None and each.p_value is not None
    )


def test_p_values_equal_scipys() -> None:
    random = np.random.default_rng(3)
    for old, new in ((30, 12), (10, 10), (200, 50)):
        before = random.exponential(1, old).round(1) + 0.1
        after = random.exponential(1.3, new).round(1) + 0.1
        assert comparison.mann_whitney(before, after) == pytest.approx(
            stats.mannwhitneyu(before, after, method="asymptotic").pvalue
        )
        assert comparison.welch(
            before.mean(), before.var(ddof=1), old, after.mean(), after.var(ddof=1), new
        ) == pytest.approx(stats.ttest_ind(before, after, equal_var=False).pvalue)
        assert comparison.single_run_test(before, after[:1]) == pytest.approx(
            stats.ttest_ind(before, after[:1]).pvalue
        )
    assert comparison.mann_whitney(np.ones(10), np.ones(12)) == 1
    assert comparison.welch(1.0, 0.0, 5, 2.0, 0.0, 5) == 0
    assert comparison.welch(1.0, 0.0, 5, 1.0, 0.0, 5) == 1


def test_a_hundred_thousand_rounds_are_thinned_evenly() -> None:
    rounds = np.linspace(1, 2, 100_000)
    found = one(points(row(rounds)), points(row(rounds * 1.5)), 0.2)
    assert found.is_regression
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1.5)


def test_chunked_tables_give_the_same_result() -> None:
    base, candidate = points(*runs(1, 6)), points(*runs(2, 6, 1.1))
    pieces = pa.concat_tables([base.slice(0, 1), base.slice(1, 3), base.slice(4)])
    assert one(pieces, candidate) == one(base, candidate)
    assert compare(points(), points(), SETTINGS, 0.0) == []


def test_a_table_without_the_columns_of_points_is_rejected() -> None:
    good = points(*runs(1, 2))
    with pytest.raises(InvalidRequestError, match="missing columns: values"):
        compare(good, good.drop_columns(["values"]), SETTINGS, 0.0)
    for threshold in (-0.1, float("nan")):
        with pytest.raises(InvalidRequestError, match="threshold"):
            compare(good, good, SETTINGS, threshold)


def test_comparing_needs_neither_otava_nor_spark() -> None:
    program = (
        "import sys; import kraft.regression.comparison as c; c.welch(1, 1, 5, 2, 1, 5);"
        "print([name for name in ('otava', 'pyspark', 'pandas', 'scipy.stats')"
        " if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert found.stdout.strip() == "[]"
