"""``kraft lab fleet-report`` and ``fleet-scaling``: what runs of the fleet measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.exit_codes import FOUND, INTERRUPTED
from kraft.cli.options import JsonOption, SweepMasterOption, SweepSparkOption
from kraft.errors import MissingPackageError

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.fleet.scaling_report import ScalingReport

SkipBadLinesOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad-lines",
        help="Skip lines of a trace that break its rules, report them, and exit with code 3. "
        "Default: the first one is an error.",
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write an HTML page with plots to this file.",
        show_default=False,
    ),
]

_SCALING_HEADINGS = (
    "quorum", "scenario", "step", "measure", "against", "exponent", "+-", "sizes", "runs",
    "10x the size", "knee",
)  # fmt: skip
_NUMBERS = ("exponent", "+-", "sizes", "runs", "10x the size")


def fleet_report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN2]", help="The directory of one run, or of two to compare."
        ),
    ],
    html: HtmlOption = None,
    skip_bad_lines: SkipBadLinesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Report what one run of the fleet measured, or compare two runs, such as two quorums.

    Prints percentiles of every time, and CPU, memory, disk and network bytes, for each step of the scenario and for the run. The HTML page also has the timeline of the scenario: its steps and faults, brokers, CPU, memory, lag and the time from commit to applied.

    [bold]Examples[/bold]

      kraft lab fleet-report runs/kraft --html report.html

      kraft lab fleet-report runs/kraft runs/kafka --html report.html

      kraft lab fleet-report runs/kraft --json | jq '.measures[] | select(.name == "decided")'
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output
    from kraft.fleet.measures import table_of
    from kraft.fleet.texts import ratio_text, value_text
    from kraft.fleet.traces import read_run, run_labels

    if len(runs) > 2:
        raise typer.BadParameter(
            f"{len(runs)} runs; a report has one or two (fleet-scaling reads many)",
            param_hint="RUN [RUN2]",
        )
    output = Output(as_json=as_json)
    read = [read_run(path, skip_bad_lines=skip_bad_lines) for path in runs]
    if html is not None:
        with _needing_report_extra():
            from kraft.fleet.report_page import page

            text = page(read)
        html.write_text(text, encoding="utf-8")
    rows = table_of(read)
    problems = [str(problem) for run in read for problem in run.problems]
    if as_json:
        output.document(
            {
                "runs": [run.info.as_dict() for run in read],
                "steps": [
                    [
                        {"step": span.step, "beginMs": span.begin_ms, "endMs": span.end_ms,
                         "complete": span.is_complete}
                        for span in run.trace.spans
                    ]
                    for run in read
                ],
                "faults": [[fault._asdict() for fault in run.trace.faults] for run in read],
                "measures": [{**row._asdict(), "ratio": row.ratio} for row in rows],
                "problems": problems,
            }
        )  # fmt: skip
    else:
        names = run_labels(read)
        compares = ["second / first"] if len(read) == 2 else []
        output.table(
            "\n".join(run.info.title for run in read),
            ["step", "measure", "statistic", *names, *compares],
            [
                (
                    row.step,
                    row.name.replace("_", " "),
                    row.statistic,
                    *(value_text(value, row.unit) for value in row.values),
                    *([ratio_text(row.ratio)] if compares else []),
                )
                for row in rows
            ],
            numbers=[*names, *compares],
        )
        if html is not None:
            output.note(f"wrote {html}")
    interrupted = [text for run in read for text in run.interruptions()]
    _report_problems(output, problems, interrupted)


def fleet_scaling(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", help="Directories of runs, or folders with such directories below."
        ),
    ],
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB",
            help="Only measures that match this glob: applied, *_cpu. Default: all.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB",
            help="Only steps that match this glob; '(run)' is the whole run. Default: all.",
            show_default=False,
        ),
    ] = None,
    html: HtmlOption = None,
    skip_bad_lines: SkipBadLinesOption = False,
    master: SweepMasterOption = None,
    spark: SweepSparkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit how times and sizes grow with brokers and partitions over many runs of the fleet.

    Fits value ~ size ^ exponent to each measure of each quorum, scenario and step, against brokers at equal partitions and against partitions at equal brokers, with the standard error of the exponent. Needs runs of three sizes; seeds are further runs of a size. Finds a knee, a size above which the exponent differs, if the F test and BIC both prefer two segments.

    [bold]Examples[/bold]

      kraft lab fleet-scaling runs --html scaling.html

      kraft lab fleet-scaling runs --measure applied --step '(run)' --json

      kraft lab fleet-scaling /data/runs --master spark://head:7077
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    try:
        with _needing_report_extra():
            report = _scaling(paths, skip_bad_lines, master, spark, quiet=as_json)
    except KeyboardInterrupt:
        print("interrupted: no files are left", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    report = report.only(measure=measure, step=step)
    if html is not None:
        from kraft.fleet.scaling_page import page

        html.write_text(page(report), encoding="utf-8")
    if as_json:
        output.document(report.as_dict())
    else:
        show_scaling(output, report)
        if html is not None:
            output.note(f"wrote {html}")
    _report_problems(output, [str(problem) for problem in report.problems], report.interrupted)


def _scaling(
    paths: list[Path], skip_bad_lines: bool, master: str | None, spark: bool, *, quiet: bool
) -> ScalingReport:
    from kraft.fleet.traces import run_directories

    directories = run_directories(paths)
    if not spark and master is None:
        from kraft.cli.output import progress
        from kraft.fleet.scaling_report import scaling_of

        with progress("read runs", len(directories)) as advance:
            return scaling_of(directories, skip_bad_lines=skip_bad_lines, advance=advance)
    from kraft.spark.fleet_scaling import scaling_on
    from kraft.spark.session import spark_session

    with spark_session(
        master=master or "local[*]",
        app_name="kraft lab fleet-scaling",
        progress=sys.stderr.isatty() and not quiet,
    ) as session:
        return scaling_on(session, directories, skip_bad_lines=skip_bad_lines)


def show_scaling(output: Output, report: ScalingReport) -> None:
    """Print the laws as a table, and the reasons why measures have none as notes."""
    from kraft.fleet.scaling_page import growth_text, knee_text

    output.table(
        f"Scaling laws of {report.runs} runs",
        _SCALING_HEADINGS,
        [
            (
                law.quorum,
                law.scenario,
                law.step,
                f"{law.name.replace('_', ' ')} {law.statistic}",
                law.against,
                f"{law.exponent:z.3f}",
                f"{law.error:.3f}",
                len(set(law.sizes)),
                len(law.sizes),
                growth_text(law.exponent),
                knee_text(law),
            )
            for law in report.laws
        ],
        numbers=_NUMBERS,
    )
    if not report.laws and not report.refusals:
        output.note("no measure was taken at two sizes of brokers or partitions: add runs")
    for reason, count in report.refusal_counts():
        output.note(f"no law for {count} measures: {reason}")


@contextmanager
def _needing_report_extra() -> Iterator[None]:
    """Name the extra where one of its packages is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"this needs kraft[report]: pip install 'kraft[report]' ({error})"
        ) from None


def _report_problems(output: Output, problems: Sequence[str], interrupted: Sequence[str]) -> None:
    """Print skipped lines and interrupted runs as notes; exit with `FOUND` if there are any."""
    for problem in problems:
        output.note(f"skipped: {problem}")
    for text in interrupted:
        output.note(text)
    if problems or interrupted:
        raise typer.Exit(FOUND)
