"""``kraft sweep fleet``: run the fleet at many sizes and seeds, and fit how its measures grow."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.exit_codes import FAILED, INTERRUPTED
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraft.fleet.scaling_report import ScalingReport
    from kraft.fleet.sweep_directory import SweepDirectory
    from kraft.fleet.sweep_grid import SweepSettings, SweptRun
    from kraft.fleet.swept_run import SweptRunResult

#: They end a sweep as Ctrl-C does: the second is a terminal that is closed.
_INTERRUPTS = (signal.SIGTERM, signal.SIGHUP)


def fleet(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write runs, tables and laws to this directory: a new one, or that of a sweep, "
            "which goes on with the runs that are left.",
            show_default=False,
        ),
    ],
    brokers: Annotated[
        str, typer.Option("--brokers", metavar="N[,N…]", help="The numbers of light brokers.")
    ] = "10,30,100",
    partitions: Annotated[
        str, typer.Option("--partitions", metavar="M[,M…]", help="The numbers of partitions.")
    ] = "1000,3000,10000",
    seeds: Annotated[
        str,
        typer.Option("--seeds", metavar="S[,S…]", help="The seeds; each runs every size."),
    ] = "0",
    scenario: Annotated[
        str,
        typer.Option(
            "--scenario",
            metavar="FILE|NAME",
            help="A YAML or JSON file, or the name of a scenario (kraft fleet --list-scenarios).",
        ),
    ] = "rack-loss",
    quorum: Annotated[
        str,
        typer.Option(
            "--quorum",
            metavar="KIND[,KIND]",
            help="The controllers of the runs: kraft, kafka, or both. Apache Kafka's need Java 17 "
            "and --kafka-home.",
        ),
    ] = "kraft",
    controllers: Annotated[
        int,
        typer.Option(
            "--controllers", metavar="C", min=1, max=9, help="The number of controllers of a run."
        ),
    ] = 3,
    racks: Annotated[
        int, typer.Option("--racks", metavar="R", min=1, help="The racks of the brokers.")
    ] = 3,
    regions: Annotated[
        int, typer.Option("--regions", metavar="G", min=1, help="The regions of the racks.")
    ] = 1,
    kafka_home: Annotated[
        Path | None,
        typer.Option(
            "--kafka-home",
            metavar="DIR",
            help="The directory of a release of Apache Kafka, or of its jars, on every machine. "
            "Default: KAFKA_HOME.",
            show_default=False,
        ),
    ] = None,
    heap: Annotated[
        str,
        typer.Option(
            "--heap", metavar="SIZE", help="The heap of each of Apache Kafka's controllers."
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
    time_limit_s: Annotated[
        float,
        typer.Option(
            "--time-limit-s",
            metavar="S",
            min=1,
            help="End a run after so many seconds; it counts as failed.",
        ),
    ] = 1800.0,
    runs_at_once: Annotated[
        int,
        typer.Option(
            "--runs-at-once",
            metavar="N",
            min=1,
            max=64,
            help="The runs that a machine carries out at a time. Runs disturb each other: a number "
            "above 1 is for machines with many cores.",
        ),
    ] = 1,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            "--work-dir",
            metavar="DIR",
            help="The directory of each machine for the files of running quorums. Default: the one "
            "for temporary files.",
            show_default=False,
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Run on this Spark cluster (spark://host:7077), whose machines have the same "
            "kraft. Default: Spark on this machine.",
            show_default=False,
        ),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            "--measure",
            metavar="GLOB",
            help="Print only measures that match this glob: applied, *_cpu. Default: all.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            metavar="GLOB",
            help="Print only steps that match this glob; '(run)' is the whole run. Default: all.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the fleet at every size, with every seed and quorum, spread by Spark; fit scaling laws.

    Each run is a `kraft lab fleet` with a quorum of its own, in a process of an executor. A run that has finished is kept; if the command is started again, it carries out the runs that are left, also those that failed, and any new sizes and seeds. Needs Java 17 and the extras spark and report.

    Fits value ~ size ^ exponent to every measure, against brokers and against partitions, and looks for knees, as `kraft lab fleet-scaling`. Laws need three sizes, knees five. Exit code 4: a run failed.

    [bold]Examples[/bold]

      kraft sweep fleet --brokers 10,30,100 --partitions 1000,3000,10000 --seeds 0,1 --out sweep

      kraft sweep fleet --quorum kraft,kafka --kafka-home /opt/kafka --scenario start --out sweep

      kraft sweep fleet --brokers 100,300,1000 --master spark://head:7077 --out sweep --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.extras import naming_extra
    from kraft.cli.fleet import parse_settings
    from kraft.fleet.library import find_scenario
    from kraft.fleet.sweep_directory import SweepDirectory
    from kraft.fleet.sweep_grid import SweepSettings, check_sweep, grid

    runs = grid(brokers, partitions, seeds, quorum)
    settings = SweepSettings(
        find_scenario(scenario),
        racks,
        regions,
        controllers,
        heap,
        None if kafka_home is None else kafka_home.resolve(),
        parse_settings(setting or []),
        time_limit_s,
    )
    with naming_extra("report"):
        # Laws and page come last: a package that they lack is named before hours of runs.
        import plotly  # noqa: F401
        import scipy  # noqa: F401
    work = None if work_dir is None else work_dir.resolve()
    is_here = master is None or master.startswith("local")
    check_sweep(
        settings,
        runs,
        work=(work or Path(tempfile.gettempdir())) if is_here else None,
        runs_at_once=runs_at_once,
    )
    with naming_extra("spark"):
        from kraft.spark.session import spark_session
    for number in _INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    with SweepDirectory(out, settings) as directory:
        progress = _SweepProgress(runs, directory)
        try:
            with spark_session(
                master=master or "local[*]", app_name="kraft sweep fleet", memory="1g"
            ) as session:
                _carry_out(session, progress, settings, work, runs_at_once)
                report = _write_laws(session, directory)
        except KeyboardInterrupt as interrupt:
            _say_interrupted(interrupt, progress)
            raise typer.Exit(INTERRUPTED) from None
    _print(report, progress, measure=measure, step=step, as_json=as_json)
    if progress.failed:
        raise typer.Exit(FAILED)


class _SweepProgress:
    """The runs that have ended; each is a line on standard error."""

    def __init__(self, runs: list[SweptRun], directory: SweepDirectory) -> None:
        self.directory = directory
        self.left = directory.left(runs)
        self.known = len(runs) - len(self.left)
        self.finished: list[SweptRunResult] = []
        self.failed: list[SweptRunResult] = []
        self._has_waited = False
        if self.known:
            _say(f"{self.known} of {len(runs)} runs have finished before")

    def ended(self, result: SweptRunResult) -> None:
        """Keep the files of a run, and print how it ended."""
        from kraft.fleet.swept_run import SweptRunOutcome
        from kraft.spark.fleet_sweep import write_tables

        self.directory.keep(result)
        is_finished = result.outcome is SweptRunOutcome.FINISHED
        if is_finished:
            write_tables(self.directory, result.run.name)
        (self.finished if is_finished else self.failed).append(result)
        ended = len(self.finished) + len(self.failed)
        reason = f": {result.reason}" if result.reason else f" in {result.seconds:.0f} s"
        _say(f"run {ended} of {len(self.left)}: {result.run.title}: {result.outcome.value}{reason}")

    def waits(self, run: SweptRun) -> None:
        """Say, once, that another sweep has this machine."""
        if not self._has_waited:
            self._has_waited = True
            _say("waiting: other runs of a sweep use this machine")

    def as_dict(self) -> dict[str, object]:
        """Return the runs as JSON."""
        return {
            "directory": str(self.directory.path),
            "finishedBefore": self.known,
            "finished": [
                {"run": each.run.name, "seconds": each.seconds, "machine": each.machine}
                for each in self.finished
            ],
            "failed": [
                {"run": each.run.name, "outcome": each.outcome.value, "reason": each.reason}
                for each in self.failed
            ],
        }


def _carry_out(
    session: SparkSession,
    progress: _SweepProgress,
    settings: SweepSettings,
    work: Path | None,
    runs_at_once: int,
) -> None:
    from kraft.spark.fleet_sweep import carry_out_runs

    carry_out_runs(
        session,
        progress.left,
        settings,
        progress.ended,
        progress.waits,
        work=work,
        runs_at_once=runs_at_once,
    )


def _write_laws(session: SparkSession, directory: SweepDirectory) -> ScalingReport:
    """Fit the laws of all finished runs and write them, their page and the benchmark file."""
    from kraft.fleet.scaling_page import page
    from kraft.fleet.sweep_benchmark import sweep_document
    from kraft.fleet.sweep_directory import LAWS_FILE, PAGE_FILE, SWEEP_BENCHMARK_FILE
    from kraft.fleet.traces import read_info
    from kraft.spark.fleet_sweep import laws_of_sweep

    report, points = laws_of_sweep(session, directory)
    if not report.runs:
        return report
    infos = [read_info(directory.run_directory(name)) for name in directory.finished()]
    directory.write_document(LAWS_FILE, report.as_dict())
    directory.write_document(SWEEP_BENCHMARK_FILE, sweep_document(points, infos))
    directory.write_text(PAGE_FILE, page(report, title="Sweep of the fleet"))
    return report


def _say_interrupted(interrupt: KeyboardInterrupt, progress: _SweepProgress) -> None:
    left = len(progress.left) - len(progress.finished)
    notes = "".join(f"; {note}" for note in getattr(interrupt, "__notes__", ()))
    _say(f"interrupted: {left} runs are left, the same command goes on with them{notes}")


def _print(
    report: ScalingReport,
    progress: _SweepProgress,
    *,
    measure: str | None,
    step: str | None,
    as_json: bool,
) -> None:
    from kraft.cli.fleet_reports import show_scaling
    from kraft.cli.output import Output
    from kraft.fleet.sweep_directory import PAGE_FILE

    output = Output(as_json=as_json)
    shown = report.only(measure=measure, step=step)
    if as_json:
        output.document({"sweep": progress.as_dict(), **shown.as_dict()})
    else:
        show_scaling(output, shown)
        if report.runs:
            output.note(f"wrote {progress.directory.path / PAGE_FILE}")
    for each in progress.failed:
        place = progress.directory.failed_directory(each.run.name)
        _say(f"error: {each.run.title}: {each.reason} ({place})")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
