"""``kraft regress``: find changes in histories of benchmarks; ``compare``: a candidate and its
baseline.

Exit codes are made for CI: 1 means a regression, so that bad input is 2, as wrong usage is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli import regress_bisect, regress_comment, regress_serve, regress_verdicts
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import AsOfOption, JsonOption
from kraft.cli.regress_options import (
    BenchmarkOption,
    BranchOption,
    DetectionOptions,
    DirtyOption,
    MasterOption,
    ProjectOption,
    RepositoryOption,
    RulesOption,
    RunOptions,
    StatisticOption,
    analysis_of,
    refusing_bad_input,
    rules_of,
    scope_of,
    settings_of,
    share_of,
)
from kraft.cli.result_options import (
    BiggerOption,
    ColumnOption,
    FormatOption,
    OfMachineOption,
    UnitOption,
    reading_of,
)

if TYPE_CHECKING:
    from kraft.regression.commit_order import Scope
    from kraft.regression.findings import Comparison
    from kraft.regression.project_rules import ProjectRules
    from kraft.regression.settings import AnalysisSettings
    from kraft.regression.sources.conversion import ResultReading

#: A regression was found, by ``compare`` or with ``--fail``.
REGRESSED = 1

#: Below this size, this process is faster than starting Spark.
_LOCAL_BYTES = 128 << 20

_EPILOG = (
    "[bold]Exit codes[/bold]: 0 done, no regression (regress without --fail: always) · "
    "1 a regression (compare, and regress with --fail) · 2 bad input or wrong usage (stderr says "
    "why) · 130 Ctrl-C"
)

app = typer.Typer(add_completion=False, epilog=_EPILOG)
app.command("bisect", epilog=regress_bisect.EPILOG)(regress_bisect.bisect)
app.command("comment", epilog=regress_comment.EPILOG)(regress_comment.comment)
app.command("serve", epilog=regress_serve.EPILOG)(regress_serve.serve)
app.command("dashboard", epilog=regress_serve.EPILOG)(regress_serve.dashboard)
for _command in (
    regress_verdicts.accept,
    regress_verdicts.expect,
    regress_verdicts.watch,
    regress_verdicts.reopen,
    regress_verdicts.verdicts,
):
    app.command(epilog=regress_verdicts.EPILOG)(_command)

MarkdownOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write a comment for a pull request to this file.", show_default=False
    ),
]


HtmlOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write an HTML page with plots to this file.", show_default=False
    ),
]


@app.callback(invoke_without_command=True, epilog=_EPILOG)
@takes_groups
def regress(
    *,
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The store of results, filled by `kraft bench ingest`. Required.",
            show_default=False,
        ),
    ] = None,
    as_of: AsOfOption = None,
    benchmark: BenchmarkOption = None,
    runs: RunOptions,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DATE|COMMIT",
            help="Only report changes since this date (UTC) or since the first run of this commit; "
            "they are still compared with older runs. Default: all.",
            show_default=False,
        ),
    ] = None,
    detection: DetectionOptions,
    size_param: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Fit scaling laws over this parameter. Default: each with three sizes or more.",
            show_default=False,
        ),
    ] = None,
    html: HtmlOption = None,
    markdown: MarkdownOption = None,
    repository_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Link commits to this repository: https://github.com/owner/name.",
            show_default=False,
        ),
    ] = None,
    fail: Annotated[
        bool,
        typer.Option(
            "--fail",
            help="Exit with code 1 if a regression is reported that no verdict covers (kraft "
            "regress accept, expect, watch).",
        ),
    ] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find where benchmarks became slower or faster, by how much, and between which commits.

    Analyses each combination of benchmark, parameters and machine separately; machines, projects and branches are never mixed. Finds change points by E-divisive and reports the ratio of the two levels with its interval, corrected for multiple tests. Where a benchmark has sizes, also fits how time grows with size. Docs: docs/regressions.md.

    [bold]Examples[/bold]

      kraft regress --store results

      kraft regress --store results --since 2026-11-01 --html report.html --markdown comment.md

      kraft regress --store results --rules kraft-regress.toml --fail

      kraft regress --store results --benchmark 'Table::*' --statistic instructions --fail

      kraft regress --store /data/results --master spark://head:7077 --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    if context.invoked_subcommand is not None:
        return
    if store is None:
        context.fail("Missing option '--store': the directory that kraft bench ingest filled.")
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with refusing_bad_input():
        kept_runs = 0
        if html is not None:
            from kraft.regression.html import KEPT_RUNS, page

            kept_runs = KEPT_RUNS
        found = analysis_of(
            store,
            runs,
            detection,
            master,
            version=as_of,
            benchmark=benchmark,
            since=since,
            size_param=size_param,
            kept_runs=kept_runs,
        )
        if not found.series:
            _refuse_nothing(
                store,
                benchmark=benchmark,
                machine=runs.machine,
                project=runs.project,
                branch=runs.branch,
            )
        if html is not None:
            _write(html, page(found, repository_url=repository_url))
        if markdown is not None:
            from kraft.regression.markdown import comment

            _write(markdown, comment(found, repository_url=repository_url))
        if as_json:
            from kraft.regression.json_report import as_json as document

            output.document(document(found))
        else:
            from kraft.regression.terminal import show

            show(found, output.console)
            for path in (html, markdown):
                if path is not None:
                    output.note(f"wrote {path}")
    if fail and found.alarms:
        raise typer.Exit(REGRESSED)


@app.command("compare", epilog=_EPILOG)
def compare(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="The baseline: a file of pytest-benchmark, JMH, Google Benchmark or asv, a CSV or "
            "Parquet file, a directory (every *.json below "
            "it) or a glob; with --store also a commit, a run or last:N.",
            show_default=False,
        ),
    ],
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATE",
            help="The candidate, in the same forms as BASE.",
            show_default=False,
        ),
    ],
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="CHANGE",
            help="Ignore slowdowns up to this: 5% or 0.05. Default: that of --rules, else 5%.",
            show_default=False,
        ),
    ] = None,
    statistic: StatisticOption = "median",
    store: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The store of results in which commits, runs and last:N are looked up.",
            show_default=False,
        ),
    ] = None,
    false_discovery_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="The allowed share of false differences among all reported. Default: 0.05.",
            show_default=False,
        ),
    ] = None,
    ignore_node: Annotated[
        bool,
        typer.Option(
            "--ignore-node",
            help="Ignore the host name: treat machines with the same hardware as one machine, such "
            "as the runners of a CI service.",
        ),
    ] = False,
    project: ProjectOption = None,
    branch: BranchOption = None,
    repository: RepositoryOption = None,
    include_dirty: DirtyOption = False,
    rules: RulesOption = None,
    format_name: FormatOption = None,
    of_machine: OfMachineOption = None,
    columns: ColumnOption = None,
    unit: UnitOption = "s",
    bigger_is_better: BiggerOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if any file has a problem.")
    ] = False,
    html: HtmlOption = None,
    markdown: MarkdownOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a candidate with its baseline; exit with code 1 if it is slower.

    A regression is a significant slowdown beyond the threshold. Several runs on both sides are tested run against run, single runs by their rounds (--benchmark-save-data), with a correction for multiple tests. With a store, last:N means the last N runs of the main branch before the candidate branched off, for each benchmark on its machine.

    [bold]Examples[/bold]

      kraft regress compare main.json branch.json

      kraft regress compare 'artifacts/main/*.json' artifacts/branch --threshold 10% --statistic min

      kraft regress compare last:10 branch.json --store results --markdown comment.md --html page.html

      kraft regress compare main-jmh.json branch-jmh.json --of-machine ci-1

      kraft regress compare 3f2a9c1 HEAD_COMMIT --store results --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with refusing_bad_input():
        from kraft.regression.comparison import DEFAULT_THRESHOLD

        settings = settings_of(statistic=statistic, false_discovery_rate=false_discovery_rate)
        ruled = rules_of(rules, repository)
        allowed = ruled.threshold if threshold is None else share_of(threshold)
        allowed = DEFAULT_THRESHOLD if allowed is None else allowed
        reading = reading_of(
            format_name=format_name,
            columns=columns,
            unit=unit,
            bigger_is_better=bigger_is_better,
            ignore_node=ignore_node,
            machine=of_machine,
        )
        compared, problems = _compared(
            base,
            candidate,
            store,
            settings,
            allowed,
            strict,
            reading,
            master,
            scope_of(project, branch, repository, include_dirty),
            ruled,
        )
        if markdown is not None:
            from kraft.regression.markdown import comparison

            _write(markdown, comparison(compared, allowed))
        if html is not None:
            from kraft.regression.comparison_page import page

            title = f"{candidate} compared with {base}"
            _write(html, page(compared, allowed, title=title))
        for problem in problems:
            output.note(problem)
        if as_json:
            from kraft.regression.json_report import comparison_as_json

            output.document(comparison_as_json(compared))
        else:
            from kraft.regression.terminal import show_comparison

            show_comparison(compared, output.console)
    if any(each.is_regression for each in compared):
        raise typer.Exit(REGRESSED)


def _refuse_nothing(store: str, **given: str | None) -> None:
    from kraft.errors import InvalidRequestError

    asked = [f"{name} {text!r}" for name, text in given.items() if text is not None]
    what = f"no runs of {' and '.join(asked)}" if asked else "no runs"
    raise InvalidRequestError(f"{store}: the store has {what}")


def _compared(
    base: str,
    candidate: str,
    store: str | None,
    settings: AnalysisSettings,
    threshold: float,
    strict: bool,
    reading: ResultReading,
    master: str | None,
    scope: Scope,
    rules: ProjectRules,
) -> tuple[list[Comparison], list[str]]:
    """Return the comparison, judged by the rules, and what was skipped.

    Only files can be too large for this process: a selection from a store is a few runs.
    """
    from kraft.errors import InvalidRequestError
    from kraft.regression import comparison
    from kraft.regression.run_selection import (
        RunSelection,
        files_of,
        is_path,
        runs_of,
        with_current_names,
    )

    columns = [settings.statistic, "mean", "stddev", "rounds", "values"]
    files = {name: files_of(name) for name in (base, candidate) if store is None or is_path(name)}
    size = sum(bytes_ for found in files.values() for _, bytes_ in found)
    if master is not None or size > _LOCAL_BYTES:
        if not {base, candidate} <= files.keys():
            raise InvalidRequestError("runs of a store are compared without Spark: omit --master")
        if rules.rename:
            raise InvalidRequestError(
                "with --master, or more than 128 MiB of files, benchmarks are not renamed: omit "
                "rename from the rules"
            )
        from kraft.regression.run_selection import raise_on_problems
        from kraft.regression.sources.conversion import converted
        from kraft.spark.frame_comparison import compare_files
        from kraft.spark.session import spark_session

        with (
            converted([path for path, _ in files[base]], reading) as (old_files, bad_old),
            converted([path for path, _ in files[candidate]], reading) as (new_files, bad_new),
        ):
            unread = [f"{each.path}: {each.reason}" for each in (*bad_old, *bad_new)]
            least = min(len(old_files), len(new_files))
            raise_on_problems(unread, count=least, strict=strict)
            with spark_session(
                master=master or "local[*]", app_name="kraft regress compare"
            ) as spark:
                compared, skipped = compare_files(
                    spark,
                    old_files,
                    new_files,
                    settings,
                    threshold,
                    strict=strict,
                    ignore_node=reading.ignore_node,
                )
        compared = comparison.with_rules(compared, rules, settings, threshold)
        return compared, [*unread, *skipped]
    problems: list[str] = []

    def side(name: str, before: Any = None) -> Any:
        if name not in files:
            assert store is not None, "without a store everything is a file"
            return RunSelection.parse(name).read(store, columns, before, scope, rules)
        table, skipped = runs_of([path for path, _ in files[name]], reading, strict=strict)
        problems.extend(skipped)
        return table

    new = side(candidate)
    old = with_current_names(side(base, new), rules)
    compared = comparison.compare(old, with_current_names(new, rules), settings, threshold)
    return comparison.with_rules(compared, rules, settings, threshold), problems


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
