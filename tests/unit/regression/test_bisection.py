"""The posterior of a change's place, and what it asks to measure next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.bisection_sensitivity import bisected, fewest_plain
from kraft.errors import InvalidRequestError
from kraft.regression import bisect_question, series_analysis
from kraft.regression.bisection import ChangePosterior
from kraft.regression.findings import Analysis
from tests.unit.regression import examples


def around(commits: int, step: float = 1.1, noise: float = 0.01) -> ChangePosterior:
    """Return a posterior with a history of 40 and 20 runs around the commits."""
    random = np.random.default_rng(5)
    posterior = ChangePosterior(commits)
    for value in 1 + noise * random.standard_normal(40):
        posterior.add_history(0, float(value))
    for value in step * (1 + noise * random.standard_normal(20)):
        posterior.add_history(commits - 1, float(value))
    return posterior


def likelihood(
    groups: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]], scale: float
) -> float:
    """Return the logarithm of the marginal likelihood by plain linear algebra, up to a constant.

    Each group is the logarithms and whether each has the new level; the levels have nearly flat
    priors, the size a normal one with a variance of ``scale`` times that of a run.
    """
    y = np.concatenate([values for values, _ in groups])
    design = np.zeros((len(y), len(groups) + 1))
    at = 0
    for number, (values, is_new) in enumerate(groups):
        design[at : at + len(values), number] = 1
        design[at : at + len(values), -1] = is_new
        at += len(values)
    wide = 1e8
    prior = np.diag([wide] * len(groups) + [scale])
    covariance = np.eye(len(y)) + design @ prior @ design.T
    square = float(y @ np.linalg.solve(covariance, y))
    _, determinant = np.linalg.slogdet(covariance)
    # The noise: one run of a standard deviation of 2e-4 is known before; a flat level costs one.
    freedom = len(y) - len(groups)
    return -0.5 * float(determinant) - (freedom + 1) / 2 * float(np.log(square + 2e-4**2))


def test_the_posterior_is_that_of_the_plain_regression() -> None:
    posterior = ChangePosterior(5)
    history = [(0, 1.0), (0, 1.02), (4, 1.08), (1, 0.99), (4, 1.11)]
    new = [(0, 2.01), (2, 2.22), (4, 2.19), (1, 1.98), (2, 2.18), (3, 2.21)]
    for place, value in history:
        posterior.add_history(place, value)
    for place, value in new:
        posterior.add(place, value)
    precision = posterior._precision(posterior._moments())
    # No change of the new runs (5 is behind them all), any of the history; then one of both.
    places = [(change, 5) for change in range(1, 5)] + [(change, change) for change in range(1, 5)]
    expected = [
        likelihood(
            [
                (
                    np.log([value for _, value in block]),
                    np.array([place >= change for place, _ in block], float),
                )
                for block, change in ((history, of_history), (new, of_new))
            ],
            1 / precision,
        )
        for of_history, of_new in places
    ]
    weights = np.exp(np.array(expected) - max(expected))
    weights = np.array([0.02 * weights[:4].mean(), *(0.98 / 4 * weights[4:])])
    assert posterior.probabilities() == pytest.approx(weights / weights.sum(), rel=1e-4)


def test_the_ends_are_measured_first_and_then_the_middle() -> None:
    posterior = around(33)
    assert posterior.plan() == (0, 1, 1.0)
    posterior.add(0, 1.0)
    first = posterior.plan()
    assert first is not None
    assert first.place == 32
    posterior.add(32, 1.1)
    middle = posterior.plan()
    assert middle is not None
    assert 10 <= middle.place <= 22
    assert middle.gain > 0.8  # of the one bit of a run without noise


def test_a_weak_change_is_measured_several_times_at_once() -> None:
    strong, weak = around(9, 1.1, 0.01), around(9, 1.004, 0.01)
    for posterior, step in ((strong, 1.1), (weak, 1.004)):
        posterior.add(0, 1.0)
        posterior.add(8, step)
    (one, several) = (strong.plan(), weak.plan())
    assert one is not None
    assert several is not None
    assert one.runs == 1
    assert several.runs > one.runs


def test_commits_that_cannot_be_measured_leave_what_cannot_be_decided() -> None:
    posterior = around(9)
    for place in (0, 8, 3, 6, 3, 6, 0, 8, 3, 6):
        posterior.add(place, 1.1 if place >= 5 else 1.0)
    skipped = frozenset({4, 5})
    assert posterior.plan(skipped) is None
    assert posterior.credible(0.95) == [4, 5, 6]
    plan = posterior.plan()
    assert plan is not None
    assert plan.place in skipped


def test_runs_without_a_change_are_called_so() -> None:
    random = np.random.default_rng(1)
    posterior = around(17)
    while posterior.best()[1] < 0.95 and posterior.runs.sum() < 60:
        plan = posterior.plan()
        assert plan is not None
        posterior.add(plan.place, 1 + 0.01 * float(random.standard_normal()))
    assert posterior.best()[0] == 0
    assert posterior.runs.sum() < 60


def test_counts_that_never_vary_are_bisected_without_repeats() -> None:
    posterior = ChangePosterior(65)
    for place in (0,) * 10 + (64,) * 10:
        posterior.add_history(place, 1e6 if place == 0 else 1.01e6)
    while posterior.best()[1] < 0.95 or not posterior.runs.sum():
        plan = posterior.plan()
        assert plan is not None
        posterior.add(plan.place, 1.01e6 if plan.place >= 23 else 1e6)
    assert posterior.best()[0] == 23
    assert posterior.runs.sum() <= 9


def test_of_5_percent_steps_at_95_percent_confidence_few_are_named_wrong() -> None:
    """docs/regressions.md has the rate of many trials; here chance allows 10 %."""
    found = bisected("normal", 0.02, 0.05, 64, 40, seed=7)
    assert found.wrong <= 10
    assert found.unnamed == 0
    assert found.runs <= 24
    plain = fewest_plain("normal", 0.02, 0.05, 64, 200, seed=7)
    assert found.runs < 0.8 * plain.runs


def analysed() -> Analysis:
    history = examples.series("Load::serve", [(20, 1.0), (20, 1.2)])
    finding = series_analysis.analyse(history, examples.SETTINGS)
    return Analysis(examples.SETTINGS, (replace(finding, series=history),))


def test_the_change_and_its_commits_are_those_of_the_history() -> None:
    found = bisect_question.find_change(analysed(), None)
    assert found.point.index == 20
    assert bisect_question.bounds(found) == (examples.commit(17), examples.commit(22))
    commits = [examples.commit(number) for number in range(17, 23)]
    posterior = bisect_question.posterior_of(found, commits)
    assert posterior.best()[0] == 3
    named = bisect_question.find_change(analysed(), examples.commit(20)[:8])
    assert named.point == found.point
    with pytest.raises(InvalidRequestError, match=r"no change at abcd in 1 series"):
        bisect_question.find_change(analysed(), "abcd")
    twice = analysed()
    other = replace(twice.series[0], key=twice.series[0].key._replace(benchmark="other"))
    points = tuple(replace(each, key=other.key) for each in other.change_points)
    both = (*twice.series, replace(other, change_points=points))
    with pytest.raises(InvalidRequestError, match=r"2 series have a regression: .*--benchmark"):
        bisect_question.find_change(Analysis(examples.SETTINGS, both), None)
