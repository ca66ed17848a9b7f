"""The scaling laws of many run directories: read, measured, fitted.

`scaling_of` does it in this process, ``kraft.spark.fleet_scaling`` on Spark; both return a
`ScalingReport`, whose laws are the same. ``scaling_page`` draws it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kraft.fleet.measures import measures_of
from kraft.fleet.scaling import Point, PowerLaw, Refusal, laws
from kraft.fleet.traces import RecordedRun, TraceProblem, read_or_report

#: Measures that say nothing about time or memory: the scenario decides them.
DECIDED_BY_SCENARIO = frozenset(
    {
        "step",
        "broker_registered",
        "broker_caught_up",
        "broker_unfenced",
        "broker_fenced",
        "broker_stopped",
        "controller_elected",
    }
)


@dataclass(frozen=True)
class ScalingReport:
    """Laws and refusals of ``runs`` runs, and the lines that were not read.

    ``interrupted`` names the runs and the steps without an end, whose measures have no law.
    """

    runs: int
    laws: tuple[PowerLaw, ...]
    refusals: tuple[Refusal, ...]
    problems: tuple[TraceProblem, ...] = ()
    interrupted: tuple[str, ...] = ()

    def only(self, *, measure: str | None = None, step: str | None = None) -> ScalingReport:
        """Return the report of the measures and steps that match these globs; None matches all."""

        def matches(law: PowerLaw | Refusal) -> bool:
            return fnmatchcase(law.name, measure or "*") and (
                step is None or law.step == step or fnmatchcase(law.step, step)
            )

        return replace(
            self,
            laws=tuple(filter(matches, self.laws)),
            refusals=tuple(filter(matches, self.refusals)),
        )

    def refusal_counts(self) -> list[tuple[str, int]]:
        """Return each reason of a refusal with the number of its laws, the most frequent first."""
        return Counter(each.reason for each in self.refusals).most_common()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``kraft lab fleet-scaling --json``."""
        return {
            "runs": self.runs,
            "laws": [law.as_dict() for law in self.laws],
            "refused": [refusal.as_dict() for refusal in self.refusals],
            "problems": [str(problem) for problem in self.problems],
            "interrupted": list(self.interrupted),
        }


def points_of(run: RecordedRun) -> list[Point]:
    """Return a point for each measure of a run that may grow with a size and is complete."""
    info = run.info
    return [
        Point(
            info.quorum, info.scenario, each.step, each.name, each.statistic, each.unit,
            info.brokers, info.partitions, info.seed, each.value,
        )
        for each in measures_of(run.trace)
        if each.is_complete and each.name not in DECIDED_BY_SCENARIO
    ]  # fmt: skip


def scaling_of(
    directories: Sequence[Path],
    *,
    skip_bad_lines: bool = False,
    advance: Callable[[float], None] = lambda done: None,
) -> ScalingReport:
    """Read run directories and return their laws. Raises FleetRunError as `traces.read_run`."""
    points: list[Point] = []
    problems: list[TraceProblem] = []
    interrupted: list[str] = []
    runs = 0
    for number, directory in enumerate(directories, 1):
        run, found_problems = read_or_report(directory, skip_bad_lines=skip_bad_lines)
        problems += found_problems
        if run is not None:
            points += points_of(run)
            interrupted += run.interruptions()
            runs += 1
        advance(number)
    found, refused = laws(points)
    return ScalingReport(
        runs, tuple(found), tuple(refused), tuple(problems), tuple(sorted(interrupted))
    )
