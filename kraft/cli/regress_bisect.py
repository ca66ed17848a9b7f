"""``kraft regress bisect``: name the commit of a change with the fewest runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.options import JsonOption
from kraft.cli.result_options import FormatOption, OfMachineOption, reading_of

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.regression.bisect_question import FoundChange
    from kraft.regression.bisection import BisectPlan, ChangePosterior
    from kraft.regression.sources.conversion import ResultReading

#: No commit was named with the wanted confidence.
UNNAMED = 3

EPILOG = (
    "[bold]Exit codes[/bold]: 0 the commit is named, or --dry-run · 2 bad input or wrong usage "
    "(stderr says why) · 3 no commit is named: the change did not occur again, too few runs, or "
    "commits that cannot be measured · 130 Ctrl-C"
)
#: Commits listed one by one.
_MOST_LISTED = 5


@dataclass
class Bisection:
    """State of one bisection: what is known, and what cannot be measured."""

    change: FoundChange
    commits: list[str]
    posterior: ChangePosterior
    confidence: float
    statistic: str
    skipped: set[int] = field(default_factory=set)
    runs: int = 0

    def named(self) -> int | None:
        """Return the place that has the wanted probability; 0 means no change, None no place."""
        place, probability = self.posterior.best()
        return place if self.runs and probability >= self.confidence else None

    def plan(self) -> BisectPlan | None:
        """Return what to measure next, None if the commit is named or nothing tells more."""
        if self.named() is not None:
            return None
        return self.posterior.plan(frozenset(self.skipped))


def measure(
    bisection: Bisection,
    run: Callable[[int], float | None],
    *,
    most_runs: int,
    report: Callable[[int, float], None],
) -> None:
    """Measure the commits that the posterior asks for, until it names one.

    ``run`` returns the value of the commit at a place, None if it cannot be measured: then it is
    skipped. ``report`` is called with the place and the value of each run. At most ``most_runs``
    runs are made, earlier results included.
    """
    while bisection.runs < most_runs:
        plan = bisection.plan()
        if plan is None:
            return
        for _ in range(min(plan.runs, most_runs - bisection.runs)):
            value = run(plan.place)
            if value is None:
                bisection.skipped.add(plan.place)
                break
            bisection.posterior.add(plan.place, value)
            bisection.runs += 1
            report(plan.place, value)


def bisect(
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="DIR",
            help="The store of results in which the change was found.",
            show_default=False,
        ),
    ],
    repository: Annotated[
        Path,
        typer.Option(
            "--repository",
            metavar="DIR",
            help="The git repository of the commits.",
            show_default=False,
        ),
    ],
    benchmark: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB",
            help="The benchmark that changed: function, file::function or "
            "file::function\\[size=10]. Default: the only one with a regression.",
            show_default=False,
        ),
    ] = None,
    change: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT",
            help="The change whose new level begins at this commit, as kraft regress prints it. "
            "Default: the newest regression.",
            show_default=False,
        ),
    ] = None,
    old: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT",
            help="A commit before the change. Default: that of two runs before it.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT",
            help="A commit that has the change. Default: that of two runs after it.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="Measure a commit by this shell command, in a git worktree of it. The command "
            "writes its result to the file $KRAFT_RESULT; $KRAFT_COMMIT is the commit. If it "
            "fails, the commit is skipped.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run nothing; print which commit to measure next."),
    ] = False,
    results: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Keep the results here, and use those that are there: a bisection that was "
            "interrupted goes on. A file belongs to the commit with which its name begins, or "
            "which it contains.",
        ),
    ] = Path("kraft-bisect"),
    confidence: Annotated[
        str,
        typer.Option(metavar="SHARE", help="Stop at this probability of a commit: 95% or 0.95."),
    ] = "95%",
    max_runs: Annotated[
        int, typer.Option(metavar="RUNS", min=1, help="Stop after this many runs.")
    ] = 200,
    statistic: Annotated[
        str,
        typer.Option(metavar="NAME", help="The statistic: min, median, mean, max, instructions."),
    ] = "median",
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB",
            help="The machine of the history. Default: the only one.",
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(metavar="GLOB", help="The project. Default: all.", show_default=False),
    ] = None,
    format_name: FormatOption = None,
    of_machine: OfMachineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Name the commit that changed a benchmark, with the fewest runs.

    The history gives the size of the change and the noise. After each run, the probability of every commit is computed anew, and the commit whose run tells most is measured next. docs/regressions.md has the measured rate of wrong commits. The repository's working copy is not touched.

    [bold]Examples[/bold]

      kraft regress bisect --store results --repository . --benchmark 'Table::lookup' --run 'make build && pytest bench.py --benchmark-json=$KRAFT_RESULT'

      kraft regress bisect --store results --repository . --change 3f2a9c1d --dry-run

      kraft regress bisect --store results --repository . --old v1.2 --new main --confidence 99% --run ./bench.sh --json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output
    from kraft.cli.regress_options import refusing_bad_input

    output = Output(as_json=as_json)
    with refusing_bad_input():
        reading = reading_of(
            format_name=format_name,
            columns=None,
            unit="s",
            bigger_is_better=None,
            ignore_node=False,
            machine=of_machine,
        )
        asked = _asked(
            store,
            repository,
            benchmark=benchmark,
            machine=machine,
            project=project,
            change=change,
            old=old,
            new=new,
            confidence=confidence,
            statistic=statistic,
            run=run,
            dry_run=dry_run,
        )
        _add_results(asked, results, reading, output)
        if run is not None:
            _run(asked, repository, run, results, reading, max_runs, output)
        document = _document(asked, repository)
        if as_json:
            output.document(document)
        else:
            _show(document, asked, output, dry_run)
    if not dry_run and document["commit"] is None:
        raise typer.Exit(UNNAMED)


def _asked(
    store: str,
    repository: Path,
    *,
    benchmark: str | None,
    machine: str | None,
    project: str | None,
    change: str | None,
    old: str | None,
    new: str | None,
    confidence: str,
    statistic: str,
    run: str | None,
    dry_run: bool,
) -> Bisection:
    """Find the change in the store and its commits in the repository."""
    from dataclasses import replace

    from kraft.errors import InvalidRequestError
    from kraft.regression import bisect_question
    from kraft.regression.analysis import analyse_store
    from kraft.regression.commit_order import Scope
    from kraft.regression.measured_commits import commits_between
    from kraft.regression.project_rules import BenchmarkRule, find
    from kraft.regression.settings import AnalysisSettings

    if (run is None) is not dry_run:
        raise InvalidRequestError("name a command with --run, or ask what to run with --dry-run")
    wanted = _share(confidence)
    # The brackets of parameters are no part of a store's names.
    named = None if benchmark is None else benchmark.partition("[")[0]
    analysis = analyse_store(
        store,
        AnalysisSettings(statistic=statistic),
        benchmark=named,
        machine=machine,
        kept_runs=sys.maxsize,
        scope=Scope(project, None, False, repository),
        rules=find(repository),
    )
    if benchmark is not None:
        rule = BenchmarkRule(benchmark)
        matching = tuple(each for each in analysis.series if rule.applies_to(each.key))
        analysis = replace(analysis, series=matching)
    found = bisect_question.find_change(analysis, change)
    first, last = (old, new) if old and new else bisect_question.bounds(found)
    commits = commits_between(repository, old or first, new or last)
    if len(commits) < 2:
        raise InvalidRequestError(f"{commits[0]}: both sides of the change are this commit")
    posterior = bisect_question.posterior_of(found, commits)
    return Bisection(found, commits, posterior, wanted, statistic)


def _share(text: str) -> float:
    from kraft.errors import InvalidConfigError

    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0.5 <= share < 1:
        raise InvalidConfigError(f"{text!r} is not a confidence from 50% to 99.99%: write 95%")
    return share


def _add_results(asked: Bisection, results: Path, reading: ResultReading, output: Output) -> None:
    """Add the results that are already in the directory."""
    from kraft.errors import BenchmarkFileError, InvalidRequestError
    from kraft.regression import bisect_question
    from kraft.regression.sources.conversion import read_runs

    if not results.is_dir():
        return
    for path in sorted(each for each in results.iterdir() if each.is_file()):
        try:
            for run in read_runs(path.read_bytes(), str(path), reading):
                place = bisect_question.commit_of(path.name, run, asked.commits)
                if place is None:
                    output.note(f"{path}: not a result of these commits: ignored")
                    continue
                value = bisect_question.value_in(run, asked.change.series.key, asked.statistic)
                asked.posterior.add(place, value)
                asked.runs += 1
        except (BenchmarkFileError, InvalidRequestError) as error:
            output.note(f"{error}: ignored")


def _run(
    asked: Bisection,
    repository: Path,
    command: str,
    results: Path,
    reading: ResultReading,
    most_runs: int,
    output: Output,
) -> None:
    """Run the command for the commits that are asked for."""
    from kraft.errors import BenchmarkFileError, InvalidRequestError
    from kraft.regression import bisect_question, report_text
    from kraft.regression.measured_commits import CommitRunner, deferred_interrupts, result_name
    from kraft.regression.sources.conversion import read_runs

    key, metric = asked.change.series.key, asked.change.series.metric
    results.mkdir(parents=True, exist_ok=True)

    def report(place: int, value: float) -> None:
        text = report_text.value_text(value, asked.statistic, metric)
        best, probability = asked.posterior.best()
        name = asked.commits[best][:10] if best else "no change"
        output.note(
            f"run {asked.runs}: {asked.commits[place][:10]} {text}; most probable: {name} "
            f"({probability:.0%})"
        )

    with (
        deferred_interrupts() as interrupts,
        CommitRunner(repository, command, interrupts) as runner,
    ):

        def once(place: int) -> float | None:
            commit = asked.commits[place]
            path = results / result_name(commit, os.listdir(results))
            # A result is complete, or has another name: an interrupt leaves no half of one.
            part = path.with_suffix(".part")
            try:
                code = runner.run(commit, part)
                if code or not part.exists():
                    why = f"exit code {code}" if code else "it wrote no $KRAFT_RESULT"
                    output.note(f"{commit[:10]} is skipped: the command failed: {why}")
                    return None
                (found, *_) = read_runs(part.read_bytes(), str(part), reading)
                value = bisect_question.value_in(found, key, asked.statistic)
                part.rename(path)
                return value
            except (BenchmarkFileError, InvalidRequestError) as error:
                output.note(f"{commit[:10]} is skipped: {error}")
                return None
            finally:
                part.unlink(missing_ok=True)

        measure(asked, once, most_runs=most_runs, report=report)


def _document(asked: Bisection, repository: Path) -> dict[str, Any]:
    """Return the result for --json; the keys are stable."""
    from kraft.regression.measured_commits import git

    probabilities = asked.posterior.probabilities()
    named = asked.named()
    plan = asked.plan()
    ratio, noise = asked.posterior.change()
    key = asked.change.series.key
    runs = asked.posterior.runs
    likely = sorted(range(1, len(asked.commits)), key=lambda place: -probabilities[place])

    def subject(place: int) -> str:
        return git(repository, "show", "-s", "--format=%s", asked.commits[place])

    return {
        "suite": key.suite,
        "benchmark": key.benchmark,
        "params": key.params,
        "old": asked.commits[0],
        "new": asked.commits[-1],
        "commits": len(asked.commits) - 1,
        "confidence": asked.confidence,
        "runs": asked.runs,
        "commit": asked.commits[named] if named else None,
        "subject": subject(named) if named else None,
        "probability": float(probabilities[named]) if named else None,
        "no_change": float(probabilities[0]),
        "ratio": ratio,
        "noise": noise,
        "next": None if plan is None else {"commit": asked.commits[plan.place], "runs": plan.runs},
        "likely": [
            {
                "commit": asked.commits[place],
                "probability": float(probabilities[place]),
                "runs": int(runs[place]),
                "subject": subject(place),
            }
            for place in likely[:_MOST_LISTED]
        ],
        "skipped": [asked.commits[place] for place in sorted(asked.skipped)],
    }


def _show(document: dict[str, Any], asked: Bisection, output: Output, dry_run: bool) -> None:
    from kraft.regression import report_text

    plan = document["next"]
    if document["commit"]:
        title = f"{document['commit']} {document['subject']}"
    elif asked.named() == 0:
        title = "No commit: the new runs show no change"
    elif dry_run and plan:
        title = f"Measure {plan['commit']} next, {report_text.counted(plan['runs'], 'time')}"
    else:
        title = "No commit is named"
    output.fields(
        report_text.printable(title),
        [
            ("benchmark", report_text.printable(asked.change.series.key.name)),
            ("change", report_text.change_text(document["ratio"])),
            ("noise", report_text.noise_text(document["noise"])),
            (
                "probability",
                f"{document['probability']:.1%}" if document["commit"] else None,
            ),
            ("no change", f"{document['no_change']:.1%}"),
            ("commits", f"{document['commits']:,}, after {document['old'][:10]}"),
            ("runs", f"{document['runs']:,}"),
            ("skipped", ", ".join(each[:10] for each in document["skipped"]) or None),
        ],
    )
    if not document["commit"]:
        output.table(
            "Most probable commits",
            ["commit", "probability", "runs", "subject"],
            [
                (
                    each["commit"][:10],
                    f"{each['probability']:.1%}",
                    f"{each['runs']}",
                    report_text.printable(each["subject"]),
                )
                for each in document["likely"]
            ],
            numbers=["probability", "runs"],
        )
