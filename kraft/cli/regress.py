"""``kraft regress``: which histories of benchmarks changed; ``compare``: a candidate beside its
baseline.

Owns the options of both and their exit codes, which a pipeline of CI acts on: 1 is a regression,
so that bad input is 2 here, as wrong usage is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exits import USAGE
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.regression.findings import Analysis, Comparison
    from kraft.regression.lineage import Scope
    from kraft.regression.settings import Settings

#: A regression was found, by ``compare`` or with ``--fail``.
REGRESSED = 1

#: A store of fewer points, files of fewer bytes: looked at before a Spark session has started.
_ALONE_POINTS = 50_000
_ALONE_BYTES = 128 << 20
#: Runs whose histories a page may draw; some hundred bytes each.
_DRAWN_RUNS = 200_000

_EPILOG = (
    "[bold]Exit codes[/bold]: 0 done, no regression (without --fail: whatever was found) · "
    "1 a regression (compare, and regress with --fail) · 2 bad input or wrong usage (stderr says "
    "why) · 130 Ctrl-C"
)

app = typer.Typer(add_completion=False, epilog=_EPILOG)

BenchmarkOption = Annotated[
    str | None,
    typer.Option(
        metavar="GLOB",
        help="Only these benchmarks: function, Class::function or file::function; * and ? are "
        "any text and any character.",
        show_default=False,
    ),
]
MachineOption = Annotated[
    str | None,
    typer.Option(metavar="GLOB", help="Only these machines.", show_default=False),
]
StatisticOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="What is looked at: min, median, mean, max, instructions."),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The Spark that computes: local[2], spark://host:7077. Default: this machine; what "
        "is small without Spark, which would start for longer.",
        show_default=False,
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(metavar="GLOB", help="Only these projects. Default: all.", show_default=False),
]
BranchOption = Annotated[
    str | None,
    typer.Option(
        metavar="GLOB",
        help="Only runs of these branches; '*' is all of them. Default: each project's main "
        "branch (main, master, trunk, develop, else the one with most runs).",
        show_default=False,
    ),
]
RepositoryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="A git repository that knows the commits; runs are then ordered by its history. "
        "Default: by the parents that results name, commit time, run time.",
        show_default=False,
    ),
]
DirtyOption = Annotated[
    bool,
    typer.Option(
        "--include-dirty", help="Take runs of trees with uncommitted changes into histories."
    ),
]
MarkdownOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a comment for a pull request.", show_default=False),
]


@app.callback(invoke_without_command=True, epilog=_EPILOG)
def regress(
    context: typer.Context,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The store of results (kraft bench ingest).", show_default=False
        ),
    ] = None,
    benchmark: BenchmarkOption = None,
    machine: MachineOption = None,
    project: ProjectOption = None,
    branch: BranchOption = None,
    repository: RepositoryOption = None,
    include_dirty: DirtyOption = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DATE|COMMIT",
            help="Only changes since then (UTC), or since that commit was first measured; older "
            "runs are still what they are compared with.",
            show_default=False,
        ),
    ] = None,
    statistic: StatisticOption = "median",
    max_p_value: Annotated[
        float | None,
        typer.Option(metavar="P", help="Of a change point. Default: 1e-5.", show_default=False),
    ] = None,
    min_magnitude: Annotated[
        str | None,
        typer.Option(
            metavar="CHANGE",
            help="Smaller changes are none: 5% or 0.05. Default: any.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(metavar="RUNS", help="Looked at together. Default: 50.", show_default=False),
    ] = None,
    min_runs: Annotated[
        int | None,
        typer.Option(metavar="RUNS", help="Fewer say nothing. Default: 8.", show_default=False),
    ] = None,
    clip_outliers: Annotated[
        float | None,
        typer.Option(
            metavar="LIMIT",
            help="For a machine that is disturbed now and then: odd runs are cut to so many robust "
            "standard deviations (4 is good). Default: as they are.",
            show_default=False,
        ),
    ] = None,
    false_discovery_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="The part of all changes that may be chance. Default: 0.05.",
            show_default=False,
        ),
    ] = None,
    size_param: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The parameter that scaling laws go by. Default: each that has three sizes.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with plots.", show_default=False),
    ] = None,
    markdown: MarkdownOption = None,
    repository_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Makes commits links: https://github.com/owner/name.",
            show_default=False,
        ),
    ] = None,
    fail: Annotated[
        bool, typer.Option("--fail", help="Exit code 1 where a regression is shown.")
    ] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Finds where benchmarks became slower or faster, by how much, and between which commits.

    Looks at the history of each benchmark, its parameters and its machine by itself (machines, projects and branches are never mixed): change points by E-divisive, the ratio of both levels with its interval, corrected for as many tests as there are; and at how time grows with size, where a benchmark has sizes. Docs: docs/regressions.md.

    [bold]Examples[/bold]

      kraft regress --store results

      kraft regress --store results --since 2026-11-01 --html report.html --markdown comment.md

      kraft regress --store results --benchmark 'Table::*' --statistic instructions --fail

      kraft regress --store /data/results --master spark://head:7077 --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    if context.invoked_subcommand is not None:
        return
    if store is None:
        context.fail("Missing option '--store': the folder that kraft bench ingest filled.")
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with _refusing_bad_input():
        found = _analysis(
            store,
            _settings(
                statistic=statistic,
                max_p_value=max_p_value,
                min_magnitude=None if min_magnitude is None else _share(min_magnitude),
                window=window,
                min_runs=min_runs,
                clip_outliers=clip_outliers,
                false_discovery_rate=false_discovery_rate,
            ),
            master,
            benchmark=benchmark,
            machine=machine,
            since=since,
            size_param=size_param,
            kept_runs=0 if html is None else _DRAWN_RUNS,
            scope=_scope(project, branch, repository, include_dirty),
        )
        if not found.series:
            _refuse_nothing(
                store, benchmark=benchmark, machine=machine, project=project, branch=branch
            )
        if html is not None:
            from kraft.regression.html import page

            _write(html, page(found, repository_url=repository_url))
        if markdown is not None:
            from kraft.regression.markdown import comment

            _write(markdown, comment(found, repository_url=repository_url))
        if as_json:
            from kraft.regression.document import as_json as document

            output.document(document(found))
        else:
            from kraft.regression.terminal import show

            show(found, output.console)
            for path in (html, markdown):
                if path is not None:
                    output.note(f"{path} is written")
    from kraft.regression.findings import Kind

    kinds = {each.kind for each in found.change_points} | {each.kind for each in found.drifts}
    kinds |= {each.kind for law in found.scaling for each in law.change_points}
    if fail and Kind.REGRESSION in kinds:
        raise typer.Exit(REGRESSED)


@app.command("compare", epilog=_EPILOG)
def compare(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="The baseline: a file of pytest-benchmark, a folder (all *.json below it) or a "
            "glob; of a store, a commit, a run or last:N.",
            show_default=False,
        ),
    ],
    candidate: Annotated[
        str,
        typer.Argument(metavar="CANDIDATE", help="What is compared with it.", show_default=False),
    ],
    threshold: Annotated[
        str,
        typer.Option(metavar="CHANGE", help="How much slower is allowed: 5% or 0.05."),
    ] = "5%",
    statistic: StatisticOption = "median",
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The store of results that commits, runs and last:N are of.",
            show_default=False,
        ),
    ] = None,
    false_discovery_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="The part of all differences that may be chance. Default: 0.05.",
            show_default=False,
        ),
    ] = None,
    ignore_node: Annotated[
        bool,
        typer.Option(
            "--ignore-node",
            help="Take machines of one kind for one machine whatever they are called, as runners "
            "of a CI service are.",
        ),
    ] = False,
    project: ProjectOption = None,
    branch: BranchOption = None,
    repository: RepositoryOption = None,
    include_dirty: DirtyOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse where anything is wrong with any file.")
    ] = False,
    markdown: MarkdownOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compares a candidate with its baseline; exit code 1 where it is slower.

    A regression is a change beyond the threshold that is significant as well: several runs on both sides are tested run against run, one run by its rounds (--benchmark-save-data), and all tests are corrected together. With a store, last:N is the last N runs of the main branch up to where the candidate left it, of each benchmark on its machine.

    [bold]Examples[/bold]

      kraft regress compare main.json branch.json

      kraft regress compare 'artifacts/main/*.json' artifacts/branch --threshold 10% --statistic min

      kraft regress compare last:10 branch.json --store results --markdown comment.md

      kraft regress compare 3f2a9c1 HEAD_COMMIT --store results --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with _refusing_bad_input():
        settings = _settings(statistic=statistic, false_discovery_rate=false_discovery_rate)
        allowed = _share(threshold)
        compared, problems = _compared(
            base,
            candidate,
            store,
            settings,
            allowed,
            strict,
            ignore_node,
            master,
            _scope(project, branch, repository, include_dirty),
        )
        if markdown is not None:
            from kraft.regression.markdown import comparison

            _write(markdown, comparison(compared, allowed))
        for problem in problems:
            output.note(problem)
        if as_json:
            from kraft.regression.document import comparison_as_json

            output.document(comparison_as_json(compared))
        else:
            from kraft.regression.terminal import show_comparison

            show_comparison(compared, output.console)
    if any(each.is_regression for each in compared):
        raise typer.Exit(REGRESSED)


def _analysis(store: Path, settings: Settings, master: str | None, **asked: Any) -> Analysis:
    from kraft.spark.analysis import analyse_store
    from kraft.spark.store import open_store

    if master is None and open_store(store).points < _ALONE_POINTS:
        return analyse_store(None, store, settings, **asked)
    from kraft.spark.session import spark_session

    with spark_session(
        master=master or "local[*]", app_name="kraft regress", progress=sys.stderr.isatty()
    ) as spark:
        return analyse_store(spark, store, settings, **asked)


def _scope(
    project: str | None, branch: str | None, repository: Path | None, include_dirty: bool
) -> Scope:
    from kraft.regression.lineage import Scope

    return Scope(project, branch, include_dirty, repository)


def _refuse_nothing(store: Path, **given: str | None) -> None:
    from kraft.errors import InvalidRequestError

    asked = [f"{name} {text!r}" for name, text in given.items() if text is not None]
    what = f"nothing of {' and '.join(asked)}" if asked else "no runs"
    raise InvalidRequestError(f"{store}: the store holds {what}")


def _compared(
    base: str,
    candidate: str,
    store: Path | None,
    settings: Settings,
    threshold: float,
    strict: bool,
    ignore_node: bool,
    master: str | None,
    scope: Scope,
) -> tuple[list[Comparison], list[str]]:
    """The comparison, and what was skipped. Only files are ever too large for this process: what
    is taken of a store are a few runs."""
    from kraft.errors import InvalidRequestError
    from kraft.regression import comparison
    from kraft.spark.selection import Runs, files_of, is_path, runs_of

    columns = [settings.statistic, "mean", "stddev", "rounds", "values"]
    files = {name: files_of(name) for name in (base, candidate) if store is None or is_path(name)}
    size = sum(bytes_ for found in files.values() for _, bytes_ in found)
    if master is not None or size > _ALONE_BYTES:
        if len(files) < 2:
            raise InvalidRequestError("runs of a store are compared without Spark: no --master")
        from kraft.spark.comparing import compare_files
        from kraft.spark.session import spark_session

        with spark_session(master=master or "local[*]", app_name="kraft regress compare") as spark:
            return compare_files(
                spark,
                [path for path, _ in files[base]],
                [path for path, _ in files[candidate]],
                settings,
                threshold,
                strict=strict,
                ignore_node=ignore_node,
            )
    problems: list[str] = []

    def side(name: str, before: Any = None) -> Any:
        if name not in files:
            assert store is not None, "without a store everything is a file"
            return Runs.parse(name).read(store, columns, before, scope)
        table, skipped = runs_of(
            [path for path, _ in files[name]], strict=strict, ignore_node=ignore_node
        )
        problems.extend(skipped)
        return table

    new = side(candidate)
    old = side(base, new)
    return comparison.compare(old, new, settings, threshold), problems


def _settings(**given: Any) -> Settings:
    """The settings that were asked for; the others are the defaults."""
    from kraft.regression.settings import Settings

    return Settings(**{name: value for name, value in given.items() if value is not None})


def _share(text: str) -> float:
    """``5%`` or ``0.05``."""
    from kraft.errors import InvalidConfigError

    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise InvalidConfigError(f"{text!r} is no change: 5% or 0.05 is meant")
    return share


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@contextmanager
def _refusing_bad_input() -> Iterator[None]:
    """Bad input ends with `USAGE`, as 1 says that there is a regression."""
    from kraft.errors import KraftError

    try:
        yield
    except BrokenPipeError:
        raise
    except ImportError as error:
        print(
            f"error: this needs kraft[spark]: pip install 'kraft[spark]' ({error})", file=sys.stderr
        )
        raise typer.Exit(USAGE) from None
    except (KraftError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(USAGE) from None
