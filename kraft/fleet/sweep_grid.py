"""The runs of a sweep of the fleet: a grid of sizes, seeds and quorums under one scenario.

`grid` returns the runs, `SweepSettings` has what they share and the command of each. Pure, but for
`check_sweep`, which looks at this machine. ``swept_run`` carries out one run, ``kraft.spark`` many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraft.errors import InvalidArgumentError, InvalidConfigError
from kraft.fleet.fleet import FleetSettings
from kraft.fleet.launch import FleetRequest, check_machine, check_request
from kraft.fleet.limits import default_processes, heap_bytes
from kraft.fleet.scenario import FleetScenario, scenario_document
from kraft.fleet.texts import parse_numbers
from kraft.version import VERSION

#: The controllers that a run of a sweep may start.
QUORUMS = ("kraft", "kafka")
MOST_PARTITIONS = 20_000_000
MOST_BROKERS = 100_000
MOST_SEED = (1 << 31) - 1


@dataclass(frozen=True, order=True)
class SweptRun:
    """One run of a sweep: a size, a seed and a kind of quorum."""

    seed: int
    partitions: int
    brokers: int
    quorum: str

    @property
    def name(self) -> str:
        """The name of its directory, which no other run of a sweep has."""
        return f"{self.quorum}-b{self.brokers}-p{self.partitions}-s{self.seed}"

    @property
    def title(self) -> str:
        """The run in words."""
        return (
            f"{self.quorum}, {self.brokers:,} brokers, {self.partitions:,} partitions, "
            f"seed {self.seed}"
        )


@dataclass(frozen=True)
class SweepSettings:
    """What all runs of a sweep share; the meanings are those of ``kraft lab fleet``."""

    scenario: FleetScenario
    racks: int = 3
    regions: int = 1
    controllers: int = 3
    heap: str = "2g"
    kafka_home: Path | None = None
    quorum_settings: Mapping[str, str] = field(default_factory=dict)
    #: A run that takes longer is ended, and counts as failed.
    time_limit_s: float = 1800.0

    def request(self, run: SweptRun, out: Path | None = None) -> FleetRequest:
        """Return the run as `run_fleet` takes it, for the checks before it starts."""
        return FleetRequest(
            FleetSettings(
                run.brokers,
                default_processes(run.brokers),
                self.racks,
                self.regions,
                seed=run.seed,
            ),
            run.partitions,
            self.scenario,
            out=out,
            quorum=run.quorum,
            controllers=self.controllers,
            kafka_home=self.kafka_home,
            heap=self.heap,
            quorum_settings=self.quorum_settings,
        )

    def arguments(self, run: SweptRun, scenario: Path, out: Path) -> list[str]:
        """Return the arguments of ``kraft`` for a run whose files go to ``out``."""
        own = {
            "--brokers": run.brokers,
            "--partitions": run.partitions,
            "--seed": run.seed,
            "--quorum": run.quorum,
            "--scenario": scenario,
            "--out": out,
            "--racks": self.racks,
            "--regions": self.regions,
            "--controllers": self.controllers,
            "--heap": self.heap,
        }
        if self.kafka_home is not None:
            own["--kafka-home"] = self.kafka_home
        words = [str(word) for option in own.items() for word in option]
        for name, value in self.quorum_settings.items():
            words += ["--setting", f"{name}={value}"]
        return ["lab", "fleet", *words, "--json", "--until-stdin-closes"]

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that decide what a run measures, as JSON."""
        return {
            "scenario": scenario_document(self.scenario),
            "racks": self.racks,
            "regions": self.regions,
            "controllers": self.controllers,
            "heap": self.heap,
            "settings": dict(sorted(self.quorum_settings.items())),
            "kraft_version": VERSION,
        }


def grid(brokers: str, partitions: str, seeds: str, quorums: str) -> list[SweptRun]:
    """Return the runs of lists such as ``10,50``: every size of the first seed, then the next.

    So a sweep that is interrupted has the sizes that laws need before it has several seeds. Raises
    InvalidArgumentError.
    """
    kinds = [each.strip() for each in quorums.split(",")]
    for kind in kinds:
        if kind not in QUORUMS:
            raise InvalidArgumentError(f"{kind!r} is no quorum: give {', '.join(QUORUMS)}")
    if len(set(kinds)) < len(kinds):
        raise InvalidArgumentError(f"a quorum is named twice in {quorums!r}")
    return sorted(
        SweptRun(seed, partition_count, broker_count, kind)
        for seed in parse_numbers(seeds, "seed", 0, MOST_SEED)
        for partition_count in parse_numbers(partitions, "number of partitions", 0, MOST_PARTITIONS)
        for broker_count in parse_numbers(brokers, "number of brokers", 1, MOST_BROKERS)
        for kind in kinds
    )


def check_sweep(
    settings: SweepSettings, runs: Sequence[SweptRun], *, work: Path | None, runs_at_once: int
) -> None:
    """Raise for the first run that cannot be, before anything starts.

    ``work`` is the directory of this machine where the runs keep their files; None where other
    machines carry out the runs: each of them checks its own limits before it starts a run.

    Raises InvalidConfigError, InvalidRequestError and MissingJavaError, as `check_request` and
    `check_machine`.
    """
    if settings.scenario.seed is not None:
        raise InvalidConfigError(
            f"scenario {settings.scenario.name} has the seed {settings.scenario.seed}, which every "
            "run would use: remove it, --seeds has the seeds"
        )
    heap_bytes(settings.heap)
    for run in runs:
        request = settings.request(run, work)
        check_request(request)
        if work is not None:
            check_machine(request, runs_at_once=runs_at_once)
