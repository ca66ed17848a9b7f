"""The steps of the script, their measures, and the results of runs. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kraft.errors import KraftError


class ScriptStep(StrEnum):
    """The steps of the script, in their order."""

    CREATE = "create"
    SHUTDOWN = "shutdown"
    CRASH = "crash"
    FAILOVER = "failover"
    RESTART = "restart"


#: (step, measure) -> its meaning. All are in seconds.
MEASURES: Mapping[tuple[ScriptStep, str], str] = {
    (
        ScriptStep.CREATE,
        "known",
    ): "from the first request until the last broker knows every partition",
    (ScriptStep.SHUTDOWN, "answered"): "from a broker's request to stop until it may stop",
    (ScriptStep.SHUTDOWN, "known"): "from that request until every broker knows the new leaders",
    (ScriptStep.CRASH, "detected"): "from kill -9 of a broker until its session has timed out",
    (ScriptStep.CRASH, "known"): "from there until every broker knows the new leaders",
    (
        ScriptStep.FAILOVER,
        "detected",
    ): "from kill -9 of the active controller until its session has "
    "timed out (ZooKeeper), or another one leads (KRaft)",
    (ScriptStep.FAILOVER, "first_write"): "from kill -9 until the new controller has accepted a "
    "write",
    (ScriptStep.FAILOVER, "known"): "from the detection until the last broker knows that write",
    (ScriptStep.FAILOVER, "total"): "from kill -9 until the last broker knows the first write",
    (ScriptStep.RESTART, "known"): "from the start of everything until the last broker knows every "
    "partition's leader",
}


def failover_measures(
    killed_s: float, detected_s: float | None, accepted_s: float, known_s: float
) -> dict[str, float]:
    """Return the measures of a failover from the times (monotonic clock) of what was seen.

    Observers see things late: a write that a broker knows was accepted, and who accepts a write
    leads, whenever somebody asked who leads (None: nobody had an answer).
    """
    accepted_s = min(accepted_s, known_s)
    detected_s = accepted_s if detected_s is None else min(detected_s, accepted_s)
    return {
        "detected": detected_s - killed_s,
        "first_write": accepted_s - killed_s,
        "known": known_s - detected_s,
        "total": known_s - killed_s,
    }


class RunTimeoutError(KraftError):
    """A run did not end within its time limit."""


class Deadline:
    """The end of a run's time limit."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end_s = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds that are left. Raises RunTimeoutError if there are none."""
        left = self._end_s - time.monotonic()
        if left <= 0:
            raise RunTimeoutError(f"the time limit of {self.seconds:g} s is over")
        return left


class Outcome(StrEnum):
    """How a run ended."""

    MEASURED = "measured"
    #: The time limit was over.
    TIMED_OUT = "timed out"
    FAILED = "failed"
    #: Not run: above the mode's largest size, or a smaller one timed out.
    SKIPPED = "skipped"


@dataclass(slots=True)
class RunResult:
    """One mode at one number of partitions; ``seconds`` has the measures of completed steps."""

    mode: str
    partitions: int
    outcome: Outcome = Outcome.MEASURED
    #: Why it has no further measures.
    reason: str = ""
    seconds: dict[tuple[ScriptStep, str], float] = field(default_factory=dict)
    #: CPU seconds of the controllers (and of ZooKeeper) in each completed step, of those that ran
    #: through the step.
    cpu_s: dict[ScriptStep, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the run as JSON."""
        return {
            "mode": self.mode,
            "partitions": self.partitions,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "seconds": [
                {"step": step.value, "measure": name, "value": round(value, 6)}
                for (step, name), value in self.seconds.items()
            ],
            "controllerCpuSeconds": {
                step.value: round(value, 3) for step, value in self.cpu_s.items()
            },
        }
