"""``kraft bench``: add results of benchmark tools to a store, list its runs, convert old stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import EPILOG
from kraft.cli.extras import naming_extra
from kraft.cli.options import AsOfOption, JsonOption
from kraft.cli.result_options import (
    BiggerOption,
    ColumnOption,
    FormatOption,
    OfMachineOption,
    UnitOption,
    reading_of,
)

if TYPE_CHECKING:
    from kraft.cli.output import Advance
    from kraft.regression.ingest import IngestReport
    from kraft.regression.sources.conversion import ResultReading

#: Below this size, reading in this process is faster than starting Spark.
_LOCAL_BYTES = 512 << 20
#: Problems listed one by one; --json lists all.
_MAX_LISTED_PROBLEMS = 20

app = typer.Typer(
    help="Add benchmark results to a store, and list its runs.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DIR",
        help="The directory of the store of results, or its place in an object store: "
        "s3://bucket/results.",
        show_default=False,
    ),
]


def _stated(name: str, metavar: str) -> Any:
    return typer.Option(
        f"--{name}",
        metavar=metavar,
        help=f"The {name} that the files of another tool measured. Default: the one in the file.",
        show_default=False,
    )


@app.callback()
def _bench() -> None:
    """Add benchmark results to a store, and list its runs."""


@app.command("ingest", epilog=EPILOG)
def ingest(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Files of pytest-benchmark, JMH, Google Benchmark or asv (JSON), CSV and Parquet "
            "files, directories (every *.json below them), globs.",
            show_default=False,
        ),
    ],
    store: StoreOption,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Store nothing if any file has a problem."),
    ] = False,
    ignore_node: Annotated[
        bool,
        typer.Option(
            "--ignore-node",
            help="Ignore the host name: treat machines with the same hardware as one machine, such "
            "as the runners of a CI service.",
        ),
    ] = False,
    format_name: FormatOption = None,
    project: Annotated[str | None, _stated("project", "NAME")] = None,
    branch: Annotated[str | None, _stated("branch", "NAME")] = None,
    commit: Annotated[str | None, _stated("commit", "HASH")] = None,
    of_machine: OfMachineOption = None,
    run_time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="When the files of another tool were measured (ISO 8601, UTC). Default: the time "
            "in the file; of JMH, that of the file.",
            show_default=False,
        ),
    ] = None,
    columns: ColumnOption = None,
    unit: UnitOption = "s",
    bigger_is_better: BiggerOption = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Read on this Spark cluster: local[2], spark://host:7077. Default: this machine, "
            "without Spark below 512 MiB.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add runs to a store; a run that is already stored is not added again.

    Reads the JSON of any project and any version of pytest-benchmark (--benchmark-json, --benchmark-save, --benchmark-autosave; --benchmark-save-data also stores each run's rounds), of JMH (-rf json), Google Benchmark (--benchmark_out) and asv (its folder of results), and CSV and Parquet files with one value a row. Skips unreadable files, reports them, and exits with code 3.

    [bold]Examples[/bold]

      kraft bench ingest .benchmarks --store results

      kraft bench ingest 'artifacts/**/benchmark-*.json' --store results --ignore-node --strict

      kraft bench ingest jmh.json --store results --of-machine ci-1 --commit 3f2a9c1d --branch main

      kraft bench ingest load.csv --store results --column benchmark=test --column value=rps --unit ops/s

      kraft bench ingest /data/runs --store /data/results --master spark://head:7077

      kraft bench ingest .benchmarks --store s3://bucket/results
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.exit_codes import FOUND
    from kraft.cli.output import Output, progress

    output = Output(as_json=as_json)
    reading = reading_of(
        format_name=format_name,
        columns=columns,
        unit=unit,
        bigger_is_better=bigger_is_better,
        ignore_node=ignore_node,
        machine=of_machine,
        project=project,
        branch=branch,
        commit=commit,
        time=run_time,
    )
    with progress("reading results", 1.0, shown=not as_json) as advance:
        report = _ingest(paths, store, strict, reading, master, advance)
    if as_json:
        output.document(
            {
                "store": store,
                "files": report.files,
                "bytes": report.bytes,
                "runs_added": report.runs_added,
                "points_added": report.points_added,
                "runs_replaced": report.runs_replaced,
                "duplicate_runs": report.duplicate_runs,
                "without_value": report.without_value,
                "seconds": round(report.seconds, 3),
                "problems": [problem._asdict() for problem in report.problems],
            }
        )
    else:
        for problem in report.problems[:_MAX_LISTED_PROBLEMS]:
            output.note(f"{problem.path}: {problem.reason}")
        if len(report.problems) > _MAX_LISTED_PROBLEMS:
            output.note(
                f"and {len(report.problems) - _MAX_LISTED_PROBLEMS} more (--json lists all)"
            )
        output.fields(
            f"Results in {store}",
            [
                ("files read", f"{report.files:,} ({report.bytes / 1e6:,.1f} MB)"),
                ("runs added", f"{report.runs_added:,}"),
                ("points added", f"{report.points_added:,}"),
                ("completed", f"{report.runs_replaced:,}" if report.runs_replaced else None),
                ("known already", f"{report.duplicate_runs:,}"),
                ("no value", f"{report.without_value:,}" if report.without_value else None),
                ("problems", f"{len(report.problems):,}"),
                ("seconds", f"{report.seconds:.1f}"),
            ],
        )
    if report.problems:
        raise typer.Exit(FOUND)


@app.command("runs", epilog=EPILOG)
def runs(
    store: StoreOption,
    as_of: AsOfOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of a store, oldest first.

    [bold]Examples[/bold]

      kraft bench runs --store results

      kraft bench runs --store results --as-of 2026-11-01

      kraft bench runs --store results --json | jq '.[-1].run_id'
    """
    from datetime import UTC, datetime

    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with naming_extra():
        from kraft.regression.store import list_runs

    def when(time_us: int) -> str:
        return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds")

    found = list_runs(store, as_of)
    if as_json:
        output.document(
            [
                {
                    "run_id": run.run_id,
                    "time": when(run.time_us),
                    "machine": run.machine,
                    "project": run.project,
                    "branch": run.branch,
                    "commit": run.commit,
                    "dirty": run.dirty,
                    "points": run.points,
                    "has_values": run.has_values,
                    "source": run.source,
                }
                for run in found
            ]
        )
        return
    output.table(
        f"{len(found):,} runs in {store}",
        ["run", "time", "machine", "commit", "branch", "points", "rounds"],
        [
            (
                run.run_id[:12],
                when(run.time_us),
                run.machine,
                (run.commit or "")[:12] + (" dirty" if run.dirty else ""),
                run.branch,
                f"{run.points:,}",
                "kept" if run.has_values else "",
            )
            for run in found
        ],
        numbers=["points"],
    )


@app.command("convert", epilog=EPILOG)
def convert(
    earlier: Annotated[
        Path,
        typer.Argument(
            metavar="EARLIER",
            help="The directory of a store that kraft wrote before it used Delta tables.",
            show_default=False,
        ),
    ],
    store: StoreOption,
    as_json: JsonOption = False,
) -> None:
    """Copy the runs of a store of an earlier kraft to a store; the earlier one stays unchanged.

    Runs that the store has already are not added again, so that an interrupted copy can be repeated.

    [bold]Examples[/bold]

      kraft bench convert results --store results-delta
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with naming_extra():
        from kraft.regression.earlier_store import convert_store

    added = convert_store(earlier, store)
    points = sum(run.points for run in added.runs)
    if as_json:
        output.document(
            {
                "store": store,
                "runs_added": len(added.runs),
                "points_added": points,
                "duplicate_runs": added.duplicates,
            }
        )
        return
    output.fields(
        f"Results in {store}",
        [
            ("runs added", f"{len(added.runs):,}"),
            ("points added", f"{points:,}"),
            ("known already", f"{added.duplicates:,}"),
        ],
    )


def _ingest(
    paths: list[str],
    store: str,
    strict: bool,
    reading: ResultReading,
    master: str | None,
    advance: Advance,
) -> IngestReport:
    """Convert the files of other tools, and store all runs."""
    from dataclasses import replace
    from time import perf_counter

    from kraft.errors import BenchmarkFileError

    began = perf_counter()
    with naming_extra():
        from kraft.regression import ingest as ingests
        from kraft.regression.result_files import find_files
        from kraft.regression.sources.conversion import converted
    found, missing = find_files(paths)
    if not found and not missing:
        raise BenchmarkFileError(f"no *.json in {', '.join(paths)}")
    with converted([path for path, _ in found], reading) as (files, problems):
        files += [problem.path for problem in missing]  # the store reports them
        if problems and strict:
            raise ingests.StrictIngestError(problems)
        if problems and not files:
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise BenchmarkFileError(f"{problems[0].path}: {problems[0].reason}{more}")
        if not files:
            raise BenchmarkFileError(f"no results in {', '.join(paths)}")
        size = sum(size for _, size in found)
        options: dict[str, Any] = {
            "strict": strict,
            "ignore_node": reading.ignore_node,
            "on_progress": advance,
        }
        if master is None and size < _LOCAL_BYTES:
            report = ingests.ingest(files, store, **options)
        else:
            with naming_extra("spark"):
                from kraft.spark.session import spark_session
                from kraft.spark.tasks import SparkTasks

            with spark_session(master=master or "local[*]", app_name="kraft bench ingest") as spark:
                report = ingests.ingest(files, store, tasks=SparkTasks(spark), **options)
    return replace(
        report,
        files=len(found),
        bytes=size,
        problems=[*problems, *report.problems],
        seconds=perf_counter() - began,
    )
