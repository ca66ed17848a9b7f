"""What the fleet itself adds to what it measures: its delay, with an error bar, and its copies.

A light broker sees a change later than a broker on a machine of its own for two reasons:

delay     the event loop of its process is busy with other brokers when the response arrives. A
          timer that is due every 50 ms measures how late the loop is; its mean is the expected
          delay of a response, with the standard error of the mean
applying  the process decodes and applies each piece of the log once, before its brokers have it

`own_shares` compares both with the measures of each step. The handling of each broker's response
(the fan-out) is not part of them: `StepUse.fan_out_s` has its CPU time. Pure: values in, values
out. ``worker`` counts, ``run`` collects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

#: Measures of a single change: it waits for the loop once, and for one piece to be applied.
SINGLE_CHANGES = ("applied", "fenced_after")
#: Measures that end with the last of many changes: at most all of the step's pieces delay them.
MANY_CHANGES = ("all_unfenced", "in_sync_everywhere", "decided", "applied_everywhere")
#: The share of a measure from which on the fleet's own part has to be subtracted.
LARGE_SHARE = 0.2


@dataclass(slots=True)
class Tally:
    """Count, sum and sum of squares of values in ms."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.squares += value * value

    def since(self, before: Tally) -> Tally:
        """Return the values that were added after ``before``, an earlier state of this one."""
        return Tally(
            self.count - before.count, self.total - before.total, self.squares - before.squares
        )

    def joined(self, other: Tally) -> Tally:
        return Tally(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    def as_list(self) -> list[float]:
        """Return the three numbers, for JSON."""
        return [self.count, self.total, self.squares]

    @property
    def mean(self) -> float:
        """The mean; 0 without values."""
        return self.total / self.count if self.count else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 with fewer than two values."""
        if self.count < 2:
            return 0.0
        variance = (self.squares - self.total * self.mean) / (self.count - 1)
        return math.sqrt(max(variance, 0.0) / self.count)


@dataclass(slots=True)
class ProcessCounts:
    """What one process of the fleet has used so far: CPU, received bytes, delay, applying."""

    cpu_s: float = 0.0
    received_bytes: int = 0
    late: Tally = field(default_factory=Tally)
    applied: Tally = field(default_factory=Tally)

    def since(self, before: ProcessCounts) -> ProcessCounts:
        return ProcessCounts(
            self.cpu_s - before.cpu_s,
            self.received_bytes - before.received_bytes,
            self.late.since(before.late),
            self.applied.since(before.applied),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as a line of a process, for `counts_of`."""
        return {
            "cpu_s": self.cpu_s,
            "received_bytes": self.received_bytes,
            "late": self.late.as_list(),
            "applied": self.applied.as_list(),
        }


def counts_of(line: Mapping[str, Any]) -> ProcessCounts:
    """Return the counts in a line of a process."""
    return ProcessCounts(
        line["cpu_s"], line["received_bytes"], Tally(*line["late"]), Tally(*line["applied"])
    )


@dataclass(frozen=True, slots=True)
class StepUse:
    """What all processes used in one step.

    ``late`` and ``applied`` are in ms; ``applying_ms`` is the sum of the busiest process.
    """

    step: str
    cpu_s: float
    received_bytes: int
    late: Tally
    applied: Tally
    applying_ms: float

    @property
    def fan_out_s(self) -> float:
        """CPU seconds beside applying: responses of each broker, heartbeats, simulated replicas."""
        return max(self.cpu_s - self.applied.total / 1000, 0.0)

    @property
    def delay_ms(self) -> float:
        """The expected delay of a single change by the fleet itself."""
        return self.late.mean + self.applied.mean

    @property
    def error_ms(self) -> float:
        """The standard error of `delay_ms`."""
        return math.hypot(self.late.error, self.applied.error)

    def as_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "cpuSeconds": self.cpu_s,
            "fanOutCpuSeconds": self.fan_out_s,
            "applyingMs": self.applying_ms,
            "delayMs": self.delay_ms,
            "delayErrorMs": self.error_ms,
            "receivedBytes": self.received_bytes,
        }


def step_use(
    step: str, before: Mapping[int, ProcessCounts], after: Mapping[int, ProcessCounts]
) -> StepUse:
    """Return the use of a step from the counts of each process before and after it."""
    each = [counts.since(before.get(number, ProcessCounts())) for number, counts in after.items()]
    late, applied = Tally(), Tally()
    for counts in each:
        late, applied = late.joined(counts.late), applied.joined(counts.applied)
    return StepUse(
        step,
        sum(counts.cpu_s for counts in each),
        sum(counts.received_bytes for counts in each),
        late,
        applied,
        max((counts.applied.total for counts in each), default=0.0),
    )


class OwnShare(NamedTuple):
    """The fleet's own part of the mean of a measure, in ms; ``error_ms`` is a standard error.

    Of a measure of many changes ``own_ms`` is an upper bound: as if nothing was applied while the
    controllers still worked.
    """

    step: str
    name: str
    mean_ms: float
    own_ms: float
    error_ms: float
    is_bound: bool

    @property
    def share(self) -> float:
        return self.own_ms / self.mean_ms if self.mean_ms > 0 else 0.0

    @property
    def rest_ms(self) -> float:
        """The measure without the fleet's own part."""
        return max(self.mean_ms - self.own_ms, 0.0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "name": self.name,
            "meanMs": self.mean_ms,
            "ownMs": self.own_ms,
            "ownErrorMs": self.error_ms,
            "isUpperBound": self.is_bound,
            "share": self.share,
            "withoutOwnMs": self.rest_ms,
        }


def own_shares(
    values: Mapping[tuple[str, str], Sequence[float]], uses: Iterable[StepUse]
) -> list[OwnShare]:
    """Return the fleet's own part of each measure of each step. ``values`` are in ms."""
    found = []
    for use in uses:
        for name in (*SINGLE_CHANGES, *MANY_CHANGES):
            given = values.get((use.step, name))
            if not given:
                continue
            is_bound = name in MANY_CHANGES
            own_ms = use.late.mean + use.applying_ms if is_bound else use.delay_ms
            error_ms = use.late.error if is_bound else use.error_ms
            mean_ms = fmean(given)
            found.append(OwnShare(use.step, name, mean_ms, own_ms, error_ms, is_bound))
    return found


class CopyFloor(NamedTuple):
    """A step beside the time that copying alone takes of what its brokers received.

    ``seconds`` is the step's length; after a loss of brokers without the wait for the first fencing
    (their session timeout).
    """

    step: str
    received_bytes: int
    floor_s: float
    seconds: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.floor_s if self.floor_s > 0 else math.inf

    def as_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "receivedBytes": self.received_bytes,
            "floorSeconds": self.floor_s,
            "seconds": self.seconds,
            "ratio": self.ratio if self.floor_s > 0 else None,
        }


def copy_floors(
    values: Mapping[tuple[str, str], Sequence[float]],
    uses: Iterable[StepUse],
    bytes_per_s: float,
) -> list[CopyFloor]:
    """Return each step beside its floor. ``bytes_per_s`` is what `copy_rate` measured."""
    found = []
    for use in uses:
        everywhere = values.get((use.step, "applied_everywhere"))
        started = values.get((use.step, "in_sync_everywhere")) or values.get(
            (use.step, "all_unfenced")
        )
        fenced = values.get((use.step, "fenced_after"))
        if everywhere and fenced:
            seconds = (max(everywhere) - min(fenced)) / 1000
        elif started:
            seconds = max(started) / 1000
        else:
            seconds = sum(values.get((use.step, "step_ended"), ()))
        floor_s = use.received_bytes / bytes_per_s
        found.append(CopyFloor(use.step, use.received_bytes, floor_s, seconds))
    return found
