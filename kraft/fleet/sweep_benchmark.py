"""The measures of a sweep in pytest-benchmark's format, for ``kraft bench ingest``.

An entry has one measure of one size: its values are those of the seeds, in seconds or, with the
field ``metric`` of `kraft.regression.results`, in the measure's own unit. So a history of sweeps
shows when memory or CPU grew, and at which size.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kraft.fleet.scaling import Point
from kraft.fleet.trace import benchmark_entry, benchmark_results
from kraft.fleet.traces import RunDescription

_SECONDS = {"s": 1.0, "ms": 1e-3}


def sweep_document(points: Iterable[Point], runs: Iterable[RunDescription]) -> dict[str, Any]:
    """Return the measures of finished runs as a document of pytest-benchmark.

    Its machine is that of the first run, its time that of the last one: a sweep with more runs is
    another result. Values of 0, which the format does not have, are left out.
    """
    ordered = sorted(runs, key=lambda run: run.started_at)
    usable = sorted(point for point in points if point.value > 0)
    return benchmark_results(
        [_entry(list(group)) for _, group in groupby(usable, key=_size)],
        machine=ordered[0].machine if ordered else {},
        started_at=ordered[-1].started_at.isoformat() if ordered else "",
        project="kraft-fleet-sweep",
        branch="main",
    )


def _size(point: Point) -> tuple[Any, ...]:
    """Return all that a measure of one size shares: everything but seed and value."""
    return point[:8]


def _entry(seeds: list[Point]) -> dict[str, Any]:
    first = seeds[0]
    scale = _SECONDS.get(first.unit)
    return benchmark_entry(
        f"{first.step}_{first.name}_{first.statistic}",
        suite="sweep",
        group=first.scenario,
        params={
            "brokers": first.brokers,
            "partitions": first.partitions,
            "quorum": first.quorum,
        },
        data=[point.value * (scale or 1.0) for point in seeds],
        extra_info={
            "seeds": [point.seed for point in seeds],
            **({"metric": {"unit": first.unit}} if scale is None else {}),
        },
    )
