"""Quantiles of the durations that a histogram recorded recently.

`RecentQuantiles` keeps earlier counts of a histogram, and uses the durations recorded since the
oldest of them. If the metrics are read at least once a minute, these are the durations of the last
five to six minutes. Kafka's histograms give most weight to the last five minutes. Called by
`catalog` when the metrics are read.
"""

from __future__ import annotations

from collections import deque

from kraft.controller.runtime.event_queue import DurationHistogram

#: The quantiles of Kafka's histograms, as the JMX exporter writes them.
QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
_KEPT_MS = 300_000.0
_BETWEEN_MS = 60_000.0


class RecentQuantiles:
    """The quantiles of one histogram."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        #: (time, counts by power of two at that time)
        self._readings: deque[tuple[float, list[int]]] = deque()

    def read(self, histogram: DurationHistogram, now_ms: float) -> dict[str, float]:
        """Return the quantiles in milliseconds, each rounded up to at most its double; all 0
        without durations.
        """
        readings, counts = self._readings, histogram.by_power_of_two_us
        while len(readings) > 1 and readings[1][0] <= now_ms - _KEPT_MS:
            readings.popleft()
        before = readings[0][1] if readings and readings[0][0] <= now_ms - _KEPT_MS else None
        recent = DurationHistogram(worst_ms=histogram.worst_ms)
        recent.by_power_of_two_us = [
            count - (before[power] if before is not None else 0)
            for power, count in enumerate(counts)
        ]
        recent.count = sum(recent.by_power_of_two_us)
        if not readings or readings[-1][0] <= now_ms - _BETWEEN_MS:
            readings.append((now_ms, list(counts)))
        return {text: recent.percentile_ms(100 * part) for text, part in QUANTILES.items()}
