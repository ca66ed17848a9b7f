"""Many tests at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import histories
from kraft.regression import history, multiplicity, scaling
from kraft.regression.findings import Outcome, SeriesFinding
from kraft.regression.settings import Settings

SETTINGS = Settings(bootstrap_samples=100)


def finding(seed: int, step: float, runs: int = 60, name: str = "bench") -> SeriesFinding:
    random = np.random.default_rng(seed)
    values = histories.stepped(random, runs, histories.normal, 0.02, runs // 2, step)
    return history.analyse(histories.series(values, name), SETTINGS)


def test_q_values_are_those_of_the_procedure_by_hand() -> None:
    # 10 tests, of which four p values are known: 0.001 * 10 / 1, 0.004 * 10 / 2, and 0.03 * 10 / 3
    # is more than 0.032 * 10 / 4, which takes its place.
    found = multiplicity.q_values(np.array([0.03, 0.001, 0.032, 0.004]), 10)
    assert found == pytest.approx([0.08, 0.01, 0.08, 0.02])
    assert multiplicity.q_values(np.array([0.5]), 10) == [1.0]
    assert len(multiplicity.q_values(np.array([]), 0)) == 0


def test_a_history_is_as_many_tests_as_it_has_splits() -> None:
    (corrected,) = multiplicity.correct([finding(1, 0.2)], SETTINGS)
    (point,) = corrected.change_points
    assert point.q_value == pytest.approx(point.p_value * 59)


def test_what_stands_alone_falls_among_thousands() -> None:
    weak = finding(4, 0.026)
    (point,) = weak.change_points
    assert 1e-7 < point.p_value < 1e-5
    assert multiplicity.correct([weak], SETTINGS)[0].outcome is Outcome.CHANGED
    stable = replace(finding(5, 0.0), run_count=1001)
    first, *others = multiplicity.correct([weak, *[stable] * 500], SETTINGS)
    assert (first.outcome, first.change_points) == (Outcome.STABLE, ())
    assert {each.outcome for each in others} == {Outcome.STABLE}


def test_company_of_true_changes_lets_a_weak_one_stay() -> None:
    weak, strong = finding(4, 0.026), finding(6, 0.5)
    stable = replace(finding(5, 0.0), run_count=1001)
    kept, *_ = multiplicity.correct([weak, *[strong] * 400, *[stable] * 500], SETTINGS)
    assert kept.outcome is Outcome.CHANGED


def test_series_with_too_little_data_are_no_tests() -> None:
    short = finding(1, 0.0, runs=5)
    assert short.outcome is Outcome.TOO_LITTLE_DATA
    alone, again = (
        multiplicity.correct(findings, SETTINGS)
        for findings in ([finding(1, 0.2)], [finding(1, 0.2), *[short] * 100])
    )
    assert again[0] == alone[0]
    assert {each.outcome for each in again[1:]} == {Outcome.TOO_LITTLE_DATA}


def test_correcting_twice_corrects_once() -> None:
    once = multiplicity.correct([finding(at, 0.03 * (at % 3)) for at in range(12)], SETTINGS)
    assert multiplicity.correct(once, SETTINGS) == once


def test_nothing_is_corrected_where_nothing_is() -> None:
    assert multiplicity.correct([], SETTINGS) == ()
    assert multiplicity.correct_laws([], SETTINGS) == []


def test_exponents_are_a_family_of_their_own() -> None:
    random = np.random.default_rng(2)
    measured = [
        histories.series(
            histories.stepped(random, 40, histories.normal, 0.01, 20, step) * size,
            params=f'{{"size": {size}}}',
        )
        for size, step in ((10, 0.0), (100, 0.1), (1000, 0.2))
    ]
    (law,) = multiplicity.correct_laws(scaling.laws(measured, SETTINGS), SETTINGS)
    (point,) = law.change_points
    assert point.q_value == pytest.approx(point.p_value * 39)
