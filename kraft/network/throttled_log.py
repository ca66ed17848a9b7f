"""Log warnings that a peer can cause, at most one line of each kind in an interval.

A peer that sends a thousand malformed frames a second must not fill the disk with log lines. The
first warning of a kind is logged at once. Those of the next second are counted, and the count is
logged with the last of them at the end of the second. The interval is a minute for warnings that
repeat as long as another node is down.

Called by `Listener`, `Peer` and the broker's `LeaderLinks`; the listener's sweep calls `flush`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL_S = 1.0
#: The interval of warnings that repeat as long as another node is down.
DEAD_NODE_INTERVAL_S = 60.0


@dataclass(slots=True)
class _Kind:
    """One kind of warnings: until when it is quiet, how many it held back, and the last one."""

    quiet_until: float
    held_back: int = 0
    last: str = ""


class ThrottledLog:
    """Warnings by kind; ``clock`` returns seconds that never go back."""

    def __init__(
        self, logger: logging.Logger, clock: Callable[[], float], interval_s: float = INTERVAL_S
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._interval_s = interval_s
        self._kinds: dict[str, _Kind] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log the warning, or count it if its kind was logged within the last interval.

        ``kind`` must be one of a few constants, never text from a peer.
        """
        now = self._clock()
        state = self._kinds.get(kind)
        if state is None or (now >= state.quiet_until and not state.held_back):
            self._kinds[kind] = _Kind(now + self._interval_s)
            self._logger.warning("%s", message)
            return
        state.held_back += 1
        state.last = message
        if now >= state.quiet_until:
            self._log_held_back(kind, state, now)

    def flush(self, *, is_over: bool = False) -> None:
        """Log the counts whose interval is over, or with ``is_over`` all counts."""
        now = self._clock()
        for kind, state in self._kinds.items():
            if state.held_back and (is_over or now >= state.quiet_until):
                self._log_held_back(kind, state, now)

    def _log_held_back(self, kind: str, state: _Kind, now: float) -> None:
        count, message = state.held_back, state.last
        state.held_back, state.quiet_until = 0, now + self._interval_s
        self._logger.warning("%s: %d more, the last: %s", kind, count, message)
