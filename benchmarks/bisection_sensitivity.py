"""How often ``kraft regress bisect`` names the wrong commit, and how many runs it needs.

Each trial draws a history around a change, a place of the change, and new runs whose level differs
from the history's, as on a machine that has changed since. `plain` is ``git bisect`` with a fixed
number of runs of each commit, for comparison. Called by `benchmarks.sensitivity`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.histories import NOISES
from kraft.regression.bisection import ChangePosterior

#: Relative steps and numbers of commits of the table.
BISECTED_STEPS = (0.03, 0.05, 0.10)
BISECTED_COMMITS = (8, 64, 256)

#: A trial stops here, as `--max-runs` does.
MOST_RUNS = 400
#: Runs of the history before and since the change.
_BEFORE, _SINCE = 100, 10
#: Standard deviation of the new runs' level, relative to the history's.
_SHIFT = 0.05


@dataclass(frozen=True)
class Bisected:
    """Result of several trials."""

    wrong: float  # percent of the trials that named another commit
    unnamed: float  # percent that named none within `MOST_RUNS`
    runs: float  # average number of runs
    most: float  # in 95 of 100 trials at most this many


def bisected(
    noise: str,
    size: float,
    step: float,
    commits: int,
    trials: int,
    seed: int,
    confidence: float = 0.95,
) -> Bisected:
    """Measure `ChangePosterior` at a stated confidence; ``size`` is the noise, relative."""
    random = np.random.default_rng([seed, commits, round(1e4 * step), *noise.encode()])
    found = [_trial(random, noise, size, step, commits, confidence) for _ in range(trials)]
    return _summary(found)


def _trial(
    random: np.random.Generator,
    noise: str,
    size: float,
    step: float,
    commits: int,
    confidence: float,
) -> tuple[bool | None, int]:
    """Return whether the commit was right (None: not named), and the runs."""
    draw = NOISES[noise]
    place = int(random.integers(1, commits))
    posterior = ChangePosterior(commits)
    for value in 1 + size * draw(random, _BEFORE):
        posterior.add_history(0, float(value))
    for value in (1 + step) * (1 + size * draw(random, _SINCE)):
        posterior.add_history(commits - 1, float(value))
    level = 1 + _SHIFT * float(random.standard_normal())
    values = level * (1 + size * draw(random, MOST_RUNS + 10))
    runs = 0
    while True:
        named, probability = posterior.best()
        if runs and probability >= confidence:
            return named == place, runs
        plan = posterior.plan()
        if plan is None or runs >= MOST_RUNS:
            return None, runs
        for _ in range(plan.runs):
            change = 1 + step if plan.place >= place else 1.0
            posterior.add(plan.place, float(values[runs]) * change)
            runs += 1


def plain(
    noise: str, size: float, step: float, commits: int, each: int, trials: int, seed: int
) -> Bisected:
    """Measure bisection with ``each`` runs of the ends and of every commit that it tests."""
    random = np.random.default_rng([seed, commits, round(1e4 * step), each, *noise.encode()])
    draw = NOISES[noise]
    found: list[tuple[bool | None, int]] = []
    for _ in range(trials):
        place = int(random.integers(1, commits))

        def measured(commit: int, place: int = place) -> float:
            mean = float((1 + size * draw(random, each)).mean())
            return mean * (1 + step if commit >= place else 1.0)

        low, high = 0, commits - 1
        middle = (measured(low) + measured(high)) / 2
        runs = 2 * each
        while high - low > 1:
            tested = (low + high) // 2
            runs += each
            low, high = (low, tested) if measured(tested) > middle else (tested, high)
        found.append((high == place, runs))
    return _summary(found)


def fewest_plain(
    noise: str, size: float, step: float, commits: int, trials: int, seed: int
) -> Bisected:
    """Return `plain` with the fewest runs of each commit that is wrong in at most 5 of 100."""
    for each in range(1, 100):
        found = plain(noise, size, step, commits, each, trials, seed)
        if found.wrong <= 5:
            return found
    raise AssertionError(f"{step:g} within {commits} commits: more than 100 runs of each commit")


def _summary(found: list[tuple[bool | None, int]]) -> Bisected:
    runs = sorted(count for _, count in found)
    share = 100 / len(found)
    return Bisected(
        wrong=share * sum(right is False for right, _ in found),
        unnamed=share * sum(right is None for right, _ in found),
        runs=float(np.mean(runs)),
        most=float(runs[math.ceil(0.95 * len(runs)) - 1]),
    )
