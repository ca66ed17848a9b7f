"""Curves of a comparison: a measure of a mode by partitions, its exponents, what lies beyond.

The exponent of a curve is that of value ~ partitions ** exponent, fitted by `fleet.scaling` to all
sizes. Starting a process or a heartbeat's interval hide it at small sizes; so the exponent of the
last three sizes stands beside it, and extrapolation uses only that one. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kraft.fleet.scaling import FEWEST_SIZES, LawKey, Point, PowerLaw, fit_law
from kraft.generations.measures import MEASURES, RunResult, ScriptStep

_SCENARIO = "compare"


@dataclass(frozen=True)
class Curve:
    """One measure of one mode: ``sizes`` and ``seconds`` are measured.

    ``law`` is that of all sizes, None where there are too few; ``tail`` the exponent of the last
    three sizes. ``beyond`` has the sizes that were asked for and not measured, with extrapolated
    seconds.
    """

    mode: str
    step: ScriptStep
    measure: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    law: PowerLaw | None
    tail: float | None
    beyond: tuple[tuple[int, float], ...]

    @property
    def title(self) -> str:
        """The measure in words: ``failover first write``."""
        return f"{self.step.value} {self.measure}".replace("_", " ")

    def as_dict(self) -> dict[str, Any]:
        """Return the curve as JSON."""
        law = self.law
        return {
            "mode": self.mode,
            "step": self.step.value,
            "measure": self.measure,
            "sizes": list(self.sizes),
            "seconds": list(self.seconds),
            "exponent": None if law is None else law.exponent,
            "interval": None if law is None else [law.low, law.high],
            "lastExponent": self.tail,
            "extrapolated": [{"partitions": size, "seconds": value} for size, value in self.beyond],
        }


def curves_of(runs: Sequence[RunResult], brokers: int) -> Iterable[Curve]:
    """Yield the curve of each measure of each mode that has a value."""
    for step, measure in MEASURES:
        for mode in dict.fromkeys(run.mode for run in runs):
            own = [run for run in runs if run.mode == mode]
            points = [
                Point(
                    mode, _SCENARIO, step.value, measure, "value", "s", brokers, run.partitions, 0,
                    run.seconds[step, measure],
                )
                for run in sorted(own, key=lambda run: run.partitions)
                if (step, measure) in run.seconds
            ]  # fmt: skip
            if points:
                measured = {point.partitions for point in points}
                missing = sorted({run.partitions for run in own if run.partitions > max(measured)})
                yield _curve(step, measure, points, missing)


def _curve(step: ScriptStep, measure: str, points: list[Point], missing: list[int]) -> Curve:
    law = _law(points)
    last = _tail(points)
    beyond: tuple[tuple[int, float], ...] = ()
    if last is not None:
        level, exponent = last
        beyond = tuple((size, math.exp(level) * size**exponent) for size in missing)
    return Curve(
        points[0].quorum,
        step,
        measure,
        tuple(point.partitions for point in points),
        tuple(point.value for point in points),
        law,
        None if last is None else last[1],
        beyond,
    )


def _law(points: Sequence[Point]) -> PowerLaw | None:
    if len(points) < FEWEST_SIZES:
        return None
    found = fit_law(LawKey(*points[0][:6], "partitions"), points)
    return found if isinstance(found, PowerLaw) else None


def _tail(points: Sequence[Point]) -> tuple[float, float] | None:
    """Return level and exponent of the line through the last three sizes, in logarithms."""
    some = [point for point in points if point.value > 0][-FEWEST_SIZES:]
    if len(some) < FEWEST_SIZES:
        return None
    x = np.log([point.partitions for point in some])
    y = np.log([point.value for point in some])
    exponent, level = np.polyfit(x, y, 1)
    return float(level), float(exponent)
