"""What is asked of an analysis, and what is taken where nothing is asked.

Owns the defaults, which are stricter than Otava's own: its p value of 0.001 gives dozens of false
alarms in a thousand stable series (docs/regressions.md has the table).
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.errors import InvalidConfigError
from kraft.regression.points import STATISTICS


@dataclass(frozen=True)
class Settings:
    """How a history is analysed.

    Raises:
        InvalidConfigError: a setting is out of its range; the message names it.
    """

    statistic: str = "median"  # a column of `points.STATISTICS`
    window: int = 50  # points that E-divisive looks at together
    max_p_value: float = 1e-5  # of Student's t test on both sides of a change point
    min_magnitude: float = 0.0  # relative change below which a change point is dropped: 0.05 is 5 %
    min_runs: int = 8  # fewer say nothing: the series is told as having too little data
    min_level_runs: int = 2  # a single odd run is no new level, unless nothing varies but it
    min_temporary_runs: int = (
        5  # of a level that begins and ends inside a window; 0: Otava's search
    )
    autocorrelation: bool = True  # runs that resemble the run before count for less
    find_drifts: bool = True  # slow drifts are told from steps
    find_variance_changes: bool = True  # changes of how much runs scatter are looked for
    clip_outliers: float = 0.0  # limit in robust standard deviations (4 is good); 0 does not clip
    false_discovery_rate: float = 0.05  # over all tests of an analysis (Benjamini and Hochberg)
    confidence: float = 0.95  # of the interval of a ratio
    bootstrap_samples: int = 2000
    seed: int = 0  # of the bootstrap: the same data gives the same interval

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
                raise InvalidConfigError(f"{name} is {getattr(self, name)}, has to be {range_}")

    @classmethod
    def of_otava(
        cls, window: int = 50, max_p_value: float = 0.001, min_magnitude: float = 0.0
    ) -> Settings:
        """What the ``otava`` program does, with its defaults: nothing is doubted or corrected."""
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
