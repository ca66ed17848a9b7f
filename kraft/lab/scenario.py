"""A running scenario: the cluster, its controller and log, and a clock that measures each stage.

The stages of ``kraft.lab.million`` share this state; `ActiveController` decides, applies and
writes. Adds stages to the ``Report`` and, where one is written, events to the trace: each operation
and its parts, counted in records; each turn of the controller; each stage, counted in its own unit.

Invariants: the log contains the applied records in order; the journal holds at most the unwritten
records, so memory does not grow with the number of decisions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kraft._core.log.log import Log
from kraft._core.table.table import PartitionTable
from kraft.controller.runtime.operations import Operation
from kraft.errors import InvalidRequestError
from kraft.lab.active_controller import ActiveController
from kraft.lab.memory import resident_size
from kraft.lab.report import Report, Stage
from kraft.lab.trace import TraceWriter
from kraft.metadata.directory import METADATA_LOG
from kraft.metadata.facade import Metadata


class Bars(Protocol):
    """Makes a progress bar for a total; the returned function sets the finished amount."""

    def __call__(
        self, description: str, total: float | None
    ) -> AbstractContextManager[Callable[[float], None]]: ...


@dataclass(frozen=True, slots=True)
class ScenarioSettings:
    """The settings of a run. ``partitions`` includes those of the seed; without ``directory`` a
    temporary one is used, removed at the end unless ``keep``.
    """

    source: Path
    partitions: int = 1_000_000
    brokers: int = 300
    racks: int = 3
    replication_factor: int = 3
    seed: int = 0
    directory: Path | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        """Raises :class:`InvalidRequestError` for impossible settings."""
        for name in ("partitions", "brokers", "racks", "replication_factor"):
            if getattr(self, name) < 1:
                raise InvalidRequestError(f"{name} must be at least 1")
        if self.racks > self.brokers:
            raise InvalidRequestError(f"{self.brokers} brokers cannot fill {self.racks} racks")
        if self.replication_factor > self.brokers:
            raise InvalidRequestError(
                f"replication factor {self.replication_factor} needs at least as many brokers, "
                f"not {self.brokers}"
            )

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": str(self.source),
            "partitions": self.partitions,
            "brokers": self.brokers,
            "racks": self.racks,
            "replicationFactor": self.replication_factor,
            "seed": self.seed,
        }

    @property
    def written_size(self) -> int:
        """The bytes on disk that the run needs at most, measured and rounded up."""
        return 64 * 2**20 + self.partitions * (300 + 130 * self.replication_factor)


@dataclass(slots=True)
class Clock:
    """Measures one stage while it runs; ``parts`` are seconds by part."""

    advance_bar: Callable[[float], None]
    count: int = 0
    records: int = 0
    bytes_written: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    trace: TraceWriter | None = None

    def advance(self, count: int) -> None:
        """Add ``count`` finished items."""
        self.count += count
        self.advance_bar(self.count)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure the block as a part of the stage."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            duration_ns = time.perf_counter_ns() - began_ns
            self.parts[name] = self.parts.get(name, 0.0) + duration_ns / 1e9
            if self.trace is not None:
                self.trace.event(name, began_ns, duration_ns)


class Scenario:
    """The state of a run, passed from stage to stage."""

    def __init__(
        self,
        settings: ScenarioSettings,
        workspace: Path,
        bars: Bars,
        trace: TraceWriter | None = None,
    ) -> None:
        self.settings = settings
        self.trace = trace
        self.workspace = workspace
        self.random = random.Random(settings.seed)
        self.report = Report(settings.as_dict())
        self._bars = bars
        self._metadata: Metadata | None = None
        self._log: Log | None = None
        self._controller: ActiveController | None = None

    @property
    def log_directory(self) -> Path:
        """The partition directory of the log and the snapshots."""
        return self.workspace / METADATA_LOG

    @property
    def metadata(self) -> Metadata:
        assert self._metadata is not None, "no stage opened the cluster"
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: Metadata) -> None:
        self._metadata = metadata

    @property
    def log(self) -> Log:
        assert self._log is not None, "no stage opened the log"
        return self._log

    @log.setter
    def log(self, log: Log) -> None:
        self._log = log

    @property
    def controller(self) -> ActiveController:
        assert self._controller is not None, "no stage created a controller"
        return self._controller

    @controller.setter
    def controller(self, controller: ActiveController) -> None:
        self._controller = controller

    def rack_brokers(self) -> list[int]:
        """Return the brokers of the first rack by id."""
        brokers = self.metadata.brokers
        first = min(broker.rack or "" for broker in brokers.values())
        return sorted(broker.id for broker in brokers.values() if (broker.rack or "") == first)

    def drop(self) -> None:
        """Close the log and release the cluster."""
        if self._log is not None:
            self._log.close()
        self._log = None
        self._metadata = None
        self._controller = None

    def ask(self, clock: Clock, operation: Operation) -> Any:
        """Run an operation on the controller; return its response once its records are on disk.

        Measures deciding, applying and appending separately. Raises the error with which the
        controller rejects the operation.
        """
        cluster = self.metadata.cluster
        offset, size = cluster.next_offset, self.log.size
        began_ns, before = time.perf_counter_ns(), _beside_deciding(clock)
        response = self.controller.ask(operation, clock.part)
        duration_ns = time.perf_counter_ns() - began_ns
        decided = duration_ns / 1e9 - (_beside_deciding(clock) - before)
        records = cluster.next_offset - offset
        clock.parts["decide"] = clock.parts.get("decide", 0.0) + decided
        clock.records += records
        if self.trace is not None:
            self.trace.event("decide", began_ns, int(decided * 1e9), records)
            self.trace.event(operation.name, began_ns, duration_ns, records)
        clock.bytes_written += self.log.size - size
        return response

    @contextmanager
    def stage(self, name: str, unit: str, total: float | None = None) -> Iterator[Clock]:
        """Measure the block as one row of the report."""
        with self._bars(name, total) as advance_bar:
            clock = Clock(advance_bar, trace=self.trace)
            began_ns = time.perf_counter_ns()
            yield clock
            duration_ns = time.perf_counter_ns() - began_ns
        if self.trace is not None:
            self.trace.event(f"stage: {name}", began_ns, duration_ns, clock.count)
        table = None if self._metadata is None else self._metadata.cluster.table
        self.report.stages.append(
            Stage(
                name=name,
                count=clock.count,
                unit=unit,
                seconds=duration_ns / 1e9,
                records=clock.records,
                parts=clock.parts,
                bytes_written=clock.bytes_written,
                resident_size=resident_size(),
                table_size=0 if table is None else _kept_size(table),
                partitions=0 if table is None else table.partition_count,
            )
        )


def _beside_deciding(clock: Clock) -> float:
    return clock.parts.get("apply", 0.0) + clock.parts.get("append", 0.0)


def _kept_size(table: PartitionTable) -> int:
    sizes = table.memory_sizes
    return sum(sizes.values()) - sizes["journal"]
