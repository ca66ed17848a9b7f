"""Fit the costs of the model to runs of the fleet: CPU of each kind of work, memory of each size.

Each step of each run is one equation: the mean CPU of the controllers in it is the base and, times
their coefficients, the heartbeats, observer fetches, committed records and bytes a second. All of
them are counters of the trace. Weighted least squares; a term with a negative cost is left out and
the rest are fitted again. Runs that cannot tell terms apart are rejected: no cost is a guess.

They use the CPU of all controllers together, so that the costs include those of the standbys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.errors import FleetRunError, InvalidRequestError
from kraft.fleet.cost_model import UNITS, Coefficients, Rates, Term
from kraft.fleet.traces import RecordedRun, Span, TraceColumns

FORMAT = 1
#: Samples of CPU that a step needs to be an equation.
FEWEST_SAMPLES = 3
#: The largest variance inflation of a term: the square of its error is larger by this factor than
#: if the other terms did not vary with it. A correlation of 0.995 is 100.
MOST_INFLATION = 100.0

_Floats = NDArray[np.floating[Any]]


class Equation(NamedTuple):
    """One step of a run: its work a second and its CPU, the mean of ``samples`` samples."""

    run: str
    step: str
    rates: Rates
    cpu: float
    samples: int


@dataclass(frozen=True)
class Calibration:
    """Fitted costs, and how well they explain the runs.

    ``left_out`` are the terms whose cost came out below zero, and so is 0 here. ``residual`` is the
    standard deviation of an equation from its prediction, in cores.
    """

    coefficients: Coefficients
    runs: tuple[str, ...]
    equations: int
    left_out: tuple[Term, ...]
    residual: float
    r_squared: float

    def as_dict(self) -> dict[str, Any]:
        """Return the calibration as JSON, for `parse`."""
        found = self.coefficients
        memory = None
        if found.memory is not None:
            memory = dict(zip(_MEMORY, found.memory, strict=True))
        return {
            "format": FORMAT,
            "quorum": found.quorum,
            "coefficients": {
                term.value: {"value": value, "error": found.error(term), "unit": UNITS[term]}
                for term, value in zip(Term, found.values, strict=True)
            },
            "covariance": [list(row) for row in found.covariance],
            "memoryBytes": memory,
            "runs": list(self.runs),
            "equations": self.equations,
            "leftOut": [term.value for term in self.left_out],
            "residualCores": self.residual,
            "rSquared": self.r_squared,
        }


_MEMORY = ("base", "broker", "partition")


#: The counter of each term but the base, in the order of `Rates`.
_COUNTERS = ("heartbeats", "observer_fetches", "metadata_offset", "network_bytes")


def calibrate(runs: Sequence[RecordedRun]) -> Calibration:
    """Return the costs that explain the runs of one quorum best.

    Raises InvalidRequestError for no runs, runs of two quorums, runs without a counter, or runs
    that cannot tell the terms apart.
    """
    quorums = sorted({run.info.quorum for run in runs})
    if len(quorums) != 1:
        named = " and ".join(quorums) or "none"
        raise InvalidRequestError(f"runs of one quorum are calibrated together; these are {named}")
    equations = [each for run in runs for each in equations_of(run)]
    terms = list(Term)
    if len(equations) <= len(terms):
        raise InvalidRequestError(
            f"{len(equations)} steps with {FEWEST_SAMPLES} samples of CPU or more; the "
            f"{len(terms)} costs need at least {len(terms) + 1}: add runs"
        )
    design = np.array([each.rates.row() for each in equations])
    cpu = np.array([each.cpu for each in equations])
    weights = np.sqrt(np.array([float(each.samples) for each in equations]))
    _reject_inseparable(design)
    kept = list(range(len(terms)))
    while True:
        values, covariance, rest = _fit(design[:, kept], cpu, weights)
        worst = int(values.argmin())
        if values[worst] >= 0:
            break
        del kept[worst]
        if not kept:
            raise InvalidRequestError("no cost of these runs is above zero: the CPU does not vary")
    whole = np.zeros(len(terms))
    whole[kept] = values
    spread = np.zeros((len(terms), len(terms)))
    spread[np.ix_(kept, kept)] = covariance
    total = float(((cpu - cpu.mean()) ** 2).sum())
    return Calibration(
        coefficients=Coefficients(
            quorums[0],
            tuple(whole.tolist()),
            tuple(tuple(row) for row in spread.tolist()),
            _memory(runs),
        ),
        runs=tuple(run.info.run for run in runs),
        equations=len(equations),
        left_out=tuple(term for place, term in enumerate(terms) if place not in kept),
        residual=float(np.sqrt((rest**2).mean())),
        r_squared=1 - float((rest**2).sum()) / total if total > 0 else 1.0,
    )


def equations_of(run: RecordedRun) -> list[Equation]:
    """Return an equation for each step of a run that has enough samples of CPU.

    Raises InvalidRequestError for a run without the samples of a counter.
    """
    for name in ("controller_cpu", *_COUNTERS):
        if not len(run.trace.rows(name)):
            raise InvalidRequestError(
                f"{run.directory}: the trace has no samples of {name}, which the costs need"
            )
    return [each for span in run.trace.spans if (each := _equation(run, span)) is not None]


def _equation(run: RecordedRun, span: Span) -> Equation | None:
    """Return CPU and work a second between the first and the last sample of a step."""
    trace = run.trace
    rows = _within(trace, trace.rows("controller_cpu"), span)
    if len(rows) < FEWEST_SAMPLES:
        return None
    # A sample of CPU is the mean since the sample before it, so that the first one belongs to the
    # time before the first sample of the counters.
    cpu = trace.value[rows[1:]]
    work = []
    for name in _COUNTERS:
        counted = _within(trace, trace.rows(name), span)
        if len(counted) < FEWEST_SAMPLES:
            return None
        seconds = float(trace.at_ms[counted[-1]] - trace.at_ms[counted[0]]) / 1000
        if seconds <= 0:
            return None
        grown = np.maximum(np.diff(trace.value[counted]), 0.0).sum()
        work.append(float(grown) / seconds)
    return Equation(run.info.run, span.step, Rates(*work), float(cpu.mean()), len(cpu))


def _within(trace: TraceColumns, rows: NDArray[np.intp], span: Span) -> NDArray[np.intp]:
    at = trace.at_ms[rows]
    return rows[(at >= span.begin_ms) & (at <= span.end_ms)]


def _reject_inseparable(design: _Floats) -> None:
    """Raise InvalidRequestError where a term cannot be told from the others."""
    names = [term.value for term in list(Term)[1:]]
    columns = design[:, 1:] - design[:, 1:].mean(axis=0)
    spread = np.sqrt((columns**2).sum(axis=0))
    constant = [
        name
        for name, each, mean in zip(names, spread, design[:, 1:].mean(axis=0), strict=True)
        if each <= 1e-9 * max(abs(mean), 1e-30)
    ]
    if constant:
        raise InvalidRequestError(
            f"{constant[0]} a second are equal in all steps: add runs of other sizes or loads"
        )
    scaled = columns / spread
    alike = scaled.T @ scaled
    inflation = np.diag(np.linalg.pinv(alike, hermitian=True))
    rank = int(np.linalg.matrix_rank(alike, tol=1e-9, hermitian=True))
    if rank == len(names) and inflation.max() <= MOST_INFLATION:
        return
    np.fill_diagonal(alike, 0.0)
    first, second = divmod(int(np.abs(alike).argmax()), len(names))
    raise InvalidRequestError(
        f"{names[first]} and {names[second]} vary together in these runs (correlation "
        f"{alike[first, second]:.3f}), so that their costs cannot be told apart: add runs with "
        "other numbers of brokers at the same load, or other loads at the same number"
    )


def _fit(design: _Floats, y: _Floats, weights: _Floats) -> tuple[_Floats, _Floats, _Floats]:
    """Return coefficients, their covariance and the residuals of weighted least squares.

    Columns are scaled: a byte costs a thousand million times less than the base.
    """
    scale = np.abs(design).max(axis=0)
    scale[scale == 0] = 1.0
    scaled = design / scale * weights[:, None]
    solution = np.linalg.lstsq(scaled, y * weights, rcond=None)[0]
    rest = y * weights - scaled @ solution
    freedom = max(len(y) - design.shape[1], 1)
    inverse = np.linalg.pinv(scaled.T @ scaled, hermitian=True)
    covariance = inverse * float(rest @ rest) / freedom / np.outer(scale, scale)
    values = solution / scale
    return values, covariance, y - design @ values


def _memory(runs: Sequence[RecordedRun]) -> tuple[float, float, float] | None:
    """Return bytes of one controller: base, a broker, a partition; None if sizes do not vary.

    From the largest memory of each run, divided by its controllers.
    """
    points = []
    for run in runs:
        info, memory = run.info, run.trace.values("controller_rss")
        if len(memory):
            peak = float(memory.max()) / info.controllers
            points.append((1.0, float(info.brokers), float(info.partitions), peak))
    if len(points) < 4:
        return None
    table = np.array(points)
    design, peaks = table[:, :3], table[:, 3]
    scaled = design / design.max(axis=0)
    if np.linalg.matrix_rank(scaled, tol=1e-3) < 3:
        return None
    base, broker, partition = _nonnegative(design, peaks)
    return base, broker, partition


def _nonnegative(design: _Floats, y: _Floats) -> list[float]:
    """Return least squares where a negative coefficient is 0 and the rest are fitted again."""
    kept = list(range(design.shape[1]))
    while True:
        values, _, _ = _fit(design[:, kept], y, np.ones(len(y)))
        if (values >= 0).all() or len(kept) == 1:
            break
        del kept[int(values.argmin())]
    found = [0.0] * design.shape[1]
    for place, value in zip(kept, values, strict=True):
        found[place] = max(float(value), 0.0)
    return found


def parse(data: bytes, source: str) -> Coefficients:
    """Return the costs in a file that `Calibration.as_dict` describes.

    Raises FleetRunError with the file's name and what was expected.
    """
    try:
        given = json.loads(data)
        if given["format"] != FORMAT:
            raise FleetRunError(f"{source}: format {given['format']!r}; expected {FORMAT}")
        costs = given["coefficients"]
        values = tuple(_number(costs[term.value]["value"]) for term in Term)
        covariance = tuple(tuple(_number(each) for each in row) for row in given["covariance"])
        memory = given["memoryBytes"]
        if memory is not None:
            base, broker, partition = (_number(memory[name]) for name in _MEMORY)
            memory = (base, broker, partition)
        quorum = given["quorum"]
        if [len(row) for row in covariance] != [len(Term)] * len(Term):
            raise ValueError("the covariance is not square")
        return Coefficients(str(quorum), values, covariance, memory)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FleetRunError(
            f"{source}: not a file of kraft lab fleet-calibrate: {type(error).__name__}: {error}"
        ) from None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
