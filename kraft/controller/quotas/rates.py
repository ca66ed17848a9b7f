"""The rate of a quantity over the last windows, as Kafka measures it for quotas.

Values are summed up in windows. A window ends with the first value after its length; the rate is
the sum of the windows that have a value within the last ``window_count`` lengths, divided by their
time. The time counts as at least ``window_count - 1`` whole windows, so that the rate does not jump
when a client begins; that of the replication counts as at least one window.

Sources: Kafka's ``Rate``, ``SimpleRate``, ``SampledStat``, ``WindowedSum``, ``QuotaUtils`` (4.3.1).
"""

from __future__ import annotations

import math
from typing import NamedTuple


class _WindowSum:
    """The sum of one window; times in milliseconds."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class MeasuredRate(NamedTuple):
    """A rate per second, and the milliseconds that it was measured over."""

    rate: float
    window_ms: float

    def throttle_ms(self, limit: float, highest_ms: float) -> int:
        """Return the delay after which the rate is at ``limit`` again, at most ``highest_ms``."""
        if self.rate <= limit:
            return 0
        if limit <= 0:
            return int(highest_ms)
        needed_ms = (self.rate - limit) / limit * self.window_ms
        # Kafka rounds a half up.
        return int(min(math.floor(needed_ms + 0.5), highest_ms))


class WindowedRate:
    """The rate of one quantity over ``window_count`` windows of ``window_ms``.

    ``least_windows`` is the time that counts from the first value on; None for Kafka's ``Rate``.
    """

    __slots__ = ("_current", "_least_windows", "_window_count", "_window_ms", "_windows")

    def __init__(
        self, window_count: int, window_ms: float, *, least_windows: int | None = None
    ) -> None:
        self._window_count = window_count
        self._least_windows = least_windows
        self._window_ms = window_ms
        self._windows: list[_WindowSum] = []
        self._current = 0

    def record(self, value: float, now_ms: float) -> None:
        """Add a value; a negative value cancels an earlier one."""
        windows = self._windows
        if not windows:
            windows.append(_WindowSum(now_ms))
        window = windows[self._current]
        if now_ms - window.start_ms >= self._window_ms:
            # One more than the count: the oldest window overlaps the measured time.
            self._current = (self._current + 1) % (self._window_count + 1)
            if self._current >= len(windows):
                windows.append(_WindowSum(now_ms))
            else:
                windows[self._current].reset(now_ms)
            window = windows[self._current]
        window.total += value
        window.last_ms = now_ms

    def measure(self, now_ms: float) -> MeasuredRate:
        """Return the rate at this time."""
        windows, length_ms = self._windows, self._window_ms
        if not windows:
            windows.append(_WindowSum(now_ms))
        for window in windows:
            if now_ms - window.last_ms >= self._window_count * length_ms:
                window.reset(now_ms)
        elapsed_ms = now_ms - min(window.start_ms for window in windows)
        if self._least_windows is not None:
            elapsed_ms = max(elapsed_ms, self._least_windows * length_ms)
        else:
            missing = self._window_count - 1 - int(elapsed_ms // length_ms)
            if missing > 0:
                elapsed_ms += missing * length_ms
        elapsed_ms = max(elapsed_ms, 1.0)
        total = sum(window.total for window in windows)
        return MeasuredRate(total / (elapsed_ms / 1000), elapsed_ms)
