"""``kraft fleet``: many light brokers against a quorum, over real sockets."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.exit_codes import EPILOG, FAILED, INTERRUPTED
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.fleet.fleet import FleetSettings
    from kraft.fleet.launch import FleetReport, FleetRequest
    from kraft.fleet.scenario import FleetScenario

app = typer.Typer(add_completion=False, epilog=EPILOG)

#: A step that takes longer than this times the floor of copying did not wait for copies.
_MOST_RATIO = 1000.0
#: They end a run as Ctrl-C does: the second is a terminal that is closed.
_INTERRUPTS = (signal.SIGTERM, signal.SIGHUP)
#: How long a run that was interrupted by the end of its input may take to end its processes.
_END_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of every run of a fleet."""

    brokers: Annotated[
        int, typer.Option("--brokers", metavar="N", min=1, help="The number of light brokers.")
    ] = 100
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            metavar="M",
            min=0,
            max=20_000_000,
            help="The partitions that the step create_topics of a scenario creates.",
        ),
    ] = 10_000
    scenario: Annotated[
        str,
        typer.Option(
            "--scenario",
            metavar="FILE|NAME",
            help="A YAML or JSON file, or the name of a scenario (--list-scenarios).",
        ),
    ] = "idle"
    racks: Annotated[
        int, typer.Option("--racks", metavar="R", min=1, help="The racks of the brokers.")
    ] = 3
    regions: Annotated[
        int,
        typer.Option("--regions", metavar="G", min=1, help="The regions of the racks."),
    ] = 1
    directories: Annotated[
        int,
        typer.Option(
            "--directories",
            metavar="D",
            min=1,
            max=64,
            help="The log directories of each broker. With several, brokers report the directory "
            "of each replica (AssignReplicasToDirs).",
        ),
    ] = 1
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="P",
            min=1,
            max=256,
            help="The processes of light brokers. Default: one for 500 brokers, at most one a "
            "core.",
            show_default=False,
        ),
    ] = None
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="SEED",
            help="The seed of random choices; one in the scenario's file wins.",
        ),
    ] = 0
    lag_ms: Annotated[
        float,
        typer.Option(
            "--replica-lag-ms",
            metavar="MS",
            min=1,
            help="replica.lag.time.max.ms of the brokers: how long a replica may lag before its "
            "leader removes it from the ISR, in ms.",
        ),
    ] = 30_000.0
    cold: Annotated[
        bool,
        typer.Option(
            "--cold",
            help="Let every broker fetch all metadata itself when it starts. Default: the first "
            "broker of a process does, and the others start with its log.",
        ),
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write run.json, trace.jsonl and benchmark.json to this new or empty directory. "
            "Default: they are not kept.",
            show_default=False,
        ),
    ] = None
    list_scenarios: Annotated[
        bool, typer.Option("--list-scenarios", help="Print the names of the scenarios and exit.")
    ] = False

    def read_scenario(self) -> FleetScenario:
        """Return the scenario of a file or of the library. Raises InvalidConfigError."""
        from kraft.fleet.library import find_scenario

        return find_scenario(self.scenario)

    def settings(self, scenario: FleetScenario, properties: str = "") -> FleetSettings:
        """Return the settings of the fleet."""
        from kraft.fleet.fleet import FleetSettings
        from kraft.fleet.limits import default_processes

        return FleetSettings(
            self.brokers,
            self.processes or default_processes(self.brokers),
            self.racks,
            self.regions,
            self.directories,
            self.seed if scenario.seed is None else scenario.seed,
            lag_ms=self.lag_ms,
            is_cold=self.cold,
            properties=properties,
        )


@app.command("fleet", epilog=EPILOG)
@takes_groups
def fleet(
    options: FleetOptions,
    bootstrap_controllers: Annotated[
        str,
        typer.Option(
            "--bootstrap-controllers",
            metavar="HOST:PORT,…",
            help="The controllers of the quorum, kraft's or Apache Kafka's.",
            show_default=False,
        ),
    ] = "",
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="A Kafka client's .properties file for every connection: security.protocol, "
            "ssl.*, sasl.mechanism, sasl.jaas.config.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str,
        typer.Option(
            "--label",
            metavar="NAME",
            help="The name of the quorum in run.json. Default: found by the controllers' "
            "processes, where they run on this machine.",
            show_default=False,
        ),
    ] = "",
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Keep the metadata of the brokers in this directory, a snapshot for each process. "
            "The next run against the same quorum starts its brokers from it. Default: they keep "
            "nothing.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a cluster of light brokers against a running quorum, and measure its controllers.

    A light broker registers, sends heartbeats, fetches the metadata log and changes ISRs as a broker of Apache Kafka does, and stores no records. The scenario creates topics on the quorum, which must not be used for anything else. `kraft lab fleet` starts a quorum of its own.

    [bold]Examples[/bold]

      kraft up --controllers 3

      kraft fleet --bootstrap-controllers localhost:20001 --brokers 100 --partitions 10000

      kraft fleet --bootstrap-controllers localhost:20001 --brokers 1000 --partitions 1000000 --scenario rack-loss --out rack-loss

      kraft fleet --bootstrap-controllers localhost:20001 --brokers 1000 --scenario start-again --state fleet-state

      kraft fleet --list-scenarios
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.fleet.launch import FleetRequest

    if options.list_scenarios:
        print_scenarios(as_json=as_json)
        return
    if not bootstrap_controllers:
        raise typer.BadParameter(
            "name the controllers; kraft lab fleet starts a quorum of its own",
            param_hint="--bootstrap-controllers",
        )
    scenario = options.read_scenario()
    properties = "" if command_config is None else str(command_config)
    run_request(
        FleetRequest(
            options.settings(scenario, properties),
            options.partitions,
            scenario,
            bootstrap_controllers,
            options.out,
            label,
            state=state,
        ),
        as_json=as_json,
    )


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings of ``--setting K=V``. Raises BadParameter for other forms."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not of the form K=V", param_hint="--setting")
        settings[name.strip()] = value.strip()
    return settings


def print_scenarios(*, as_json: bool) -> None:
    """Print the names and descriptions of the library's scenarios."""
    from kraft.cli.output import Output
    from kraft.fleet.library import named_scenario, scenario_names

    rows = [(name, named_scenario(name).description) for name in scenario_names()]
    out = Output(as_json=as_json)
    if as_json:
        out.document([{"name": name, "description": text} for name, text in rows])
        return
    out.table("scenarios", ("Name", "Description"), rows)


def run_request(request: FleetRequest, *, as_json: bool, until_stdin_closes: bool = False) -> None:
    """Run a fleet with its progress; print the report. Exit code 4: the check found a problem.

    With ``until_stdin_closes`` the end of standard input ends the run as Ctrl-C does.
    """
    from kraft.fleet.launch import FleetView, run_fleet

    for number in _INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    if until_stdin_closes:
        threading.Thread(target=_interrupt_when_stdin_closes, daemon=True).start()
    view = FleetView()
    try:
        with _progress(view):
            report = run_fleet(request, view, lambda step: _note_step(step.name))
    except KeyboardInterrupt:
        kept = "" if request.out is None else f"; {request.out} has the events so far"
        print(f"interrupted: every process of the run has ended{kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _print_report(report, request, as_json=as_json)
    if report.conservation.problems:
        for problem in report.conservation.problems:
            print(f"error: {problem}", file=sys.stderr)
        raise typer.Exit(FAILED)


def _interrupt_when_stdin_closes() -> None:
    """Send SIGTERM to this process once standard input ends; kill it if that takes too long."""
    # Not sys.stdin: the interpreter waits for its lock at exit.
    while os.read(0, 1 << 12):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_TIMEOUT_S)
    # Controllers and light brokers end with the pipes of this process.
    os.kill(os.getpid(), signal.SIGKILL)


def _note_step(name: str) -> None:
    from kraft.fleet.texts import STEP_PREFIX

    if not sys.stderr.isatty():
        print(f"{STEP_PREFIX}{name}", file=sys.stderr, flush=True)


@contextmanager
def _progress(view: object) -> Iterator[None]:
    """Show the state of the run on a terminal, twice a second."""
    from kraft.fleet.launch import FleetView

    assert isinstance(view, FleetView)
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner = Spinner("dots")

    def shown() -> Spinner:
        spinner.update(text=view.line())
        return spinner

    with Live(
        get_renderable=shown,
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
    ):
        yield


def _print_report(report: FleetReport, request: FleetRequest, *, as_json: bool) -> None:
    from kraft.cli.output import Output
    from kraft.fleet.fleet import LONG_DELAY_MS
    from kraft.fleet.launch import summary

    out = Output(as_json=as_json)
    if as_json:
        out.document(report.as_dict())
        return
    rows = []
    for (step, name), values in report.values.items():
        # The duration of a step is in seconds, every other measure in milliseconds.
        scale = 1000.0 if name == "step_ended" else 1.0
        found = summary([value * scale for value in values])
        rows.append(
            (
                step,
                "duration" if name == "step_ended" else name,
                f"{found['count']:.0f}",
                *(f"{found[each]:.1f}" for each in ("p50", "p99", "worst")),
                "ms",
            )
        )
    run, check = report.run, report.conservation
    out.table(
        f"{run.scenario}: {run.brokers} brokers, {run.partitions} partitions, quorum {run.quorum}",
        ("Step", "Measure", "Count", "p50", "p99", "Worst", "Unit"),
        rows,
        numbers=("Count", "p50", "p99", "Worst"),
    )
    kinds = ("controller_cpu", "active_controller_cpu", "fleet_cpu")
    cores = [
        (step, *(f"{means[name]:.3f}" if name in means else "-" for name in kinds))
        for step, means in report.cpu.items()
    ]
    headings = ("Step", "Controllers", "Active one", "Fleet")
    out.table("mean cores", headings, cores, numbers=headings[1:])
    _print_own_cost(out, report)
    shared = 1 - report.decoded_bytes / report.received_bytes if report.received_bytes else 0.0
    fields = {
        "Received by all brokers": f"{report.received_bytes} bytes",
        "Decoded": f"{report.decoded_bytes} bytes: the brokers of each of {run.processes} "
        f"processes share one state, {shared:.1%} was compared and not decoded again",
        "Fleet's own delay": f"up to {report.worst_delay_ms:.0f} ms"
        + (
            ": its processes had too little CPU time, and heartbeats were late for that reason"
            if report.worst_delay_ms > LONG_DELAY_MS
            else ""
        ),
        "Check": f"{check.checked_brokers} brokers have the {check.partitions} partitions of the "
        f"controllers at offset {check.offset}"
        if not check.problems
        else "failed",
    }
    for (step, name), values in report.values.items():
        if name == "all_unfenced":
            fields[f"Up and unfenced, {step}"] = (
                f"{run.brokers} brokers after {max(values) / 1000:.2f} s"
            )
        if name == "in_sync_everywhere":
            fields[f"In sync everywhere, {step}"] = f"after {max(values) / 1000:.2f} s"
    if report.loaded_offset is not None:
        fields["Started from"] = (
            f"the snapshot at offset {report.loaded_offset}, loaded once by each process"
        )
    if report.catch_up is not None:
        missed = report.catch_up
        fields["Caught up"] = (
            f"{missed.bytes} bytes of the log behind the snapshot, to offset {missed.offset}, in "
            f"{missed.seconds:.2f} s: fetched once by each process, for all of its brokers"
        )
    if report.saved_offset is not None:
        fields["State"] = f"{request.state} has a snapshot of each process for the next run"
    if report.outcomes:
        fields["Requests for partitions"] = _counts(report.outcomes)
    if report.failures:
        fields["Failed requests"] = _counts(report.failures)
    if request.out is not None:
        fields["Files"] = str(request.out)
    out.fields("Result", list(fields.items()))


def _print_own_cost(out: Output, report: FleetReport) -> None:
    """Print the fleet's own part of the measures, and the floor of copying."""
    from kraft.fleet.own_cost import LARGE_SHARE

    headings = ("Step", "Measure", "Mean", "Own", "+-", "Share", "Without", "Unit")
    shares = [
        (
            each.step,
            each.name,
            f"{each.mean_ms:.1f}",
            f"{'<= ' if each.is_bound else ''}{each.own_ms:.2f}",
            f"{each.error_ms:.2f}",
            f"{each.share:.1%}",
            f"{each.rest_ms:.1f}" if each.share >= LARGE_SHARE else "-",
            "ms",
        )
        for each in report.own_shares
    ]
    if shares:
        out.table("the fleet's own part of the measures", headings, shares, numbers=headings[2:7])
    cpu = [
        (
            each.step,
            *(f"{value:.2f}" for value in (each.cpu_s, each.applied.total / 1000, each.fan_out_s)),
        )
        for each in report.uses
    ]
    kinds = ("Fleet", "Applying, once a process", "Fan-out to each broker")
    out.table("CPU seconds of the fleet", ("Step", *kinds), cpu, numbers=kinds)
    floors = [
        (
            each.step,
            f"{each.received_bytes / 1e6:.1f} MB",
            f"{each.floor_s:.3f} s",
            f"{each.seconds:.2f} s",
            f"{each.ratio:.1f}" if each.ratio < _MOST_RATIO else "-",
        )
        for each in report.copy_floors
    ]
    if floors and report.copied_bytes_per_s is not None:
        columns = ("Received", "Floor of copying", "Time", "Time / floor")
        title = f"copies, at {report.copied_bytes_per_s / 1e9:.2f} GB/s through loopback"
        out.table(title, ("Step", *columns), floors, numbers=columns)


def _counts(counts: object) -> str:
    assert isinstance(counts, dict)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
