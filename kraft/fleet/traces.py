"""Read what a run of the fleet left: ``run.json``, ``trace.jsonl`` and ``benchmark.json``.

This module defines the names of a trace's events and their units, checks every line, and returns
columns. It is pure but for reading the files that its caller names. The fleet writes the files;
``measures``, ``report_page`` and ``kraft.spark.fleet_traces`` read them through this module.

A run directory holds:

``run.json``        the run: quorum, sizes, scenario, seed, machine (`RunDescription`)
``trace.jsonl``     one JSON object a line, with the keys of `KEYS`
``benchmark.json``  the measures in pytest-benchmark's format, for ``kraft regress``; optional

Invariants: events are sorted by time; a line that breaks a rule is an error with its number, or,
where the caller asks for that, a `TraceProblem`, and never dropped silently.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.errors import FleetRunError

if TYPE_CHECKING:
    import pyarrow as pa

RUN_FILE, TRACE_FILE, BENCHMARK_FILE = "run.json", "trace.jsonl", "benchmark.json"

#: The keys of a line of a trace.
KEYS = ("at_ms", "step", "name", "broker", "value")

_MOST_ID = (1 << 31) - 1
_SHOWN = 60


class TraceEventKind(NamedTuple):
    """What one name of a trace means: the unit of its value, and which fields must be set.

    A counter's value counts from the run's start, or from any earlier time; a process that starts
    again may make it smaller.
    """

    meaning: str
    unit: str | None = None
    needs_broker: bool = False
    is_counter: bool = False


#: Every name that a trace may have. A kind with a unit has a value in each event. The samples
#: follow the events; they are taken each second, and a trace may lack any of them.
EVENTS: dict[str, TraceEventKind] = {
    "step_started": TraceEventKind("a step of the scenario begins"),
    "step_ended": TraceEventKind("a step ends; the value is its length", "s"),
    "broker_registered": TraceEventKind("a broker registered", needs_broker=True),
    "broker_caught_up": TraceEventKind("a broker has its registration", needs_broker=True),
    "broker_unfenced": TraceEventKind("a broker was unfenced", needs_broker=True),
    "broker_fenced": TraceEventKind("a broker was fenced", needs_broker=True),
    "broker_stopped": TraceEventKind("a broker has shut down", needs_broker=True),
    "caught_up": TraceEventKind("from the start until each process has the missed log", "ms"),
    "all_unfenced": TraceEventKind("from the start of brokers until all are unfenced", "ms"),
    "in_sync_everywhere": TraceEventKind("from the start until all replicas are in sync", "ms"),
    "controller_elected": TraceEventKind("another controller leads"),
    "first_write": TraceEventKind("from a fault to the first accepted write", "ms"),
    "committed": TraceEventKind("a committed offset", "offset"),
    "applied": TraceEventKind("from a commit to this broker's applied offset", "ms"),
    "heartbeat_late": TraceEventKind("from when a late heartbeat was due to its answer", "ms"),
    "fenced_after": TraceEventKind("from the loss of a broker to its fencing", "ms"),
    "decided": TraceEventKind("from a loss until no lost broker leads a partition", "ms"),
    "applied_everywhere": TraceEventKind("from a loss until every broker has applied that", "ms"),
    "own_delay": TraceEventKind("added by the fleet itself to the time of one change", "ms"),
    "own_delay_error": TraceEventKind("the standard error of own_delay", "ms"),
    "own_applying": TraceEventKind("in which the busiest process of the fleet applied", "ms"),
    "copy_floor": TraceEventKind("for copying alone what the brokers received", "ms"),
    "controller_cpu": TraceEventKind("CPU of the controllers", "cores"),
    "active_controller_cpu": TraceEventKind("CPU of the active controller alone", "cores"),
    "fleet_cpu": TraceEventKind("CPU of the fleet", "cores"),
    "controller_rss": TraceEventKind("memory of the controllers", "bytes"),
    "fleet_rss": TraceEventKind("memory of the fleet", "bytes"),
    "queue_time_p99": TraceEventKind("time in the controller's queue, p99", "ms"),
    "applied_lag_records": TraceEventKind("records that the slowest broker lacks", "records"),
    "fleet_delay": TraceEventKind("by which the fleet itself was late, the most", "ms"),
    "network_bytes": TraceEventKind("received by the brokers so far", "bytes", is_counter=True),
    "disk_bytes": TraceEventKind("written by the controllers so far", "bytes", is_counter=True),
    "heartbeats": TraceEventKind("answered so far", "requests", is_counter=True),
    "observer_fetches": TraceEventKind("answered so far", "requests", is_counter=True),
    "metadata_offset": TraceEventKind("the end of the committed log", "records", is_counter=True),
}

#: Events whose value is the time since a fault, and the fault.
_MEASURED_FROM_FAULT = {
    "first_write": "controller lost",
    "fenced_after": "brokers lost",
    "decided": "brokers lost",
    "applied_everywhere": "brokers lost",
}
#: Brokers that one fault takes away are lost within this time, in ms.
_SAME_FAULT_MS = 500.0

NAMES = tuple(EVENTS)
_CODES = {name: code for code, name in enumerate(NAMES)}


class TraceProblem(NamedTuple):
    """A part of a file that was not read. ``line`` counts from 1; 0 is the whole file."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line}: {self.reason}"
            if self.line
            else f"{self.path}: {self.reason}"
        )


class Fault(NamedTuple):
    """A time at which the scenario took something away, from the events that measure from it."""

    at_ms: float
    step: str
    what: str


@dataclass(frozen=True)
class RunDescription:
    """The content of ``run.json``; ``quorum`` is such as ``kraft``, ``kafka-4.3.1`` or a label."""

    run: str
    quorum: str
    controllers: int
    brokers: int
    partitions: int
    scenario: str
    seed: int
    kraft_version: str
    started_at: datetime
    processes: int
    machine: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The run in words."""
        return (
            f"{self.quorum}: {self.scenario}, {self.brokers:,} brokers, "
            f"{self.partitions:,} partitions, seed {self.seed}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the run as JSON."""
        return {
            **{name: getattr(self, name) for name in _FIELDS},
            "started_at": self.started_at.isoformat(),
            "machine": dict(self.machine),
        }


class Span(NamedTuple):
    """The time of one step; a step may come several times. ``is_complete``: its end was written."""

    step: str
    begin_ms: float
    end_ms: float
    is_complete: bool

    @property
    def seconds(self) -> float:
        return (self.end_ms - self.begin_ms) / 1000


@dataclass(frozen=True)
class TraceColumns:
    """The events of a run as columns of equal length, sorted by time.

    ``at_ms`` (f64) counts from the run's start; ``step`` (i32) are indexes into ``steps``, ``name``
    (u8) into `NAMES`; ``broker`` (i32) is -1 and ``value`` (f64) NaN where the line has null.
    """

    steps: tuple[str, ...]
    at_ms: NDArray[np.float64]
    step: NDArray[np.int32]
    name: NDArray[np.uint8]
    broker: NDArray[np.int32]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.at_ms)

    @property
    def end_ms(self) -> float:
        """The time of the last event, 0 without events."""
        return float(self.at_ms[-1]) if len(self) else 0.0

    def rows(self, name: str, step: str | None = None) -> NDArray[np.intp]:
        """Return the indexes of the events with this name, of one step or of all."""
        found = self.name == _CODES[name]
        if step is not None:
            if step not in self.steps:
                return np.empty(0, np.intp)
            found &= self.step == self.steps.index(step)
        return np.flatnonzero(found)

    def values(self, name: str, step: str | None = None) -> NDArray[np.float64]:
        """Return the values of the events with this name, in order of time."""
        return self.value[self.rows(name, step)]

    def increments(
        self, name: str, step: str | None = None
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the samples of a counter, and by how much each is larger than the one before.

        The first sample has none before it and is left out. A smaller value is an increment of 0:
        a process was started again.
        """
        rows = self.rows(name)
        grown = np.maximum(np.diff(self.value[rows]), 0.0)
        rows = rows[1:]
        if step is not None:
            kept = np.isin(rows, self.rows(name, step))
            rows, grown = rows[kept], grown[kept]
        return rows, grown

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The time of every step, in order; a step without an end lasts until the last event."""
        found: list[Span] = []
        open_at: dict[int, float] = {}
        started, ended = _CODES["step_started"], _CODES["step_ended"]
        for row in np.flatnonzero((self.name == started) | (self.name == ended)):
            step, at = int(self.step[row]), float(self.at_ms[row])
            if self.name[row] == started:
                open_at[step] = at
            elif step in open_at:
                found.append(Span(self.steps[step], open_at.pop(step), at, True))
        found += [Span(self.steps[step], at, self.end_ms, False) for step, at in open_at.items()]
        return tuple(sorted(found, key=lambda span: (span.begin_ms, span.end_ms)))

    @property
    def unfinished_steps(self) -> tuple[str, ...]:
        """The steps without an end: the run was interrupted in them."""
        return tuple(dict.fromkeys(span.step for span in self.spans if not span.is_complete))

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """The faults, in order of time; those of one step within `_SAME_FAULT_MS` are one.

        A trace has no event for a fault: each event that measures from one names its time.
        """
        found: dict[str, list[Fault]] = {}
        for name, what in _MEASURED_FROM_FAULT.items():
            for row in self.rows(name):
                step = self.steps[self.step[row]]
                at = max(float(self.at_ms[row] - self.value[row]), 0.0)
                found.setdefault(step, []).append(Fault(at, step, what))
        kept: list[Fault] = []
        for faults in found.values():
            last = -math.inf
            for fault in sorted(faults):
                if fault.at_ms - last > _SAME_FAULT_MS:
                    kept.append(fault)
                    last = fault.at_ms
        return tuple(sorted(kept))

    def to_arrow(self) -> pa.Table:
        """Return the events as a table: at_ms, step, name, broker, value, with nulls."""
        import pyarrow as pa

        return pa.table(
            {
                "at_ms": self.at_ms,
                "step": pa.array(self.steps, pa.string()).take(pa.array(self.step)),
                "name": pa.array(NAMES, pa.string()).take(pa.array(self.name)),
                "broker": pa.array(self.broker, mask=self.broker < 0),
                "value": pa.array(self.value, mask=np.isnan(self.value)),
            }
        )


@dataclass(frozen=True)
class RecordedRun:
    """One run: its description, its events, the path of its measures, and what was not read."""

    directory: Path
    info: RunDescription
    trace: TraceColumns
    benchmark: Path | None
    problems: tuple[TraceProblem, ...] = ()

    def interruptions(self) -> list[str]:
        """Return a line for each step without an end."""
        return [interruption_text(self.info.run, step) for step in self.trace.unfinished_steps]


def run_labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Return a short name of each run: its quorum, with the run's id where two are equal."""
    quorums = [run.info.quorum for run in runs]
    if len(set(quorums)) == len(quorums):
        return quorums
    return [f"{run.info.quorum} {run.info.run}" for run in runs]


def interruption_text(run: str, step: str) -> str:
    """Return that a run was interrupted in a step, which has no end."""
    return f"run {run} was interrupted in step {step!r}"


def read_run(directory: str | PathLike[str], *, skip_bad_lines: bool = False) -> RecordedRun:
    """Read a run directory.

    ``skip_bad_lines`` returns lines that break a rule as `RecordedRun.problems` and reads the
    others; without it the first one raises.

    Raises FleetRunError with file, line and what was expected.
    """
    place = Path(directory)
    info = read_info(place)
    path = place / TRACE_FILE
    problems: list[TraceProblem] = []
    trace = parse_trace(_bytes_of(path), str(path), problems if skip_bad_lines else None)
    benchmark = place / BENCHMARK_FILE
    return RecordedRun(
        place, info, trace, benchmark if benchmark.is_file() else None, tuple(problems)
    )


def read_or_report(
    directory: str | PathLike[str], *, skip_bad_lines: bool
) -> tuple[RecordedRun | None, tuple[TraceProblem, ...]]:
    """Return a run and its problems; no run where its description cannot be read.

    Without ``skip_bad_lines`` raises FleetRunError as `read_run`.
    """
    try:
        run = read_run(directory, skip_bad_lines=skip_bad_lines)
    except FleetRunError as error:
        if not skip_bad_lines:
            raise
        return None, (TraceProblem(str(directory), 0, str(error)),)
    return run, run.problems


def read_info(directory: str | PathLike[str]) -> RunDescription:
    """Read ``run.json`` of a run directory. Raises FleetRunError."""
    path = Path(directory) / RUN_FILE
    if not path.parent.is_dir():
        raise FleetRunError(f"{directory}: not a directory; expected the directory of a run")
    return parse_info(_bytes_of(path), str(path))


def run_directories(paths: Iterable[str | PathLike[str]]) -> list[Path]:
    """Return the run directories among ``paths`` and below them, sorted, each once.

    Raises FleetRunError for a path with none.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        runs = sorted(each.parent for each in path.rglob(RUN_FILE)) if path.is_dir() else []
        if not runs:
            raise FleetRunError(f"{path}: no run is here: no {RUN_FILE} in it or below it")
        found |= dict.fromkeys(runs)
    return list(found)


def parse_info(data: bytes, source: str) -> RunDescription:
    """Return the run in the bytes of ``run.json``; ``source`` is the file's name in errors.

    Keys that this version does not know are ignored. Raises FleetRunError.
    """
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FleetRunError(f"{source}: not JSON: {error}") from None
    if not isinstance(given, dict):
        raise FleetRunError(f"{source}: expected a JSON object, not {_shown(given)}")
    for name, (kind, least) in _FIELDS.items():
        if name not in given:
            raise FleetRunError(f"{source}: {name!r} is missing; expected {_expected(kind, least)}")
        value = given[name]
        is_right = isinstance(value, kind) and not isinstance(value, bool)
        is_right = is_right and (kind is not str or value.isprintable())
        if not is_right or (least is not None and value < least):
            raise FleetRunError(
                f"{source}: {name!r} is {_shown(value)}; expected {_expected(kind, least)}"
            )
    try:
        started_at = datetime.fromisoformat(given["started_at"])
    except ValueError:
        raise FleetRunError(
            f"{source}: 'started_at' is {_shown(given['started_at'])}; expected an ISO 8601 time"
        ) from None
    if started_at.tzinfo is None:
        started_at = started_at.replace(tzinfo=UTC)
    return RunDescription(**{**{name: given[name] for name in _FIELDS}, "started_at": started_at})


#: The keys of ``run.json``: type and smallest value.
_FIELDS: dict[str, tuple[type, int | None]] = {
    "run": (str, None),
    "quorum": (str, None),
    "controllers": (int, 1),
    "brokers": (int, 1),
    "partitions": (int, 0),
    "scenario": (str, None),
    "seed": (int, None),
    "kraft_version": (str, None),
    "started_at": (str, None),
    "processes": (int, 1),
    "machine": (dict, None),
}


def parse_trace(
    data: bytes, source: str, problems: list[TraceProblem] | None = None
) -> TraceColumns:
    """Return the events in the bytes of ``trace.jsonl``, sorted by time.

    ``problems`` receives the lines that break a rule; without a list the first one raises
    FleetRunError. A last line without its end is such a line: the run was killed while it wrote.
    """
    last_line = data.count(b"\n") + 1
    steps: dict[str, int] = {}
    at_ms: list[float] = []
    step: list[int] = []
    name: list[int] = []
    broker: list[int] = []
    value: list[float] = []
    for number, line in _lines(data):
        try:
            event = _event(line)
        except ValueError as error:
            reason = str(error)
            if number == last_line:
                reason += " (the file ends within this line: the run was killed)"
            if problems is None:
                raise FleetRunError(f"{source}:{number}: {reason}") from None
            problems.append(TraceProblem(source, number, reason))
            continue
        at_ms.append(event.at_ms)
        step.append(steps.setdefault(event.step, len(steps)))
        name.append(_CODES[event.name])
        broker.append(-1 if event.broker is None else event.broker)
        value.append(math.nan if event.value is None else event.value)
    times = np.array(at_ms, np.float64)
    # Several processes write one trace, each in its own order.
    order = np.argsort(times, kind="stable")
    return TraceColumns(
        tuple(steps),
        times[order],
        np.array(step, np.int32)[order],
        np.array(name, np.uint8)[order],
        np.array(broker, np.int32)[order],
        np.array(value, np.float64)[order],
    )


class _Event(NamedTuple):
    at_ms: float
    step: str
    name: str
    broker: int | None
    value: float | None


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each line that is not empty."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield number, line


def _event(line: bytes) -> _Event:
    """Return the event of a line. Raises ValueError with what was expected."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"expected a JSON object, not {_shown(given)}")
    if given.keys() != _KEYS:
        missing = [key for key in KEYS if key not in given]
        if missing:
            raise ValueError(f"{missing[0]!r} is missing; expected the keys {', '.join(KEYS)}")
        extra = sorted(given.keys() - _KEYS)[0]
        raise ValueError(f"unknown key {_shown(extra)}; expected the keys {', '.join(KEYS)}")
    at_ms, step, name, broker, value = (given[key] for key in KEYS)
    if not _is_number(at_ms) or at_ms < 0:
        raise ValueError(f"'at_ms' is {_shown(at_ms)}; expected milliseconds since the start")
    if not isinstance(step, str) or not step.isprintable():
        raise ValueError(f"'step' is {_shown(step)}; expected the printable name of a step")
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"'name' is {_shown(name)}; expected one of {', '.join(NAMES)}")
    if broker is None:
        if kind.needs_broker:
            raise ValueError(f"'broker' is null; {name} needs the id of a broker")
    elif type(broker) is not int or not 0 <= broker <= _MOST_ID:
        raise ValueError(f"'broker' is {_shown(broker)}; expected a broker id or null")
    if value is None:
        if kind.unit is not None:
            raise ValueError(f"'value' is null; {name} needs a number of {kind.unit}")
    elif not _is_number(value) or value < 0:
        raise ValueError(f"'value' is {_shown(value)}; expected a number from 0 on, or null")
    return _Event(float(at_ms), step, name, broker, None if value is None else float(value))


_KEYS = frozenset(KEYS)


def _is_number(value: object) -> bool:
    """Return whether a JSON value is a finite number: Python's reader accepts NaN and Infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= 1 << 62


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FleetRunError(
            f"{path}: no such file; a run directory has {RUN_FILE} and {TRACE_FILE}"
        ) from None
    except OSError as error:
        raise FleetRunError(f"{path}: cannot be read: {error.strerror or error}") from None


def _expected(kind: type, least: int | None) -> str:
    words = {str: "a printable text", int: "a whole number", dict: "a JSON object"}[kind]
    return words if least is None else f"{words} from {least} on"


def _shown(value: object) -> str:
    """Return a foreign value on one line, cut: for an error message."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
