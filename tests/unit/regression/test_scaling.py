"""Scaling laws: how time grows with size."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import histories
from kraft.regression import multiple_testing, scaling, series_analysis
from kraft.regression.points import Series
from kraft.regression.settings import AnalysisSettings

SETTINGS = AnalysisSettings()
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


def measured(
    power: float = 1.0,
    bend: float = 0.0,
    noise: float = 0.02,
    runs: int = 60,
    seed: int = 1,
    **others: object,
) -> list[Series]:
    """Return a benchmark of four sizes; halfway its exponent grows by ``bend``."""
    random = np.random.default_rng(seed)
    found = []
    for at, size in enumerate(SIZES):
        step = 10 ** (bend * (at - 1.5)) - 1
        values = histories.stepped(random, runs, histories.normal, noise, runs // 2, step)
        params = json.dumps({**others, "partitions": size}, sort_keys=True)
        found.append(histories.series(values * 1e-6 * size**power, params=params))
    return found


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_found_with_its_interval(power: float) -> None:
    (law,) = scaling.laws(measured(power), SETTINGS)
    assert law.size_param == "partitions"
    assert law.sizes == SIZES
    assert law.key.params == "{}"
    assert law.low < power < law.high
    assert law.high - law.low < 0.1
    assert (law.run_count, law.change_points) == (60, ())


def test_intervals_contain_the_true_value_at_their_confidence() -> None:
    random = np.random.default_rng(2)
    sizes, held = np.array([1e3, 1e4, 1e5, 1e6, 1e7]), 0
    for _ in range(500):
        values = sizes**1.3 * np.exp(0.05 * random.standard_normal(5))
        _, low, high = scaling.exponent(sizes, values, 0.95)
        held += low <= 1.3 <= high
    assert 460 <= held <= 490


def test_an_exponent_changes_although_no_size_does() -> None:
    sized = measured(bend=0.007, seed=2)
    alone = multiple_testing.correct(
        [series_analysis.analyse(each, SETTINGS) for each in sized], SETTINGS
    )
    assert [each.change_points for each in alone] == [()] * 4
    (law,) = multiple_testing.correct_laws(scaling.laws(sized, SETTINGS), SETTINGS)
    (point,) = law.change_points
    assert point.statistic == "exponent"
    assert abs(point.index - 30) <= 2
    assert point.mean_after - point.mean_before == pytest.approx(0.007, abs=0.003)
    # A tenfold size multiplies the time by a factor: the ratio is this factor after / before.
    assert point.ratio.low < 10**0.007 < point.ratio.high
    assert point.ratio.value == pytest.approx(
        10 ** (point.mean_after - point.mean_before), rel=1e-3
    )


def test_a_constant_time_that_begins_to_grow_is_a_regression() -> None:
    (law,) = scaling.laws(measured(power=0.0, bend=0.3), SETTINGS)
    (point,) = law.change_points
    assert point.mean_before == pytest.approx(0, abs=0.01)
    assert point.ratio.value == pytest.approx(10**0.3, rel=0.01)


def test_benchmarks_machines_and_other_parameters_have_laws_of_their_own() -> None:
    few, many = measured(brokers=3), measured(power=1.5, brokers=300)
    laws = scaling.laws([*many, *few], SETTINGS)
    assert {law.key.params: round(law.exponent, 1) for law in laws} == {
        '{"brokers":3}': 1.0,
        '{"brokers":300}': 1.5,
    }


def test_every_parameter_with_three_sizes_is_a_size_unless_one_is_named() -> None:
    grid = [
        each
        for brokers in (3, 30, 300)
        for each in measured(power=1.0 + brokers / 1000, noise=0.001, brokers=brokers)
    ]
    assert {law.size_param for law in scaling.laws(grid, SETTINGS)} == {"brokers", "partitions"}
    named = scaling.laws(grid, SETTINGS, "brokers")
    assert {law.size_param for law in named} == {"brokers"}
    assert len(named) == len(SIZES)
    assert scaling.laws(grid, SETTINGS, "racks") == []


@pytest.mark.parametrize("sizes", [(True, False, 1), ("10", "100", "1000"), (-1, 0, 5), (1, 2)])
def test_parameters_that_are_no_sizes_have_no_law(sizes: tuple[object, ...]) -> None:
    sized = [histories.series(np.ones(10), params=json.dumps({"size": size})) for size in sizes]
    assert scaling.laws(sized, SETTINGS) == []


def test_the_history_consists_of_runs_with_all_sizes() -> None:
    sized = measured()
    short = sized[2]
    sized[2] = Series(
        short.key, short.run_id[20:], short.time_us[20:], short.commit[20:], short.value[20:]
    )
    (law,) = scaling.laws(sized, SETTINGS)
    assert law.run_count == 40
    assert law.sizes == SIZES


def test_a_size_that_is_no_longer_measured_keeps_the_history() -> None:
    sized = measured()
    gone = sized[3]
    sized[3] = Series(gone.key, gone.run_id[:9], gone.time_us[:9], gone.commit[:9], gone.value[:9])
    (law,) = scaling.laws(sized, SETTINGS)
    assert law.sizes == SIZES[:3]
    assert law.run_count == 60


def test_sizes_of_separate_runs_make_a_law_without_a_history() -> None:
    sized = [
        Series(
            each.key, each.run_id[at::4], each.time_us[at::4], each.commit[at::4], each.value[at::4]
        )
        for at, each in enumerate(measured())
    ]
    (law,) = scaling.laws(sized, SETTINGS)
    assert law.values == tuple(float(each.value[-1]) for each in sized)
    assert law.exponent == pytest.approx(1, abs=0.05)
    assert (law.run_count, law.change_points) == (0, ())


def test_a_time_of_zero_has_no_logarithm() -> None:
    sized = measured()
    sized[0].value[-1] = 0.0
    (law,) = scaling.laws(sized, SETTINGS)
    assert law.sizes == SIZES[1:]
    sized[0].value[:] = 0.0
    sized[1].value[:] = 0.0
    assert scaling.laws(sized, SETTINGS) == []


def test_the_history_of_an_exponent_has_the_runs_of_its_changes() -> None:
    sized = measured(bend=0.1, kind="a")
    (law,) = scaling.laws(sized, SETTINGS)
    (point,) = law.change_points
    found = scaling.history(law, sized)
    assert found is not None
    assert len(found) == law.run_count == 60
    assert found.key == law.key
    assert found.run_id[point.index] == point.run_after
    before, after = np.split(found.value, [point.index])
    assert (before.mean(), after.mean()) == pytest.approx((point.mean_before, point.mean_after))
    assert scaling.history(law, sized[:2]) is None
    # Runs without one of the sizes have no exponent.
    late = sized[0]
    late = replace(
        late,
        run_id=late.run_id[5:],
        time_us=late.time_us[5:],
        commit=late.commit[5:],
        value=late.value[5:],
        rounds=None,
        place=None if late.place is None else late.place[5:],
    )
    shorter = scaling.history(law, [late, *sized[1:]])
    assert shorter is not None
    assert shorter.run_id.tolist() == found.run_id[5:].tolist()


def test_the_series_of_a_law_are_those_of_its_sizes() -> None:
    sized, others = measured(kind="a"), measured(kind="b")
    (law,) = scaling.laws(sized, SETTINGS)
    key = sized[0].key
    strange = [
        key._replace(params=params)
        for params in ("{}", '{"kind":"a","partitions":11}', '{"kind":"a","partitions":[1]}')
    ]
    keys = [each.key for each in [*sized, *others]] + strange
    keys += [key._replace(branch="x"), key._replace(machine="x"), key._replace(benchmark="x")]
    assert scaling.sizes_of(law, keys) == [each.key for each in sized]
