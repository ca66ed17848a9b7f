"""Find the commit of a change: the posterior of its place, and what to measure next.

The model: logarithms of values are normal around one level before the change's commit and another
from it on. The runs of the history and new runs have levels of their own, because the machine may
have changed since, but one size of the change and one noise. The prior is uniform over the commits;
some of it is kept for "no change": then the history has one, of its machine, and new runs have
none. With a normal prior of the size and flat priors of the levels, the likelihood of each place
has a closed form (a normal-inverse-gamma regression), so that a posterior of 1,000 commits takes
microseconds.

The next run is the one that reduces the expected entropy of the place most (one step ahead). The
caller stops when `ChangePosterior.best` has the wanted probability. `benchmarks.sensitivity`
measures how often that commit is wrong. Pure: `kraft.cli.regress_bisect` supplies values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Prior probability that the new runs show no change at all.
NO_CHANGE = 0.02

#: Values vary at least by this (standard deviation / mean): counts that never varied may do so yet.
_LEAST_NOISE = 2e-4
#: Degrees of freedom of the prior of the noise.
_PRIOR_RUNS = 1.0
#: Probabilities of the change being at or before the commits that are considered.
_QUANTILES = (0.2, 0.35, 0.5, 0.65, 0.8)
#: Nodes of the expectation over the outcome of a run, in each of the two levels.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
#: More runs of one commit are never proposed at once.
_MOST_AT_ONCE = 8

_Floats = NDArray[np.float64]


class BisectPlan(NamedTuple):
    """What to measure next: ``place`` is the position of the commit."""

    place: int
    runs: int
    gain: float  # expected reduction of the entropy by one run, in bits


@dataclass
class _Block:
    """Runs with a common level: per commit their number and the sum of their logarithms."""

    counts: _Floats
    sums: _Floats
    square: float = 0.0

    @classmethod
    def empty(cls, commits: int) -> _Block:
        return cls(np.zeros(commits), np.zeros(commits))

    def add(self, place: int, logarithm: float) -> None:
        self.counts[place] += 1
        self.sums[place] += logarithm
        self.square += logarithm**2


class _Moments(NamedTuple):
    """Centred sums over all blocks, for a change at each place."""

    xx: _Floats
    xy: _Floats
    yy: Any  # a number, or an array if the sums are of several outcomes
    freedom: float
    history_xx: _Floats
    history_xy: _Floats


class ChangePosterior:
    """Probability of each commit to be the first one of the new level.

    ``commits`` commits are at the positions 0 to ``commits`` - 1, oldest first. The first one has
    the old level and the last one the new level, so that the change is one of 1 to ``commits`` - 1.
    """

    def __init__(self, commits: int) -> None:
        assert commits >= 2, "a change is between two commits"
        self.commits = commits
        self._history = _Block.empty(commits)
        self._new = _Block.empty(commits)

    def add_history(self, place: int, value: float) -> None:
        """Add a run of the history; runs before or after the commits count as the first or last."""
        self._history.add(place, float(np.log(value)))

    def add(self, place: int, value: float) -> None:
        """Add a new run of the commit at ``place``; ``value`` is above 0."""
        self._new.add(place, float(np.log(value)))

    @property
    def runs(self) -> NDArray[np.int64]:
        """Return the number of new runs of each commit."""
        return self._new.counts.astype(np.int64)

    def probabilities(self) -> _Floats:
        """Return the probability of each place; that of 0 means no change at all."""
        return _normal(self._log_posterior(self._moments()))

    def best(self) -> tuple[int, float]:
        """Return the most probable place and its probability; place 0 means no change."""
        probabilities = self.probabilities()
        place = int(np.argmax(probabilities))
        return place, float(probabilities[place])

    def credible(self, confidence: float) -> list[int]:
        """Return the fewest places that contain the change with this probability, in order."""
        probabilities = self.probabilities()
        order = np.argsort(-probabilities, kind="stable")
        many = int(np.searchsorted(np.cumsum(probabilities[order]), confidence)) + 1
        return sorted(int(place) for place in order[:many])

    def change(self) -> tuple[float, float]:
        """Return the ratio new / old and the noise (standard deviation / mean) of a run."""
        moments = self._moments()
        precision = self._precision(moments)
        place = int(np.argmax(self._log_posterior(moments)[1:])) + 1
        size = float(moments.xy[place] / (moments.xx[place] + precision))
        return float(np.exp(size)), float(np.sqrt(self._variance(moments, precision, place)))

    def plan(self, skipped: frozenset[int] = frozenset()) -> BisectPlan | None:
        """Return what to measure next, None if no run of a commit but the ``skipped`` tells more.

        The ends come first: without them, the level of new runs is unknown.
        """
        usable = [place for place in range(self.commits) if place not in skipped]
        for end in (usable[:1], usable[-1:]):
            if end and not self._new.counts[end[0]]:
                return BisectPlan(end[0], 1, 1.0)
        moments = self._moments()
        probabilities = _normal(self._log_posterior(moments))
        after = np.cumsum(probabilities[1:])  # of places 1 ...: the commit has the new level
        wanted = {int(np.searchsorted(after, quantile)) + 1 for quantile in _QUANTILES}
        best = int(np.argmax(probabilities[1:])) + 1
        wanted |= {best - 1, best, 0, self.commits - 1}
        near = np.array(usable)
        places = sorted(
            {int(near[np.argmin(np.abs(near - place))]) for place in wanted} if usable else ()
        )
        if not places:
            return None
        gains = _entropy(probabilities) - self._expected_entropies(np.array(places), moments)
        chosen = int(np.argmax(gains))
        if gains[chosen] < 1e-4:
            return None
        ratio, noise = self.change()
        steps = abs(np.log(ratio)) / noise
        runs = int(np.clip(round(1 / max(steps, 1e-3) ** 2), 1, _MOST_AT_ONCE))
        return BisectPlan(places[chosen], runs, float(gains[chosen]))

    def _moments(
        self, places: NDArray[np.int64] | None = None, outcomes: _Floats | None = None
    ) -> _Moments:
        """Return the sums of all runs.

        With ``places`` and ``outcomes`` (a row of logarithms for each place), return those after
        one more run of each place with each outcome, as arrays of (places, outcomes, commits).
        """
        xx: Any = np.zeros(self.commits)
        xy: Any = np.zeros(self.commits)
        yy: Any = 0.0
        freedom = 0.0
        history = xx, xy
        for block in (self._history, self._new):
            counts: Any = block.counts
            sums: Any = block.sums
            square: Any = block.square
            if block is self._new and places is not None and outcomes is not None:
                measured = np.zeros((len(places), 1, self.commits))
                measured[np.arange(len(places)), 0, places] = 1
                counts = counts + measured
                sums = sums + measured * outcomes[..., None]
                square = square + outcomes**2
            count = float(counts.sum(axis=-1).flat[0] if counts.ndim > 1 else counts.sum())
            if not count:
                continue
            # Runs at or after each place: a change there gives them the new level.
            count_new = np.flip(np.flip(counts, -1).cumsum(axis=-1), -1)
            sum_new = np.flip(np.flip(sums, -1).cumsum(axis=-1), -1)
            total = sum_new[..., 0]
            xx = xx + count_new - count_new**2 / count
            xy = xy + sum_new - count_new * total[..., None] / count
            yy = yy + np.maximum(square - total**2 / count, 0.0)
            freedom += count - 1
            if block is self._history:
                history = xx, xy
        return _Moments(xx, xy, yy, freedom, *history)

    def _precision(self, moments: _Moments) -> float:
        """Return the precision of the size's prior, in units of 1 / variance of a run.

        A unit information prior around 0: the size is about as large as the best one seen.
        """
        explained = moments.xy[1:] ** 2 / np.maximum(moments.xx[1:], 1e-9)
        at = int(np.argmax(explained))
        rest = max(moments.yy - float(explained[at]), 0.0) / max(moments.freedom - 1, 1.0)
        size = moments.xy[1:][at] / max(float(moments.xx[1:][at]), 1e-9)
        return float(np.clip(max(rest, _LEAST_NOISE**2) / max(size**2, 1e-12), 1e-6, 1.0))

    def _log_posterior(self, moments: _Moments, precision: float | None = None) -> _Floats:
        """Return the unnormalised logarithm of the posterior, by place; 0 is no change."""
        if precision is None:
            precision = self._precision(moments)
        found = self._log_likelihood(moments.xx, moments.xy, moments, precision)
        found = found + np.log((1 - NO_CHANGE) / (self.commits - 1))
        # No change of the new runs, and one of the history at any place.
        alone = self._log_likelihood(moments.history_xx, moments.history_xy, moments, precision)[
            ..., 1:
        ]
        most = alone.max(axis=-1, keepdims=True)
        mean = most[..., 0] + np.log(np.exp(alone - most).mean(axis=-1))
        found[..., 0] = mean + np.log(NO_CHANGE)
        return np.asarray(found, np.float64)

    def _log_likelihood(
        self, xx: _Floats, xy: _Floats, moments: _Moments, precision: float
    ) -> _Floats:
        """Return the logarithm of the marginal likelihood of each place, up to a constant."""
        half = (moments.freedom + _PRIOR_RUNS) / 2
        rest: Any = np.expand_dims(np.asarray(moments.yy), -1) - xy**2 / (xx + precision)
        rest = np.maximum(rest, 0.0) + _PRIOR_RUNS * _LEAST_NOISE**2
        return np.asarray(-half * np.log(rest) - 0.5 * np.log1p(xx / precision), np.float64)

    def _variance(self, moments: _Moments, precision: float, place: int) -> float:
        rest = moments.yy - float(moments.xy[place] ** 2 / (moments.xx[place] + precision))
        scale = max(moments.freedom - 1, 1.0)
        return max(float(rest) / scale, _LEAST_NOISE**2)

    def _expected_entropies(self, places: NDArray[np.int64], moments: _Moments) -> _Floats:
        """Return the expected entropy of the change's place after one more run of each place."""
        precision = self._precision(moments)
        probabilities = _normal(self._log_posterior(moments, precision))
        best = int(np.argmax(probabilities[1:])) + 1
        size = float(moments.xy[best] / (moments.xx[best] + precision))
        count = self._new.counts.sum()
        share_new = self._new.counts[best:].sum() / count
        old = self._new.sums.sum() / count - size * share_new
        spread = np.sqrt(self._variance(moments, precision, best) * (1 + 1 / count))
        outcomes = np.concatenate([old + spread * _NODES, old + size + spread * _NODES])
        is_new = (np.cumsum(probabilities) - probabilities[0])[places, None]
        weights = np.hstack([(1 - is_new) * _WEIGHTS, is_new * _WEIGHTS]) / _WEIGHTS.sum()
        repeated = np.repeat(outcomes[None, :], len(places), axis=0)
        after = _normal(self._log_posterior(self._moments(places, repeated), precision))
        return np.asarray((weights * _entropy(after)).sum(axis=-1), np.float64)


def _normal(logarithms: _Floats) -> _Floats:
    """Return probabilities that add up to 1 along the last axis."""
    raised = np.exp(logarithms - logarithms.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True), np.float64)


def _entropy(probabilities: _Floats) -> _Floats:
    """Return the entropy in bits, along the last axis."""
    logarithms = np.log2(np.maximum(probabilities, 1e-300))
    return np.asarray(-(probabilities * logarithms).sum(axis=-1), np.float64)
