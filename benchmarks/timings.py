"""Seconds of many single acts, summed up the way the report wants them."""

from __future__ import annotations

from statistics import median
from typing import Any


def summary(seconds: list[float]) -> dict[str, Any]:
    """Every one of them, their median, 99th percentile, best and worst."""
    ordered = sorted(seconds)
    return {
        "values_s": seconds,
        "median_s": median(ordered),
        "p99_s": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "best_s": ordered[0],
        "worst_s": ordered[-1],
    }
