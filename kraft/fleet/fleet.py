"""``Fleet``: all processes of light brokers, their state as reported, and what is waited for.

The parent has a thread for the lines of each process. `Fleet` keeps their state under one lock,
writes their events to the trace, and lets the scenario's steps wait for conditions.

A process that ends, or that reports an error, is a `FleetFaultError`: every wait raises it, so that
a fault of the fleet is never taken for one of the quorum.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from kraft.errors import InvalidConfigError, KraftError, StorageError
from kraft.fleet.fleet_process import FleetProcess
from kraft.fleet.own_cost import ProcessCounts, counts_of
from kraft.fleet.state_directory import FleetState, SavedSnapshot
from kraft.fleet.trace import FleetTrace
from kraft.fleet.worker import WorkerPlan
from kraft.records import Uuid

FIRST_BROKER_ID = 1001
_READY_TIMEOUT_S = 60.0
#: How often a wait looks at what the processes have said.
_LOOK_S = 0.02
#: How often the processes are asked for their offsets.
_POLL_S = 0.1
#: A delay of the event loops that matters beside heartbeats of 2 s.
LONG_DELAY_MS = 500.0


class FleetFaultError(KraftError):
    """A fault of the fleet itself: a process of it ended, or could not do its work."""


class FleetTimeoutError(KraftError):
    """A step did not reach its end within its time."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The size and the timing of a fleet.

    Racks are named ``rack-1`` and so on, regions ``region-1``; a region has consecutive racks.
    ``directories`` is the number of log directories of each broker.
    """

    brokers: int
    processes: int = 1
    racks: int = 3
    regions: int = 1
    directories: int = 1
    seed: int = 0
    heartbeat_interval_ms: float = 2000.0
    lag_ms: float = 30_000.0
    is_cold: bool = False
    properties: str = ""

    @property
    def broker_ids(self) -> range:
        return range(FIRST_BROKER_ID, FIRST_BROKER_ID + self.brokers)

    def process_of(self, id: int) -> int:
        """Return the number of the process of a broker.

        A process has consecutive brokers, and so some of each rack: it sees what becomes of a lost
        rack or region by the brokers that are left.
        """
        return (id - FIRST_BROKER_ID) * self.processes // self.brokers

    def rack_of(self, id: int) -> str:
        return f"rack-{id % self.racks + 1}"

    def region_of(self, id: int) -> str:
        return f"region-{id % self.racks * self.regions // self.racks + 1}"

    def choose(self, *, rack: str, region: str, brokers: int, random: random.Random) -> list[int]:
        """Return the ids of a rack, of a region, or of so many brokers at random; else of all.

        Raises InvalidConfigError for a rack or region that does not exist.
        """
        self.check_place(rack, region)
        ids = list(self.broker_ids)
        if rack:
            chosen = [id for id in ids if self.rack_of(id) == rack]
        elif region:
            chosen = [id for id in ids if self.region_of(id) == region]
        elif brokers:
            chosen = sorted(random.sample(ids, min(brokers, len(ids))))
        else:
            return ids
        return chosen

    def check_place(self, rack: str, region: str) -> None:
        """Raise InvalidConfigError for a rack or region that the fleet does not have."""
        racks = [f"rack-{number + 1}" for number in range(self.racks)]
        regions = [f"region-{number + 1}" for number in range(self.regions)]
        if (rack and rack not in racks) or (region and region not in regions):
            raise InvalidConfigError(
                f"the fleet has no {rack or region!r}: it has racks rack-1 to rack-{self.racks} "
                f"in regions region-1 to region-{self.regions} (--racks, --regions)"
            )


def delay_text(worst_delay_ms: float) -> str:
    """Return that the fleet itself may be the cause of a timeout; "" if it was not late."""
    if worst_delay_ms <= LONG_DELAY_MS:
        return ""
    return (
        f"; the fleet's own event loops were up to {worst_delay_ms:.0f} ms late, so that its lack "
        "of CPU time may be the cause"
    )


@dataclass(slots=True)
class Loss:
    """What became of lost brokers; times of the monotonic clock by the number of the process.

    ``watching`` are the processes that see it.
    """

    token: int
    begun_s: float
    watching: frozenset[int]
    decided: dict[int, float] = field(default_factory=dict)
    everywhere: dict[int, float] = field(default_factory=dict)
    offset: int = -1

    @property
    def is_over(self) -> bool:
        """Whether every running broker has applied that no lost broker leads."""
        return self.everywhere.keys() >= self.watching


class CatchUp(NamedTuple):
    """How a fleet that starts again got the log that it missed, once in each process.

    ``bytes`` is what the processes fetched behind their snapshots, ``offset`` the lowest end.
    """

    seconds: float
    bytes: int
    offset: int

    def as_dict(self) -> dict[str, float]:
        return {"seconds": self.seconds, "bytes": self.bytes, "offset": self.offset}


class Fleet:
    """The processes of the fleet. A context manager that ends them."""

    def __init__(
        self,
        settings: FleetSettings,
        cluster_id: str,
        bootstrap_controllers: str,
        directory: Path,
        trace: FleetTrace,
        state: FleetState | None = None,
    ) -> None:
        """``state`` is what the brokers have on their disks; None: nothing."""
        self.settings = settings
        self.trace = trace
        self._state = state
        self._has_caught_up = False
        self._cluster_id = cluster_id
        self._lock = threading.RLock()
        self._fault = ""
        self._ready: set[int] = set()
        self._token = 0
        #: Brokers that the active controller has unfenced in their present run.
        self.unfenced: set[int] = set()
        #: Brokers that have applied their own registration in their present run.
        self.caught_up: set[int] = set()
        self.down: set[int] = set(settings.broker_ids)
        #: The last statistics of each process.
        self.statistics: dict[int, dict[str, Any]] = {}
        #: How late the event loops of the processes were at most, in the whole run.
        self.worst_delay_ms = 0.0
        self._delay_ms = 0.0
        self.failures: Counter[str] = Counter()
        self._epochs: set[int] = set()
        self._losses: dict[int, Loss] = {}
        self._lost_at: dict[int, float] = {}
        self._arrivals: dict[int, dict[int, list[tuple[int, float]]]] = {}
        #: The replies to each question, by its token and the number of the process.
        self._replies: dict[int, dict[int, dict[str, Any]]] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self.processes: list[FleetProcess] = []
        try:
            for number in range(settings.processes):
                plan = self._plan(number, cluster_id, bootstrap_controllers)
                self.processes.append(FleetProcess(number, plan, directory, self._received))
            self.wait(
                lambda: len(self._ready) == settings.processes,
                _READY_TIMEOUT_S,
                lambda: f"{len(self._ready)} of {settings.processes} processes are ready",
            )
        except BaseException:
            self.close()
            raise

    def _plan(self, number: int, cluster_id: str, bootstrap_controllers: str) -> WorkerPlan:
        settings = self.settings
        draw = random.Random(f"{settings.seed}/{cluster_id}/{number}")
        brokers: list[tuple[int, str | None, list[str]]] = []
        for id in settings.broker_ids:
            if settings.process_of(id) == number:
                directories = [
                    str(Uuid(b"\7" + draw.randbytes(15))) for _ in range(settings.directories)
                ]
                brokers.append((id, settings.rack_of(id), directories))
        return WorkerPlan(
            cluster_id,
            bootstrap_controllers,
            brokers,
            settings.properties,
            settings.heartbeat_interval_ms,
            settings.lag_ms,
            is_cold=settings.is_cold,
            number=number,
            snapshot=None if self._state is None else self._state.snapshots[number][:3],
        )

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    @property
    def watching(self) -> list[FleetProcess]:
        """The processes with a broker that is up: the others receive no metadata."""
        return [each for each in self.processes if each.broker_ids - self.down]

    # -- lines of the processes

    def _received(self, number: int, line: dict[str, Any]) -> None:
        with self._lock:
            try:
                self._note(number, line)
            except OSError as error:
                self._fail_trace(error)

    def fail_trace(self, error: OSError) -> None:
        """Let every wait raise that the trace cannot be written."""
        with self._lock:
            self._fail_trace(error)

    def _fail_trace(self, error: OSError) -> None:
        self._fault = self._fault or (
            f"the trace in {self.trace.directory} cannot be written: {error}; this is a fault of "
            "this machine, not of the quorum"
        )

    def _note(self, number: int, line: dict[str, Any]) -> None:
        if "name" in line:
            self._event(line)
        elif "statistics" in line:
            self.statistics[number] = line["statistics"]
            self._delay_ms = max(self._delay_ms, line["statistics"]["delay_ms"])
            self.worst_delay_ms = max(self.worst_delay_ms, self._delay_ms)
        elif "decided" in line:
            loss = self._losses[line["decided"]]
            loss.decided[number] = line["at"]
            loss.offset = max(loss.offset, line["offset"])
        elif "everywhere" in line:
            self._losses[line["everywhere"]].everywhere[number] = line["at"]
        elif "marker" in line:
            arrived = [(id, at) for id, at in line["arrived"]]
            self._arrivals.setdefault(line["marker"], {})[number] = arrived
        elif "reply" in line:
            self._replies.setdefault(line["reply"], {})[number] = line
        elif "ready" in line:
            self._ready.add(number)
        elif "fault" in line:
            self._fault = self._fault or (
                f"process {number} of the fleet met a limit of this machine, not of the "
                f"quorum: {line['fault']}"
            )
        elif "broken" in line:
            self._fault = self._fault or (
                f"process {number} of the fleet cannot apply what a controller sent to "
                f"{line['broken']}"
            )
        elif "unloaded" in line:
            self._fault = self._fault or (
                f"process {number} of the fleet cannot load its snapshot {line['unloaded']}; "
                "remove the directory of --state, and the brokers fetch all metadata again"
            )
        elif "ended" in line:
            self._fault = self._fault or (
                f"process {number} of the fleet ended with exit code {line['ended']}; this is "
                f"a fault of the fleet, not of the quorum. Its last output:\n{line['said']}"
            )

    def _event(self, line: dict[str, Any]) -> None:
        name, broker, at = line["name"], line["broker"], line["at"]
        if name == "controller_elected":
            if line["value"] in self._epochs:
                return
            self._epochs.add(line["value"])
        elif name == "broker_caught_up":
            if broker not in self.down:
                self.caught_up.add(broker)
        elif name == "broker_unfenced":
            if broker not in self.down:
                self.unfenced.add(broker)
        elif name in ("broker_fenced", "broker_stopped"):
            self.unfenced.discard(broker)
            if name == "broker_stopped":
                self.down.add(broker)
            lost_at = self._lost_at.pop(broker, None)
            if lost_at is not None:
                self.trace.event(
                    "fenced_after", broker=broker, value=(at - lost_at) * 1000, at_s=at
                )
        elif name not in ("broker_registered", "heartbeat_late"):
            # A rejected or failed request, such as heartbeat_NOT_CONTROLLER.
            self.failures[name] += 1
            return
        self.trace.event(name, broker=broker, value=line["value"], at_s=at)

    def take_delay(self) -> float:
        """Return how late the event loops were at most since the last call, in ms."""
        with self._lock:
            delay_ms, self._delay_ms = self._delay_ms, 0.0
        return delay_ms

    # -- waiting

    def wait(
        self, condition: Callable[[], bool], timeout_s: float, describe: Callable[[], str]
    ) -> None:
        """Wait until the condition holds; it is evaluated under the lock.

        Raises FleetTimeoutError with ``describe``'s text, FleetFaultError.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._check_fault()
                if condition():
                    return
                if time.monotonic() > deadline:
                    raise FleetTimeoutError(
                        f"after {timeout_s:g} s {describe()}{delay_text(self.worst_delay_ms)}"
                    )
            # Not the wait of a threading.Condition: Ctrl-C in it loses the lock, and its message.
            time.sleep(_LOOK_S)

    def pause(self, seconds: float) -> None:
        """Let the fleet run for so long. Raises FleetFaultError."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check_fault()
            time.sleep(min(left, _LOOK_S))

    def _check_fault(self) -> None:
        if self._fault:
            raise FleetFaultError(self._fault)

    # -- commands

    def _send(self, ids: Collection[int], **command: Any) -> None:
        """Send a command to the processes of these brokers, each with its own."""
        for process in self.processes:
            own = sorted(process.broker_ids & set(ids))
            if own:
                process.send(brokers=own, **command)

    def catch_up(self, timeout_s: float) -> CatchUp | None:
        """Let each process load its snapshot and fetch the log behind it, before any broker starts.

        Returns None where there are no snapshots, or the processes have done so before.
        """
        if self._state is None or self._has_caught_up:
            return None
        self._has_caught_up = True
        begun_s = time.monotonic()
        # All of them, before any broker starts: the changes that a start causes are then not part
        # of what another process still has to fetch.
        replies = self._ask("catch_up", self.processes, timeout_s).values()
        return CatchUp(
            time.monotonic() - begun_s,
            sum(each["bytes"] for each in replies),
            min(each["offset"] for each in replies),
        )

    def start(
        self, ids: Iterable[int], spread_s: float, at_once: int = 0, *, is_held: bool = False
    ) -> None:
        """Start brokers that are down, within ``spread_s``.

        At most ``at_once`` of them wait to be unfenced at a time (0: any number). Held ones stay
        fenced until `release`.
        """
        started = sorted(self.down & set(ids))
        with self._lock:
            watching = [process.number for process in self.watching]
            for id in started:
                if self.settings.process_of(id) not in watching:
                    # No broker of its process saw when it was fenced.
                    self._lost_at.pop(id, None)
            self.down -= set(started)
            self.unfenced -= set(started)
            self.caught_up -= set(started)
        limit = -(-at_once // len(self.processes))
        self._send(started, do="start", spread_ms=spread_s * 1000, at_once=limit, is_held=is_held)

    def release(self, ids: Collection[int]) -> None:
        """Let held brokers ask to be unfenced."""
        self._send(ids, do="release")

    def kill(self, ids: Sequence[int]) -> Loss:
        """Kill brokers; return what becomes of their partitions."""
        with self._lock:
            now = time.monotonic()
            self._lost_at |= dict.fromkeys(set(ids) - self.down, now)
            self.down |= set(ids)
            self.unfenced -= set(ids)
        return self._watch(ids, now, do="die")

    def stop(self, ids: Collection[int]) -> Loss:
        """Begin the controlled shutdown of brokers; return what becomes of their partitions."""
        return self._watch(ids, time.monotonic(), do="stop")

    def _watch(self, ids: Collection[int], begun_s: float, *, do: str) -> Loss:
        """Send a command to brokers, and let all processes watch the partitions that they lead."""
        self._token += 1
        with self._lock:
            watching = self.watching
            loss = Loss(self._token, begun_s, frozenset(each.number for each in watching))
            self._losses[self._token] = loss
        self._send(ids, do=do)
        for process in watching:
            process.send(do="watch", token=loss.token, brokers=sorted(ids))
        return loss

    def set_lagging(self, ids: Collection[int], *, is_lagging: bool) -> None:
        """Let the replicas of brokers fall behind, or keep up again."""
        for process in self.processes:
            process.send(do="lag", brokers=sorted(ids), is_lagging=is_lagging)

    def set_fetch_delay(self, ids: Collection[int], delay_ms: float) -> None:
        """Let brokers wait before each fetch of the metadata."""
        self._send(ids, do="delay", ms=delay_ms)

    def expect_marker(self, number: int, timeout_s: float) -> None:
        """Let the processes time when each broker has applied this marker.

        Returns when all of them look for it: a busy process may read a change before a command.
        """
        self._ask("expect", self.watching, timeout_s, marker=number)

    def marker_arrivals(self, number: int, timeout_s: float) -> list[tuple[int, float]]:
        """Return (broker, time of the monotonic clock) once every running broker has a marker."""
        count = len(self.watching)
        self.wait(
            lambda: len(self._arrivals.get(number, ())) == count,
            timeout_s,
            lambda: (
                f"{len(self._arrivals.get(number, ()))} of {count} processes have applied marker "
                f"{number} at every broker"
            ),
        )
        return [each for arrived in self._arrivals.pop(number).values() for each in arrived]

    def digests(self, timeout_s: float) -> Mapping[int, dict[str, Any]]:
        """Return the digest of each process's table, with its offset and those of its brokers."""
        return self._ask("digest", self.watching, timeout_s)

    def rows_out_of_sync(self, timeout_s: float) -> int:
        """Return how many partitions have a replica outside of the ISR, by one process."""
        (reply,) = self._ask("out_of_sync", self.watching[:1], timeout_s).values()
        return int(reply["value"])

    def await_offset(self, offset: int, timeout_s: float) -> None:
        """Wait until every broker that is in service has applied the metadata up to ``offset``."""
        deadline = time.monotonic() + timeout_s
        while True:
            replies = self._ask("offset", self.watching, timeout_s)
            ends = [reply["slowest"] for reply in replies.values()]
            if min(ends, default=offset) >= offset:
                return
            if time.monotonic() > deadline:
                raise FleetTimeoutError(
                    f"after {timeout_s:g} s the slowest brokers have applied the offsets {ends} of "
                    f"{offset}{delay_text(self.worst_delay_ms)}"
                )
            self.pause(_POLL_S)

    def counts(self, timeout_s: float) -> Mapping[int, ProcessCounts]:
        """Return what each process has used so far."""
        replies = self._ask("use", self.processes, timeout_s)
        return {number: counts_of(reply["use"]) for number, reply in replies.items()}

    def save(self, directory: Path, timeout_s: float) -> FleetState:
        """Let each process write a snapshot of what it has applied; return where they are.

        Raises StorageError where one cannot.
        """
        replies = self._ask("save", self.processes, timeout_s, path=str(directory))
        for reply in replies.values():
            if "error" in reply:
                raise StorageError(reply["error"])
        snapshots = {
            number: SavedSnapshot(*reply["saved"]) for number, reply in sorted(replies.items())
        }
        return FleetState(self._cluster_id, snapshots)

    def _ask(
        self, question: str, processes: Sequence[FleetProcess], timeout_s: float, **fields: Any
    ) -> Mapping[int, dict[str, Any]]:
        self._token += 1
        token = self._token
        for process in processes:
            process.send(do=question, token=token, **fields)
        self.wait(
            lambda: len(self._replies.get(token, ())) == len(processes),
            timeout_s,
            lambda: f"{len(self._replies.get(token, ()))} processes have replied to {question}",
        )
        return self._replies.pop(token)

    # -- the end

    def close(self) -> None:
        """End all processes; what still runs after ten seconds is killed."""
        for process in self.processes:
            process.send(do="end")
        for process in self.processes:
            process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
