"""Average and maximum of recent durations, and rates of totals, for the metrics.

Kafka's ``Avg``, ``Max`` and ``Rate`` look at two samples of 30 s; here `RecentTimes` looks at the
last 30 to 60 s, and `RecentRate` at the time since a reading at least 30 s ago. Pure: the caller
passes the time. Called by ``driver``, and by ``observation`` when it is asked for the metrics.
"""

from __future__ import annotations

import math
from collections import deque

WINDOW_MS = 30_000.0


class _Window:
    __slots__ = ("count", "total_ms", "worst_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.worst_ms = 0.0


class RecentTimes:
    """Durations of the last 30 to 60 s, in milliseconds."""

    __slots__ = ("_before", "_begin_ms", "_current")

    def __init__(self) -> None:
        self._before, self._current = _Window(), _Window()
        self._begin_ms = 0.0

    def note(self, taken_ms: float, now_ms: float) -> None:
        self._advance(now_ms)
        current = self._current
        current.count += 1
        current.total_ms += taken_ms
        if taken_ms > current.worst_ms:
            current.worst_ms = taken_ms

    def average_ms(self, now_ms: float) -> float:
        """Return the average; NaN without a duration, as in Kafka."""
        self._advance(now_ms)
        count = self._before.count + self._current.count
        return (self._before.total_ms + self._current.total_ms) / count if count else math.nan

    def maximum_ms(self, now_ms: float) -> float:
        """Return the longest duration; NaN without one, as in Kafka."""
        self._advance(now_ms)
        if not self._before.count + self._current.count:
            return math.nan
        return max(self._before.worst_ms, self._current.worst_ms)

    def _advance(self, now_ms: float) -> None:
        age_ms = now_ms - self._begin_ms
        if age_ms >= WINDOW_MS:
            self._before = self._current if age_ms < 2 * WINDOW_MS else _Window()
            self._current = _Window()
            self._begin_ms = now_ms


class RecentRate:
    """The growth of a total per second, between readings."""

    __slots__ = ("_readings",)

    def __init__(self, now_ms: float) -> None:
        #: Time and total; at most one reading a second is kept.
        self._readings: deque[tuple[float, float]] = deque([(now_ms, 0.0)])

    def read(self, total: float, now_ms: float) -> float:
        """Return the growth per second since a reading at least 30 s ago, or since the start."""
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= now_ms - WINDOW_MS:
            readings.popleft()
        since_ms, before = readings[0]
        if now_ms >= readings[-1][0] + 1000:
            readings.append((now_ms, total))
        return 1000 * (total - before) / (now_ms - since_ms) if now_ms > since_ms else 0.0
