"""What is asked of an analysis, and what is taken where nothing is asked.

Owns the defaults, which are stricter than Otava's own: its p value of 0.001 gives dozens of false
alarms in a thousand stable series (docs/regressions.md has the table).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How a history is analysed."""

    statistic: str = "median"  # a column of `points.STATISTICS`
    window: int = 50  # points that E-divisive looks at together
    max_p_value: float = 1e-5  # of Student's t test on both sides of a change point
    min_magnitude: float = 0.0  # relative change below which a change point is dropped: 0.05 is 5 %
    min_runs: int = 8  # fewer say nothing: the series is told as having too little data
    false_discovery_rate: float = 0.05  # over all tests of an analysis (Benjamini and Hochberg)
    confidence: float = 0.95  # of the interval of a ratio
    bootstrap_samples: int = 2000
    seed: int = 0  # of the bootstrap: the same data gives the same interval
