"""``kraft lab``: scenarios on clusters of a million partitions, and their traces."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import EPILOG, FAILED, FOUND, INTERRUPTED
from kraft.cli.fleet import FleetOptions
from kraft.cli.fleet_cost import fleet_calibrate, fleet_cost
from kraft.cli.fleet_reports import fleet_report, fleet_scaling
from kraft.cli.lab_compare import compare
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.fleet.quorum_kind import QuorumKind

if TYPE_CHECKING:
    from kraft.metadata.facade import Metadata

#: The default seed, in a checkout: the metadata directory of a real cluster's controller.
_SEED_IN_CHECKOUT = Path("tests") / "data" / "kafka-4.3" / "controller-101"

app = typer.Typer(
    help="Run scenarios on clusters of a million partitions.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)


@app.callback()
def _lab() -> None:
    """Run scenarios on clusters of a million partitions."""


app.command("fleet-report", epilog=EPILOG)(fleet_report)
app.command("fleet-scaling", epilog=EPILOG)(fleet_scaling)
app.command("fleet-calibrate", epilog=EPILOG)(fleet_calibrate)
app.command("fleet-cost", epilog=EPILOG)(fleet_cost)
app.command("compare", epilog=EPILOG)(compare)


@app.command("million", epilog=EPILOG)
def million(
    partitions: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=10_000_000, help="The total number of partitions."),
    ] = 1_000_000,
    brokers: Annotated[
        int, typer.Option(metavar="B", min=1, help="The total number of brokers.")
    ] = 300,
    racks: Annotated[
        int,
        typer.Option(
            metavar="R", min=1, help="The number of racks, to which brokers are assigned in turn."
        ),
    ] = 3,
    replication_factor: Annotated[
        int,
        typer.Option(metavar="F", min=1, max=32, help="The replication factor of new partitions."),
    ] = 3,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="The metadata directory to start from. Default: that of a real cluster in the "
            "source tree.",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Write to this new or empty directory and keep it. Default: a temporary directory "
            "that is removed at the end.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the temporary directory and print its path.")
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="SEED", help="The random seed; the same seed repeats the run.")
    ] = 0,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Write every event of the controller to this new file: kind, time, duration, "
            "number of records. `kraft lab trace` reads it.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Grow a real cluster's metadata to a million partitions, fail and recover brokers, reload it.

    Creates the partitions (placed, encoded, appended to a log, fsynced), fences a broker, then the rest of its rack, unfences them, elects preferred leaders, deletes a topic and writes a snapshot. Then drops the state, loads it from disk and compares it column by column. Exit code 4: the loaded state differs.

    [bold]Examples[/bold]

      kraft lab million

      kraft lab million --partitions 10000000 --brokers 1000 --dir /data/lab

      kraft lab million --from /var/lib/kafka/metadata --json

      kraft lab million --trace million.trace && kraft lab trace million.trace
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.open import print_summary, summary
    from kraft.cli.output import Output, progress
    from kraft.lab.million import run
    from kraft.lab.report import HEADINGS
    from kraft.lab.scenario import ScenarioSettings
    from kraft.lab.trace import TraceHeader, TraceWriter

    output = Output(as_json=as_json)
    seeds: list[dict[str, Any]] = []

    def show_seed(metadata: Metadata) -> None:
        seeds.append(summary(metadata))
        if not as_json:
            print_summary(output, seeds[0])

    settings = ScenarioSettings(
        source=from_ or _default_seed(),
        partitions=partitions,
        brokers=brokers,
        racks=racks,
        replication_factor=replication_factor,
        seed=seed,
        directory=directory,
        keep=keep,
    )
    # SIGTERM is handled as Ctrl-C, which removes the temporary directory.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            writer = None
            if trace is not None:
                header = TraceHeader.of("lab million", settings.as_dict())
                writer = stack.enter_context(TraceWriter(trace, header))
            report = run(settings, progress, show_seed, writer)
    except KeyboardInterrupt:
        left = (
            "no files are left"
            if directory is None
            else f"{directory} has the files written so far"
        )
        if trace is not None:
            left += f"; {trace} has the events so far"
        print(f"interrupted: {left}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        output.document({"seed": seeds[0], **report.as_dict()})
    else:
        output.table(report.title, HEADINGS, report.rows(), numbers=HEADINGS[1:])
        output.fields("Result", report.closing())
    if not report.is_equal:
        print("error: the loaded state differs from the dropped one", file=sys.stderr)
        raise typer.Exit(FAILED)


@app.command("fleet", epilog=EPILOG)
@takes_groups
def fleet(
    options: FleetOptions,
    quorum: Annotated[
        QuorumKind,
        typer.Option(
            "--quorum",
            help="Start kraft's controllers, or Apache Kafka's, which need Java 17 and "
            "--kafka-home.",
        ),
    ] = QuorumKind.KRAFT,
    controllers: Annotated[
        int,
        typer.Option("--controllers", metavar="C", min=1, max=9, help="The number of controllers."),
    ] = 3,
    kafka_home: Annotated[
        Path | None,
        typer.Option(
            "--kafka-home",
            metavar="DIR",
            help="The directory of a release of Apache Kafka, or of its jars. Default: KAFKA_HOME.",
            show_default=False,
        ),
    ] = None,
    heap: Annotated[
        str,
        typer.Option(
            "--heap",
            metavar="SIZE",
            help="The heap of each of Apache Kafka's controllers, with G1 as its start script.",
        ),
    ] = "2g",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="K=V",
            help="Add a setting to every controller's configuration. Repeatable.",
            show_default=False,
        ),
    ] = None,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes",
            help="Also end the run when standard input ends, for programs that start runs.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start a quorum, run a cluster of light brokers against it, and measure its controllers.

    As `kraft fleet`, which describes light brokers, with a quorum that lives as long as the run. Only such a run can kill, pause or replace controllers.

    [bold]Examples[/bold]

      kraft lab fleet --brokers 100 --partitions 10000 --scenario rack-loss

      kraft lab fleet --scenario controller-loss --out controller-loss

      kraft lab fleet --quorum kafka --kafka-home /opt/kafka --scenario rack-loss --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.fleet import parse_settings, print_scenarios, run_request
    from kraft.fleet.launch import FleetRequest

    if options.list_scenarios:
        print_scenarios(as_json=as_json)
        return
    scenario = options.read_scenario()
    run_request(
        FleetRequest(
            options.settings(scenario),
            options.partitions,
            scenario,
            out=options.out,
            quorum=quorum.value,
            controllers=controllers,
            kafka_home=kafka_home,
            heap=heap,
            quorum_settings=parse_settings(setting or []),
        ),
        as_json=as_json,
        until_stdin_closes=until_stdin_closes,
    )


@app.command("trace", epilog=EPILOG)
def trace(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Traces that --trace wrote."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Summarize traces: the number of events of each kind, and how long they took.

    [bold]Examples[/bold]

      kraft lab trace million.trace

      kraft lab trace million.trace --json | jq '.kinds[] | select(.what == "append") | .p99Seconds'
    """
    from kraft.cli.output import Output
    from kraft.lab.trace import Trace
    from kraft.lab.trace_summary import HEADINGS, TraceSummary

    output = Output(as_json=as_json)
    summary = TraceSummary.of(Trace(path) for path in files)
    if as_json:
        output.document(summary.as_dict())
    else:
        output.table(summary.title, HEADINGS, summary.rows(), numbers=HEADINGS[1:])
    for torn in summary.torn:
        output.note(
            f"torn: {torn.size} bytes from byte {torn.position} of {torn.path} are skipped "
            f"({torn.reason})"
        )
    if summary.torn:
        raise typer.Exit(FOUND)


def _default_seed() -> Path:
    """Return the seed in this package's checkout, or in the current directory."""
    for root in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (root / _SEED_IN_CHECKOUT).is_dir():
            return root / _SEED_IN_CHECKOUT
    from kraft.errors import StorageError

    raise StorageError(
        f"there is no {_SEED_IN_CHECKOUT} to start from: name a metadata directory (--from)"
    )
