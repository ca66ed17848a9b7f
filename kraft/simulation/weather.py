"""What troubles a simulated cluster: how network and disks are, and which faults are left out.

Owns `Weather`, which the faults of a phase change and the cluster draws by, and `Suppressed`, by
which a history is run again without some of its faults, so that it can be made small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Snapshots are rare beside batches.
SNAPSHOT_DAMAGE = 15


@dataclass(slots=True)
class Weather:
    """How network and disks are at the moment; chances are of each message."""

    latency_ms: float = 0.5
    spread_ms: float = 1.0
    #: The chance that anything at all befalls a message; the next three divide it.
    trouble: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.0
    sync_ms: float = 0.5
    append_interval_ms: float = 50.0
    #: The chance that fetched records arrive damaged, or cut short; of a chunk of a snapshot it is
    #: `SNAPSHOT_DAMAGE` times that.
    damage: float = 0.0


#: The faults of the first trouble have the numbers from here on, those of the second from twice it.
NUMBERS_OF_A_PHASE = 1000


class Suppressed(NamedTuple):
    """Faults that do not happen: by name, by number, or all whose numbers are not kept."""

    names: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()
    kept: frozenset[int] | None = None
    #: The time between a fault that is not kept and one of its phase that is goes, too.
    is_hurried: bool = False

    def has(self, number: int, name: str) -> bool:
        return (
            name in self.names
            or number in self.numbers
            or (self.kept is not None and number not in self.kept)
        )

    def has_next(self, number: int) -> bool:
        """Whether the next fault of the phase that is kept comes at once."""
        if not self.is_hurried or self.kept is None:
            return False
        end = number - number % NUMBERS_OF_A_PHASE + NUMBERS_OF_A_PHASE
        return any(number < other < end for other in self.kept)


NOTHING = Suppressed()
