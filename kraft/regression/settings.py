"""Settings of an analysis and their defaults.

The defaults are stricter than Otava's: with its p value of 0.001, a thousand stable series produce
dozens of false alarms (table in docs/regressions.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.errors import InvalidConfigError
from kraft.regression.points import STATISTICS


@dataclass(frozen=True)
class AnalysisSettings:
    """How a history is analysed.

    Raises:
        InvalidConfigError: a setting is out of its range; the message names it.
    """

    statistic: str = "median"  # a column of `points.STATISTICS`
    window: int = 50  # runs per window of E-divisive
    max_p_value: float = 1e-5  # of Student's t test on both sides of a change point
    min_magnitude: float = 0.0  # drop change points below this relative change: 0.05 is 5 %
    min_runs: int = 8  # a shorter series is reported as "too little data"
    min_level_runs: int = 2  # shortest level; a single outlier is not a level
    min_temporary_runs: int = 5  # shortest temporary level; 0 disables the search for them
    autocorrelation: bool = True  # discount runs that correlate with the run before
    find_drifts: bool = True  # distinguish slow drifts from steps
    find_variance_changes: bool = True  # search for changes of variance
    clip_outliers: float = 0.0  # limit in robust standard deviations, e.g. 4; 0 disables
    false_discovery_rate: float = 0.05  # over all tests of an analysis (Benjamini and Hochberg)
    confidence: float = 0.95  # level of a ratio's interval
    bootstrap_samples: int = 2000
    seed: int = 0  # of the bootstrap: equal data produce equal intervals

    def __post_init__(self) -> None:
        for name, holds, range_ in (
            ("statistic", self.statistic in STATISTICS, f"one of {', '.join(STATISTICS)}"),
            ("window", self.window >= 2, "2 or more"),
            ("max_p_value", 0 < self.max_p_value <= 1, "above 0, 1 at most"),
            ("min_magnitude", self.min_magnitude >= 0, "0 or more"),
            ("min_runs", self.min_runs >= 2, "2 or more"),
            ("min_level_runs", self.min_level_runs >= 1, "1 or more"),
            (
                "min_temporary_runs",
                self.min_temporary_runs == 0 or self.min_temporary_runs >= 2,
                "0, or 2 or more",
            ),
            ("clip_outliers", self.clip_outliers >= 0, "0 or more"),
            ("false_discovery_rate", 0 < self.false_discovery_rate <= 1, "above 0, 1 at most"),
            ("confidence", 0 < self.confidence < 1, "between 0 and 1"),
            ("bootstrap_samples", self.bootstrap_samples >= 100, "100 or more"),
        ):
            if not holds:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}, must be {range_}")

    @classmethod
    def of_otava(
        cls, window: int = 50, max_p_value: float = 0.001, min_magnitude: float = 0.0
    ) -> AnalysisSettings:
        """Return the settings under which the results equal those of the ``otava`` program."""
        return cls(
            window=window,
            max_p_value=max_p_value,
            min_magnitude=min_magnitude,
            min_runs=2,
            min_level_runs=1,
            min_temporary_runs=0,
            autocorrelation=False,
            find_drifts=False,
            find_variance_changes=False,
            false_discovery_rate=1.0,
        )
