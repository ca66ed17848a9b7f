"""The search for temporary levels, which a search for single splits misses."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import histories
from kraft.regression import segments
from kraft.regression.segments import boundaries


def found(values: histories.Values, ends: list[int] | None = None) -> list[int]:
    return boundaries(values, ends or [0, len(values)], shortest=5, longest=50, max_p_value=1e-5)


def test_several_segments_of_one_level_are_all_found() -> None:
    values = histories.stable(np.random.default_rng(1), 120, histories.normal, 0.02)
    for at in (15, 40, 65, 90):
        values[at : at + 9] *= 1.15
    assert found(values) == [15, 24, 40, 49, 65, 74, 90, 99]


def test_a_segment_anywhere_in_a_long_level_is_found() -> None:
    random = np.random.default_rng(2)
    for at in range(100, 1400, 97):
        values = histories.stable(random, 1500, histories.normal, 0.02)
        values[at : at + 10] *= 1.25
        near = found(values)
        assert min(abs(each - at) for each in near) <= 1
        assert min(abs(each - at - 10) for each in near) <= 1
        assert all(at - 2 <= each <= at + 12 for each in near)


def test_the_search_stays_within_the_given_ends() -> None:
    values = np.concatenate([np.full(30, 1.0), np.full(30, 2.0)])
    values *= 1 + 0.01 * np.random.default_rng(3).standard_normal(60)
    assert found(values) == [30]
    assert found(values, [0, 30, 60]) == []


@pytest.mark.parametrize("count", [0, 1, 2, 9, 14, 15])
def test_short_and_constant_levels_have_no_segments(count: int) -> None:
    assert found(np.ones(count)) == []
    assert found(np.arange(count, dtype=np.float64))[:1] in ([], [7], [5])


def test_values_of_any_magnitude_do_not_overflow() -> None:
    values = histories.bumped(np.random.default_rng(4), 60, histories.normal, 0.02, 20, 10, 0.5)
    for scale in (1e-140, 1e-9, 1.0, 1e9, 1e140):
        assert found(values * scale) == [20, 30], scale
    assert segments.best_of(np.zeros(40), 5, 50) is None


@pytest.mark.parametrize("noise", [1e-9, 0.02, 1.0, 300.0])
def test_the_largest_likelihood_is_that_of_all_logarithms(noise: float) -> None:
    random = np.random.default_rng(7)
    for count in (1, 2, 500, 20_000):
        explained = noise * random.chisquare(1, count)
        explained[random.integers(0, count, 3)] = explained.max()  # the first of equal ones counts
        for total in (np.array([300]), random.integers(10, 80, count)):
            expected = int(np.argmax(total * np.log1p(explained)))
            assert segments._largest_likelihood(total, explained) == expected
