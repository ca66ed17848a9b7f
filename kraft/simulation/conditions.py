"""Fault conditions of a simulated cluster, and which faults a replay leaves out.

`FaultConditions` says how network and disks behave now; each phase of faults sets it, and the
cluster draws from it. `Suppressed` names the faults that a replay leaves out, so that a failing run
can be minimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Factor for chunks of snapshots, which are rare beside batches.
SNAPSHOT_DAMAGE = 15


@dataclass(slots=True)
class FaultConditions:
    """Latencies and the chances of faults at present; each chance applies to one message."""

    latency_ms: float = 0.5
    spread_ms: float = 1.0
    #: The chance of any message fault; the next three are the cumulative shares of it.
    trouble: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.0
    sync_ms: float = 0.5
    append_interval_ms: float = 50.0
    #: The chance that fetched records arrive damaged or cut short; for a chunk of a snapshot it is
    #: `SNAPSHOT_DAMAGE` times as high.
    damage: float = 0.0


#: The faults of the first phase have the numbers from here on, those of the second from twice it.
NUMBERS_PER_PHASE = 1000


class Suppressed(NamedTuple):
    """The faults to leave out: by name, by number, or all whose numbers are not ``kept``."""

    names: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()
    kept: frozenset[int] | None = None
    #: Whether to leave out the waiting time before a kept fault as well.
    is_hurried: bool = False

    def has(self, number: int, name: str) -> bool:
        return (
            name in self.names
            or number in self.numbers
            or (self.kept is not None and number not in self.kept)
        )

    def has_next(self, number: int) -> bool:
        """Return whether the phase has a later kept fault that comes without waiting."""
        if not self.is_hurried or self.kept is None:
            return False
        end = number - number % NUMBERS_PER_PHASE + NUMBERS_PER_PHASE
        return any(number < other < end for other in self.kept)


NOTHING = Suppressed()
