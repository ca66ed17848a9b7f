"""``kraft lab compare``: the same script against three generations of Kafka's controller."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.exit_codes import FAILED, FOUND, INTERRUPTED
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.generations.comparison import ComparisonReport
    from kraft.generations.measures import RunResult

#: They end a comparison as Ctrl-C does: the second is a terminal that is closed.
_INTERRUPTS = (signal.SIGTERM, signal.SIGHUP)


def compare(
    partitions: Annotated[
        str,
        typer.Option(
            "--partitions",
            metavar="N[,N…]",
            help="The sizes of the cluster. Exponents need three sizes or more.",
        ),
    ] = "100,1000,10000",
    brokers: Annotated[
        int,
        typer.Option("--brokers", metavar="B", min=3, max=500, help="The number of light brokers."),
    ] = 10,
    modes: Annotated[
        str,
        typer.Option(
            "--modes",
            metavar="MODE[,MODE…]",
            help="The controllers to compare; --list-modes prints all.",
        ),
    ] = "kraft,zk-2018,zk-2018-sync",
    kafka_home: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka-home",
            metavar="VERSION=DIR",
            help="The directory of a release of Apache Kafka, or of its jars, such as "
            "4.3=/opt/kafka. Repeatable. Default: KAFKA_HOME, where its version is the needed one.",
            show_default=False,
        ),
    ] = None,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", metavar="R", min=2, max=32, help="The replicas of a partition."
        ),
    ] = 3,
    partitions_per_topic: Annotated[
        int,
        typer.Option(
            "--partitions-per-topic",
            metavar="N",
            min=1,
            max=8_000,
            help="The partitions of a topic.",
        ),
    ] = 1000,
    time_limit_s: Annotated[
        float,
        typer.Option(
            "--time-limit-s",
            metavar="S",
            min=1,
            help="End a run after so many seconds, and do not try larger sizes of its mode.",
        ),
    ] = 600.0,
    session_timeout_ms: Annotated[
        int,
        typer.Option(
            "--session-timeout-ms",
            metavar="MS",
            min=4000,
            max=40_000,
            help="The timeout of ZooKeeper sessions. KRaft has its defaults: 9 s for brokers, 2 s "
            "for the fetches of controllers.",
        ),
    ] = 6000,
    heap: Annotated[
        str,
        typer.Option(
            "--heap", metavar="SIZE", help="The heap of each process of Apache Kafka, with G1."
        ),
    ] = "2g",
    seed: Annotated[
        int, typer.Option("--seed", metavar="SEED", help="The seed of the placement of replicas.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write results.json, benchmark.json (pytest-benchmark's format) and compare.html "
            "to this new or empty directory.",
            show_default=False,
        ),
    ] = None,
    list_modes: Annotated[
        bool, typer.Option("--list-modes", help="Print the modes and what they need; run nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run one script against controllers of three generations, and fit how its times grow.

    The script creates topics, stops a broker by a controlled shutdown, kills another one, kills the active controller, and restarts everything. A step ends when the last broker knows its outcome. All processes run on this machine, on loopback. Modes on ZooKeeper and those of Apache Kafka need Java 17.

    Each mode has a largest size; larger ones are extrapolated from its last three sizes and marked with ~. Exit code 3: a run reached its time limit; 4: a run failed.

    [bold]Examples[/bold]

      kraft lab compare --partitions 100,1000,10000 --out comparison

      kraft lab compare --modes kraft,kafka-4.3 --kafka-home 4.3=/opt/kafka --partitions 1000,100000,1000000

      kraft lab compare --modes zk-2018,kafka-1.1.1 --kafka-home 1.1.1=/opt/kafka-1.1.1 --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.generations.comparison import ComparisonRequest, report_of
    from kraft.generations.comparison import compare as run_comparison
    from kraft.generations.measures import Outcome
    from kraft.generations.modes import parse_homes, parse_modes, parse_sizes
    from kraft.generations.results import write_results

    if list_modes:
        _print_modes(as_json=as_json)
        return
    request = ComparisonRequest(
        parse_modes(modes),
        parse_sizes(partitions),
        brokers,
        replication_factor,
        partitions_per_topic,
        time_limit_s,
        session_timeout_ms,
        heap,
        seed,
        {release: Path(home) for release, home in parse_homes(kafka_home or []).items()},
        out,
    )
    for number in _INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    view = _View(len(request.modes) * len(request.sizes))
    try:
        with _progress(view):
            report = run_comparison(request, view.step, view.ended)
    except KeyboardInterrupt:
        kept = ""
        if out is not None and view.runs:
            write_results(report_of(request, view.runs), out)
            kept = f"; {out} has the runs so far"
        print(f"interrupted: every process of the comparison has ended{kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _print_report(report, as_json=as_json)
    if out is not None:
        write_results(report, out)
    outcomes = {run.outcome for run in report.runs}
    if Outcome.FAILED in outcomes:
        raise typer.Exit(FAILED)
    if Outcome.TIMED_OUT in outcomes:
        raise typer.Exit(FOUND)


class _View:
    """The progress: a line on a terminal, else a line for each run that has ended."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.text = "starting"
        #: The runs that have ended.
        self.runs: list[RunResult] = []

    def step(self, run: RunResult, step: str) -> None:
        """Show the step of the present run."""
        self.text = (
            f"run {len(self.runs) + 1} of {self.total}: {run.mode}, {run.partitions:,} partitions: "
            f"{step}"
        )

    def ended(self, run: RunResult) -> None:
        """Print how a run ended."""
        self.runs.append(run)
        reason = f": {run.reason}" if run.reason else ""
        print(
            f"run {len(self.runs)} of {self.total}: {run.mode}, {run.partitions:,} partitions: "
            f"{run.outcome.value}{reason}",
            file=sys.stderr,
            flush=True,
        )


@contextmanager
def _progress(view: _View) -> Iterator[None]:
    """Show the present step on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner = Spinner("dots")

    def shown() -> Spinner:
        spinner.update(text=view.text)
        return spinner

    with Live(
        get_renderable=shown,
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
    ):
        yield


def _print_modes(*, as_json: bool) -> None:
    from kraft.cli.output import Output
    from kraft.generations.modes import MODES

    out = Output(as_json=as_json)
    if as_json:
        out.document(
            [
                {
                    "mode": mode.name,
                    "title": mode.title,
                    "metadata": mode.store.value,
                    "largest": mode.largest,
                    "kafkaRelease": mode.release or None,
                }
                for mode in MODES.values()
            ]
        )
        return
    rows = [
        (mode.name, mode.title, f"{mode.largest:,}", mode.release and f"{mode.release}=DIR")
        for mode in MODES.values()
    ]
    out.table("", ("Mode", "Controller", "Largest", "--kafka-home"), rows, numbers=("Largest",))


def _print_report(report: ComparisonReport, *, as_json: bool) -> None:
    from kraft.cli.output import Output
    from kraft.fleet.texts import value_text
    from kraft.generations.page import exponent_text, tail_text

    out = Output(as_json=as_json)
    if as_json:
        out.document(report.as_dict())
        return
    sizes = report.request.sizes
    rows: list[Sequence[str]] = []
    for curve in report.curves:
        values = {
            size: value_text(value, "s")
            for size, value in zip(curve.sizes, curve.seconds, strict=True)
        }
        values |= {size: f"~{value_text(value, 's')}" for size, value in curve.beyond}
        rows.append(
            (
                curve.title,
                curve.mode,
                *(values.get(size, "-") for size in sizes),
                exponent_text(curve),
                tail_text(curve),
            )
        )
    columns = [f"{size:,}" for size in sizes]
    headings = ("Measure", "Mode", *columns, "Exponent [95 %]", "Last 3")
    out.table(
        f"{report.request.brokers} brokers; times by partitions, ~ extrapolated",
        headings,
        rows,
        numbers=headings[2:],
    )
