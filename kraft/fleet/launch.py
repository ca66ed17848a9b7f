"""``run_fleet``: one run from its settings to its report, for commands and benchmarks.

Checks the machine and the scenario before anything starts, starts the quorum if the run has its
own, then the fleet's processes, and runs the scenario. Everything that was started has ended when
the function returns or raises.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kraft.admin.settings import read_admin_settings
from kraft.errors import InvalidConfigError, InvalidRequestError, StorageError
from kraft.fleet.copy_rate import copy_rate
from kraft.fleet.fleet import CatchUp, Fleet, FleetSettings
from kraft.fleet.limits import FleetNeeds, check_limits
from kraft.fleet.measures import percentile
from kraft.fleet.own_cost import CopyFloor, OwnShare, StepUse, copy_floors, own_shares
from kraft.fleet.own_quorum import KafkaQuorum, OwnQuorum, kafka_jars, kafka_java
from kraft.fleet.run import Conservation, FleetRunner
from kraft.fleet.sampler import Sampler
from kraft.fleet.samples import listening_processes
from kraft.fleet.scenario import ComeBack, FleetScenario, Lose, Start, Step
from kraft.fleet.state_directory import check_state_directory, read_state, write_state
from kraft.fleet.trace import FleetRun, FleetTrace
from kraft.fleet.traces import EVENTS
from kraft.network.controller_connection import Address
from kraft.network.quorum_client import QuorumClient

_SAVE_TIMEOUT_S = 600.0
_LOCAL_HOSTS = ("localhost", "::1")
#: The smallest quorum that has a majority without one of its controllers.
_MAJORITY_AFTER_LOSS = 3


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A run. Without ``bootstrap_controllers`` it starts ``controllers`` of its own ``quorum``.

    ``quorum`` is ``kraft`` or ``kafka``. ``out`` is a new or empty directory; None: the files are
    removed at the end. ``state`` is the directory of what the brokers keep for the next run against
    the same quorum (``state_directory``).
    """

    settings: FleetSettings
    partitions: int
    scenario: FleetScenario
    bootstrap_controllers: str = ""
    out: Path | None = None
    label: str = ""
    quorum: str = "kraft"
    controllers: int = 3
    kafka_home: Path | None = None
    heap: str = "2g"
    state: Path | None = None
    quorum_settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The outcome of a run.

    ``values`` are the measures by (step, name), in ms; those of ``step_ended`` in seconds.
    """

    run: FleetRun
    conservation: Conservation
    values: Mapping[tuple[str, str], Sequence[float]]
    cpu: Mapping[str, Mapping[str, float]]
    received_bytes: int
    decoded_bytes: int
    failures: Mapping[str, int]
    outcomes: Mapping[str, int]
    #: How late the event loops of the fleet's processes were at most: a part of every measure.
    worst_delay_ms: float
    #: The offset of the snapshot with which the brokers began; None: without one.
    loaded_offset: int | None
    #: How the processes got the log behind it; None: without a snapshot.
    catch_up: CatchUp | None
    #: The offset of the snapshot that they keep for the next run; None: they keep none.
    saved_offset: int | None
    #: What the fleet itself used in each step.
    uses: Sequence[StepUse]
    #: How fast one process of this machine copies to those of the fleet, in bytes a second; None
    #: where the controllers run on other machines.
    copied_bytes_per_s: float | None

    @property
    def own_shares(self) -> list[OwnShare]:
        """The fleet's own part of each measure."""
        return own_shares(self.values, self.uses)

    @property
    def copy_floors(self) -> list[CopyFloor]:
        """Each step beside the time that copying alone would take; empty without a rate."""
        if self.copied_bytes_per_s is None:
            return []
        return copy_floors(self.values, self.uses, self.copied_bytes_per_s)

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": self.run.run,
            "quorum": self.run.quorum,
            "brokers": self.run.brokers,
            "partitions": self.run.partitions,
            "scenario": self.run.scenario,
            "seed": self.run.seed,
            "processes": self.run.processes,
            "measures": [
                {"step": step, "name": name, "unit": EVENTS[name].unit, **summary(values)}
                for (step, name), values in self.values.items()
            ],
            "meanCores": {step: dict(means) for step, means in self.cpu.items()},
            "receivedBytes": self.received_bytes,
            "decodedBytes": self.decoded_bytes,
            "fleetDelayMs": self.worst_delay_ms,
            "loadedOffset": self.loaded_offset,
            "sharedCatchUp": None if self.catch_up is None else self.catch_up.as_dict(),
            "savedOffset": self.saved_offset,
            "ownUse": [each.as_dict() for each in self.uses],
            "ownShares": [each.as_dict() for each in self.own_shares],
            "copiedBytesPerSecond": self.copied_bytes_per_s,
            "copyFloors": [each.as_dict() for each in self.copy_floors],
            "failedRequests": dict(self.failures),
            "partitionRequests": dict(self.outcomes),
            "check": {
                "offset": self.conservation.offset,
                "brokers": self.conservation.checked_brokers,
                "partitions": self.conservation.partitions,
                "problems": self.conservation.problems,
            },
        }


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return count, median, p99 and worst of values, as the reports of runs do."""
    return {
        "count": len(values),
        "p50": percentile(values, 0.5),
        "p99": percentile(values, 0.99),
        "worst": max(values),
    }


class FleetView:
    """What a running fleet shows: the present step, and the fleet once it has started."""

    def __init__(self) -> None:
        self.step = ""
        self.fleet: Fleet | None = None
        self.samples: Mapping[str, float] = {}
        self._sampler: Sampler | None = None

    def line(self) -> str:
        """Return one line for a terminal."""
        if self.fleet is None:
            return self.step
        statistics = list(self.fleet.statistics.values())
        last = {} if self._sampler is None else self._sampler.last
        partitions = max((each["partitions"] for each in statistics), default=0)
        offset = max((each["offset"] for each in statistics), default=0)
        return (
            f"{self.step}: {len(self.fleet.unfenced)} of {self.fleet.settings.brokers} brokers "
            f"unfenced, {partitions} partitions, offset {offset}, cores: controllers "
            f"{last.get('controller_cpu', 0):.2f}, fleet {last.get('fleet_cpu', 0):.2f}"
        )


def run_fleet(
    request: FleetRequest,
    view: FleetView | None = None,
    on_step: Callable[[Step], object] = lambda step: None,
) -> FleetReport:
    """Run the scenario; return what was measured and checked.

    Raises InvalidConfigError and InvalidRequestError before anything starts, FleetFaultError for a
    fault of the fleet, FleetTimeoutError for a step that did not end in its time, and the errors of
    the quorum's client.
    """
    view = view or FleetView()
    check_request(request)
    check_machine(request)
    with ExitStack() as stack:
        home = stack.enter_context(_directory(request.out))
        quorum = None
        bootstrap = request.bootstrap_controllers
        if not bootstrap:
            view.step = f"starting {request.controllers} controllers"
            quorum = stack.enter_context(_own_quorum(request, home / "quorum"))
            bootstrap = quorum.bootstrap_controllers
        admin = read_admin_settings(bootstrap, request.settings.properties or None)
        view.step = "asking the controllers"
        with QuorumClient(admin.bootstrap_controllers, security=admin.security) as client:
            cluster = client.describe_cluster()
            described = client.describe_quorum()
        cluster_id = cluster.cluster_id
        controllers = _controller_processes(quorum, list(cluster.controllers.values()))
        run = FleetRun(
            secrets.token_hex(6),
            request.label or (quorum.label if quorum else _label_of(controllers().values())),
            len(described.voters),
            request.settings.brokers,
            request.partitions,
            request.scenario.name,
            request.settings.seed,
            request.settings.processes,
        )
        state = None
        if request.state is not None:
            state = read_state(request.state, request.settings, cluster_id)
        view.step = "measuring how fast this machine copies"
        bytes_per_s = None
        if controllers():
            bytes_per_s = copy_rate(request.settings.processes, home)
        trace = stack.enter_context(FleetTrace(home, run))
        view.step = f"starting {run.processes} processes of light brokers"
        fleet = stack.enter_context(
            Fleet(request.settings, cluster_id, bootstrap, home / "processes", trace, state)
        )
        sampler = Sampler(fleet, trace, controllers, quorum.metrics_ports if quorum else ())
        stack.callback(sampler.stop)
        view.fleet, view._sampler = fleet, sampler

        def step_begins(step: Step) -> None:
            view.step = step.name
            on_step(step)

        runner = FleetRunner(
            fleet,
            admin,
            trace,
            request.partitions,
            request.settings.seed,
            quorum=quorum,
            on_step=step_begins,
            bytes_per_s=bytes_per_s,
        )
        conservation = runner.run(request.scenario)
        saved = None
        if request.state is not None and not conservation.problems:
            view.step = f"writing the brokers' state to {request.state}"
            saved = fleet.save(request.state, _SAVE_TIMEOUT_S)
            write_state(request.state, request.settings, saved)
        statistics = list(fleet.statistics.values())
        outcomes: dict[str, int] = {}
        for each in statistics:
            for name, count in each["outcomes"].items():
                outcomes[name] = outcomes.get(name, 0) + count
        return FleetReport(
            run,
            conservation,
            dict(trace.values),
            sampler.means(),
            sum(each["received_bytes"] for each in statistics),
            sum(each["decoded_bytes"] for each in statistics),
            dict(fleet.failures),
            outcomes,
            fleet.worst_delay_ms,
            None if state is None else state.offset,
            runner.catch_up,
            None if saved is None else saved.offset,
            tuple(runner.uses),
            bytes_per_s,
        )


def check_request(request: FleetRequest) -> None:
    """Raise InvalidConfigError or InvalidRequestError for a run that no machine can carry out."""
    settings = request.settings
    for name in ("brokers", "processes", "racks", "regions", "directories"):
        if getattr(settings, name) < 1:
            raise InvalidRequestError(f"{name} must be at least 1")
    if request.partitions < 0:
        raise InvalidRequestError("partitions must not be negative")
    if settings.racks > settings.brokers:
        raise InvalidRequestError(f"{settings.brokers} brokers cannot fill {settings.racks} racks")
    if settings.regions > settings.racks:
        raise InvalidRequestError(f"{settings.racks} racks cannot fill {settings.regions} regions")
    if settings.processes > settings.brokers:
        raise InvalidRequestError(
            f"{settings.brokers} brokers cannot fill {settings.processes} processes"
        )
    if request.scenario.needs_own_quorum and request.bootstrap_controllers:
        raise InvalidConfigError(
            f"scenario {request.scenario.name} stops controllers: run it with a quorum of its own "
            "(kraft lab fleet)"
        )
    own = _own_controllers(request)
    if request.scenario.needs_own_quorum and own < _MAJORITY_AFTER_LOSS:
        raise InvalidRequestError(
            f"scenario {request.scenario.name} stops a controller: {own} controllers have no "
            f"majority then, at least {_MAJORITY_AFTER_LOSS} are needed (--controllers)"
        )
    _check_losses(request.scenario, settings)
    if request.state is not None:
        if settings.is_cold:
            raise InvalidRequestError(
                "brokers that fetch all metadata do not start from a snapshot: leave out --cold or "
                "--state"
            )
        check_state_directory(request.state)


def check_machine(request: FleetRequest, *, runs_at_once: int = 1) -> None:
    """Raise InvalidConfigError where this machine cannot carry out so many of this run at a time.

    Also raises MissingJavaError where Apache Kafka's controllers cannot start.
    """
    own = _own_controllers(request)
    is_kafka = own > 0 and request.quorum == "kafka"
    if is_kafka:
        kafka_jars(request.kafka_home)
        kafka_java()
    check_limits(
        FleetNeeds(
            request.settings.brokers,
            request.partitions,
            request.settings.processes,
            own,
            request.heap if is_kafka else "",
            runs_at_once,
        ),
        request.out or Path(tempfile.gettempdir()),
    )


def _own_controllers(request: FleetRequest) -> int:
    """Return how many controllers the run starts."""
    return 0 if request.bootstrap_controllers else request.controllers


def _check_losses(scenario: FleetScenario, settings: FleetSettings) -> None:
    """Raise for a rack or region that does not exist, and where no broker would be left.

    Which brokers a number of them chooses is known only when the step runs.
    """
    lost: set[int] = set()
    for number, step in enumerate(scenario.steps, 1):
        rack, region = getattr(step, "rack", ""), getattr(step, "region", "")
        settings.check_place(rack, region)
        if isinstance(step, ComeBack | Start):
            lost.clear()
        if not isinstance(step, Lose):
            continue
        if rack or region:
            lost |= set(settings.choose(rack=rack, region=region, brokers=0, random=Random(0)))
        if max(len(lost), step.brokers) >= settings.brokers:
            raise InvalidRequestError(
                f"step {number} of scenario {scenario.name} ({step.name}) would stop all "
                f"{settings.brokers} brokers, and none would be left to see what becomes of their "
                "partitions: raise --brokers, --racks or --regions"
            )


def _own_quorum(request: FleetRequest, directory: Path) -> OwnQuorum:
    if request.quorum == "kafka":
        return KafkaQuorum(
            directory,
            request.controllers,
            request.quorum_settings,
            home=request.kafka_home,
            heap=request.heap,
        )
    return OwnQuorum(directory, request.controllers, request.quorum_settings)


@contextmanager
def _directory(out: Path | None) -> Iterator[Path]:
    """Yield the directory of the run's files; a temporary one is removed at the end."""
    if out is None:
        home = Path(tempfile.mkdtemp(prefix="kraft-fleet-"))
        try:
            yield home
        finally:
            shutil.rmtree(home, ignore_errors=True)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InvalidRequestError(f"{out} is not empty: name a new directory (--out)")
    except OSError as error:
        raise StorageError(f"cannot use {out}: {error}") from None
    yield out


def _are_local(addresses: Sequence[Address]) -> bool:
    return all(host in _LOCAL_HOSTS or host.startswith("127.") for host, _ in addresses)


def _controller_processes(
    quorum: OwnQuorum | None, addresses: Sequence[Address]
) -> Callable[[], Mapping[int, int]]:
    """Return a function for the controllers' processes by port, if they are on this machine.

    ``addresses`` are those of all controllers, also of those that no bootstrap address names.
    """
    if quorum is not None:
        return lambda: quorum.processes
    found: dict[int, int] = {}
    if _are_local(addresses):
        found = {port: pid for _, port in addresses for pid in listening_processes([port])}
    return lambda: found


def _label_of(pids: Iterable[int]) -> str:
    """Return the kind of the controllers by the command of their first process."""
    for pid in pids:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        command = arguments.replace(b"\0", b" ").decode(errors="replace")
        if "kafka.Kafka" in command:
            found = re.search(r"kafka[-_](\d+\.\d+\.\d+)", command)
            return f"kafka-{found[1]}" if found else "kafka"
        if "kraft" in command:
            return "kraft"
    return "unknown"
