"""Scaling laws of a fleet's measures: how a time or a size grows with brokers or partitions.

Each law is value ~ size ** exponent, by least squares in logarithms, for one measure of one quorum,
scenario and step against one size. Runs whose other size differs (a grid of brokers and partitions)
keep a level of their own and share the exponent. A knee is a size where the exponent changes: two
segments that meet there, accepted only if the F test and BIC both prefer them. `corrected` removes
the knees that chance explains among all laws of a report.

Pure: points in, laws and refusals out. ``scaling_report`` calls `laws` for the runs of a report;
``kraft.spark.fleet_scaling`` calls `group_laws` for each group of measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.errors import MissingPackageError
from kraft.regression.multiple_testing import q_values

#: The sizes that laws are fitted against.
SIZES = ("brokers", "partitions")
#: Two sizes fit any line; three allow an error estimate.
FEWEST_SIZES = 3
#: A knee has at least this many sizes on each side, so that each segment has an error.
FEWEST_SIZES_OF_SEGMENT = 3
#: The share of false knees among all that a report shows. The place of a knee is chosen among
#: several, and each of them is a test.
FALSE_DISCOVERY_RATE = 0.05
#: The confidence of the intervals.
CONFIDENCE = 0.95

_PLACES_BETWEEN_SIZES = 7

_Floats = NDArray[np.floating[Any]]


class Point(NamedTuple):
    """One measure of one run."""

    quorum: str
    scenario: str
    step: str
    name: str
    statistic: str
    unit: str
    brokers: int
    partitions: int
    seed: int
    value: float


class LawKey(NamedTuple):
    """What a law describes: a measure of a step, and the size that it grows with."""

    quorum: str
    scenario: str
    step: str
    name: str
    statistic: str
    unit: str
    against: str


@dataclass(frozen=True)
class Fit:
    """A curve of one or two power laws, through the middle of its points.

    ``after`` is the exponent above ``knee``; an infinite ``knee`` is none.
    """

    level: float
    exponent: float
    knee: float = math.inf
    after: float = 0.0

    def at(self, sizes: _Floats) -> _Floats:
        """Return the values of the curve at these sizes."""
        x = np.log(sizes)
        y = self.level + self.exponent * x
        if math.isfinite(self.knee):
            y = y + (self.after - self.exponent) * np.maximum(x - math.log(self.knee), 0.0)
        values: _Floats = np.exp(y)
        return values


@dataclass(frozen=True)
class Knee:
    """A size at which the exponent changes, and why it was accepted.

    ``p_value`` is that of the F test against one law, ``q_value`` the same corrected for all tests
    of a report (1 before `corrected`), ``bic`` how much lower BIC is than with one law.
    """

    size: float
    before: float
    after: float
    p_value: float
    q_value: float
    bic: float
    fit: Fit


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law. ``error`` is the exponent's standard error, ``low`` to ``high`` its interval.

    ``sizes`` and ``values`` are the points, sorted by size; ``r_squared`` is the share of the
    variance, within runs of one other size, that the law explains. ``knee_tests`` is the number of
    sizes at which a knee was looked for: 0 where there are too few.
    """

    quorum: str
    scenario: str
    step: str
    name: str
    statistic: str
    unit: str
    against: str
    exponent: float
    error: float
    low: float
    high: float
    r_squared: float
    sizes: tuple[float, ...]
    values: tuple[float, ...]
    fit: Fit
    knee_tests: int
    knee: Knee | None

    @property
    def title(self) -> str:
        """The measure in words."""
        return f"{self.quorum}, {self.scenario}, {self.step}: {self.name} {self.statistic}"

    def as_dict(self) -> dict[str, Any]:
        """Return the law as JSON."""
        knee = self.knee
        return {
            **{name: getattr(self, name) for name in LawKey._fields},
            "exponent": self.exponent,
            "standardError": self.error,
            "interval": [self.low, self.high],
            "rSquared": self.r_squared,
            "sizes": list(self.sizes),
            "values": list(self.values),
            "knee": None
            if knee is None
            else {
                "size": knee.size,
                "before": knee.before,
                "after": knee.after,
                "pValue": knee.p_value,
                "qValue": knee.q_value,
                "bicGain": knee.bic,
            },
        }


@dataclass(frozen=True)
class Refusal:
    """A law that cannot be fitted, and why."""

    quorum: str
    scenario: str
    step: str
    name: str
    statistic: str
    unit: str
    against: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the refusal as JSON."""
        return {**{name: getattr(self, name) for name in LawKey._fields}, "reason": self.reason}


def laws(points: Iterable[Point]) -> tuple[list[PowerLaw], list[Refusal]]:
    """Return a law for each measure, quorum and size that varies, and what could not be fitted.

    A size that is the same in all points of a measure has neither law nor refusal.
    """
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(point[:6], []).append(point)
    found: list[PowerLaw] = []
    refused: list[Refusal] = []
    for _, group in sorted(groups.items()):
        for law in group_laws(group):
            if isinstance(law, PowerLaw):
                found.append(law)
            else:
                refused.append(law)
    return corrected(found), refused


def group_laws(points: Sequence[Point]) -> list[PowerLaw | Refusal]:
    """Return the laws of one measure of one quorum and step, with knees that are not corrected."""
    return [
        fit_law(LawKey(*points[0][:6], against), points)
        for against in SIZES
        if len({getattr(point, against) for point in points}) > 1
    ]


def corrected(found: Sequence[PowerLaw]) -> list[PowerLaw]:
    """Return the laws of a report without the knees that chance explains among all tests."""
    knees = [law.knee for law in found if law.knee is not None]
    p_values = np.array([knee.p_value for knee in knees])
    adjusted = map(float, q_values(p_values, sum(law.knee_tests for law in found)))
    kept = []
    for law in found:
        if law.knee is not None:
            q_value = next(adjusted)
            knee = replace(law.knee, q_value=q_value) if q_value <= FALSE_DISCOVERY_RATE else None
            law = replace(law, knee=knee)
        kept.append(law)
    return kept


def fit_law(key: LawKey, points: Sequence[Point]) -> PowerLaw | Refusal:
    """Return the law of the points of one measure, or why there is none."""
    other = SIZES[1 - SIZES.index(key.against)]
    usable = [point for point in points if point.value > 0 and getattr(point, key.against) > 0]
    # A level with one size says nothing about the exponent.
    by_other: dict[int, set[int]] = {}
    for point in usable:
        by_other.setdefault(getattr(point, other), set()).add(getattr(point, key.against))
    usable = [point for point in usable if len(by_other[getattr(point, other)]) > 1]
    usable.sort(key=lambda point: (getattr(point, key.against), getattr(point, other), point.seed))
    sizes = np.array([getattr(point, key.against) for point in usable], float)
    distinct = len(set(sizes))
    if distinct < FEWEST_SIZES:
        dropped = len(points) - len(usable)
        left = f"; {dropped} of {len(points)} values are 0 or have no partner" if dropped else ""
        return Refusal(
            *key,
            reason=f"{distinct} sizes of {key.against} at equal {other}, "
            f"{FEWEST_SIZES} are needed{left}",
        )
    values = np.array([point.value for point in usable])
    levels = _levels([getattr(point, other) for point in usable])
    x, y = np.log(sizes), np.log(values)
    freedom = len(x) - levels.shape[1] - 1
    if freedom < 1:
        return Refusal(
            *key, reason=f"{len(x)} runs at {levels.shape[1]} numbers of {other}: too few"
        )
    design = np.column_stack([levels, x])
    solution, rest = _solved(design, y)
    error = _slope_error(design, rest, freedom)
    width = _t_quantile(freedom, (1 + CONFIDENCE) / 2) * error
    exponent = float(solution[-1])
    within = y - levels @ _solved(levels, y)[0]
    spread = float(within @ within)
    return PowerLaw(
        *key,
        exponent=exponent,
        error=error,
        low=exponent - width,
        high=exponent + width,
        r_squared=1.0 if spread == 0 else 1 - float(rest @ rest) / spread,
        sizes=tuple(map(float, sizes)),
        values=tuple(map(float, values)),
        fit=Fit(float((y - exponent * x).mean()), exponent),
        knee_tests=len(_inner(x)),
        knee=_knee(levels, x, y, rest),
    )


def _inner(x: _Floats) -> _Floats:
    """Return the sizes, in logarithms, that may be a knee: enough sizes are on each side."""
    sizes = np.unique(x)
    return sizes[FEWEST_SIZES_OF_SEGMENT - 1 : len(sizes) - FEWEST_SIZES_OF_SEGMENT + 1]


def _knee(levels: _Floats, x: _Floats, y: _Floats, rest: _Floats) -> Knee | None:
    """Return the best knee if two segments fit better than one law; None without one.

    A knee may also lie between two sizes, at one of `_PLACES_BETWEEN_SIZES` places.
    """
    inner = _inner(x)
    between = [np.linspace(a, b, _PLACES_BETWEEN_SIZES + 2)[1:-1] for a, b in pairwise(inner)]
    places = np.concatenate([inner, *between])
    count = len(x)
    # The place and the second exponent are two more parameters.
    freedom = count - levels.shape[1] - 3
    if freedom < 1 or not len(places):
        return None
    best: tuple[float, float, _Floats] | None = None
    for place in places:
        design = np.column_stack([levels, x, np.maximum(x - place, 0.0)])
        solution, left = _solved(design, y)
        squares = float(left @ left)
        if best is None or squares < best[0]:
            best = (squares, float(place), solution)
    assert best is not None
    squares, place, solution = best
    one = float(rest @ rest)
    # Rounding of logarithms: points on one law have no knee, points on two have a sum above 0.
    floor = 1e-24 * count
    if one <= floor:
        return None
    squares = max(squares, floor)
    statistic = (one - squares) / 2 / (squares / freedom)
    p_value = _f_tail(2, freedom, statistic)
    gain = count * math.log(one / squares) - 2 * math.log(count)
    if p_value > FALSE_DISCOVERY_RATE or gain <= 0:
        return None
    before, bend = float(solution[-2]), float(solution[-1])
    curve = Fit(0.0, before, math.exp(place), before + bend)
    level = float((y - np.log(curve.at(np.exp(x)))).mean())
    return Knee(
        size=math.exp(place),
        before=before,
        after=before + bend,
        p_value=p_value,
        q_value=1.0,
        bic=gain,
        fit=Fit(level, before, math.exp(place), before + bend),
    )


def _levels(others: Sequence[int]) -> _Floats:
    """Return a column of ones for each distinct other size: its own level."""
    distinct = np.unique(others)
    levels: _Floats = (np.array(others)[:, None] == distinct[None, :]).astype(float)
    return levels


def _solved(design: _Floats, y: _Floats) -> tuple[_Floats, _Floats]:
    """Return the least-squares solution and the residuals."""
    solution = np.linalg.lstsq(design, y, rcond=None)[0]
    return solution, y - design @ solution


def _slope_error(design: _Floats, rest: _Floats, freedom: int) -> float:
    """Return the standard error of the last column's coefficient."""
    inverse = np.linalg.inv(design.T @ design)
    return float(np.sqrt(rest @ rest / freedom * inverse[-1, -1]))


def _t_quantile(freedom: int, share: float) -> float:
    """Return a quantile of Student's distribution."""
    return float(_special().stdtrit(freedom, share))


def _f_tail(first: int, second: int, statistic: float) -> float:
    """Return the probability of a larger value of Fisher's distribution."""
    return float(_special().fdtrc(first, second, statistic))


def _special() -> Any:
    try:
        from scipy import special
    except ImportError:
        raise MissingPackageError("scaling laws need SciPy: pip install 'kraft[report]'") from None
    return special
