"""``kraft regress accept``, ``expect``, ``watch``, ``reopen``, ``verdicts``: what people said about
changes, kept in the store.
"""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.cli.regress_options import (
    DetectionOptions,
    MasterOption,
    RunOptions,
    StatisticOption,
    analysis_of,
    refusing_bad_input,
    share_of,
)

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.regression.verdicts import Verdict

EPILOG = (
    "[bold]Exit codes[/bold]: 0 recorded, or listed · 2 bad input or wrong usage (stderr says "
    "why) · 130 Ctrl-C"
)

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DIR",
        help="The store of results; the verdict is kept in it.",
        show_default=False,
    ),
]
ReasonOption = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why, for the reports.", show_default=False),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Who says so. Default: git's user.name, else the name of the login.",
        show_default=False,
    ),
]
ChangedBenchmarkOption = Annotated[
    str | None,
    typer.Option(
        "--benchmark",
        metavar="GLOB",
        help="The benchmarks: a glob for function, file::function or file::function\\[size=10].",
        show_default=False,
    ),
]
ChangeOption = Annotated[
    str | None,
    typer.Option(
        metavar="COMMIT",
        help="The changes whose new level begins at this commit, as kraft regress prints it "
        "(the second one). Default: all regressions of --benchmark.",
        show_default=False,
    ),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Every regression that kraft regress reports.")
]
AtMostOption = Annotated[
    str | None,
    typer.Option(
        metavar="CHANGE",
        help="Alarm again if it is worse than this: 20% or 0.2.",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Record nothing; print what would be recorded.")
]


@dataclass(frozen=True)
class ChosenOptions:
    """The changes that accept and watch mean, and what is said of them."""

    store: StoreOption
    reason: ReasonOption
    benchmark: ChangedBenchmarkOption = None
    change: ChangeOption = None
    every: AllOption = False
    at_most: AtMostOption = None
    by: ByOption = None


@takes_groups
def accept(
    *,
    chosen: ChosenOptions,
    runs: RunOptions,
    detection: DetectionOptions,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Accept changes: kraft regress --fail no longer fails for them.

    Runs the analysis and records a verdict on each regression that matches; use the options that you use with kraft regress. The change stays accepted when later runs move its estimated commit. It alarms again if it becomes worse than the interval that was accepted (or than --at-most); another change of the same benchmark is new.

    [bold]Examples[/bold]

      kraft regress accept --store results --change 3f2a9c1d --reason 'checksums are now verified'

      kraft regress accept --store results --benchmark 'Table::*' --at-most 20% --reason 'see issue 41' --by ana

      kraft regress accept --store results --all --dry-run --reason 'history before the new machine'
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    _judge("accept", chosen, runs, detection, master, dry_run=dry_run, as_json=as_json)


@takes_groups
def watch(
    *,
    chosen: ChosenOptions,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="Alarm again from this date on (UTC). Default: watched until it is reopened.",
            show_default=False,
        ),
    ] = None,
    runs: RunOptions,
    detection: DetectionOptions,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Watch changes: somebody works on them, and kraft regress --fail does not fail until then.

    The same as accept, except that the reports say who is working on the change, and that it can end at a date.

    [bold]Examples[/bold]

      kraft regress watch --store results --change 3f2a9c1d --by ana --reason 'bisecting'

      kraft regress watch --store results --benchmark 'Table::*' --until 2026-12-15 --reason 'issue 41'
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    _judge("watch", chosen, runs, detection, master, until, dry_run=dry_run, as_json=as_json)


@takes_groups
def expect(
    *,
    store: StoreOption,
    benchmark: Annotated[
        str,
        typer.Option(
            "--benchmark",
            metavar="GLOB",
            help="The benchmarks: glob for function, file::function or file::function\\[size=10].",
            show_default=False,
        ),
    ],
    slower: Annotated[
        bool,
        typer.Option("--slower/--faster", help="The direction of the change.", show_default=False),
    ],
    reason: ReasonOption,
    within_runs: Annotated[
        int | None,
        typer.Option(
            metavar="RUNS",
            min=1,
            help="It begins within this many runs from now on. Default: 10.",
            show_default=False,
        ),
    ] = None,
    within_commits: Annotated[
        int | None,
        typer.Option(
            metavar="COMMITS",
            min=1,
            help="It begins within this many measured commits from now on.",
            show_default=False,
        ),
    ] = None,
    at_most: AtMostOption = None,
    by: ByOption = None,
    runs: RunOptions,
    statistic: StatisticOption = "median",
    master: MasterOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Expect a change: kraft regress --fail does not fail when it comes.

    Say it before the change is measured. The first change in this direction that begins within the stated runs is the expected one; a change in the other direction, a later one and one that is worse than --at-most are new. The reports say when the expected change did not come.

    [bold]Examples[/bold]

      kraft regress expect --store results --benchmark 'LoadBench::*' --slower --at-most 15% --reason 'fsync on by default'

      kraft regress expect --store results --benchmark 'Table::lookup' --faster --within-commits 3 --reason 'new index'
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with refusing_bad_input():
        from kraft.errors import InvalidRequestError
        from kraft.regression.verdict_choice import Judgement, expectations_of

        if within_runs is not None and within_commits is not None:
            raise InvalidRequestError("--within-runs and --within-commits exclude each other")
        if not slower and at_most is not None:
            raise InvalidRequestError("--at-most is the limit of a regression: omit it or --faster")
        analysis = analysis_of(store, runs, DetectionOptions(statistic), master)
        limit = None if at_most is None else 1 + share_of(at_most)
        made = expectations_of(
            analysis,
            benchmark,
            Judgement(_author(by), _reason(reason), limit),
            is_worse=slower,
            within=within_commits or within_runs or 10,
            within_commits=within_commits is not None,
        )
        _record(store, made, output, dry_run=dry_run)


def reopen(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="The verdicts, by the first digits of their ids, as kraft regress verdicts prints "
            "them.",
            show_default=False,
        ),
    ],
    store: StoreOption,
    reason: ReasonOption,
    by: ByOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """End verdicts: their changes alarm again, and nothing is expected any more.

    The ledger keeps both, for kraft regress verdicts --all.

    [bold]Examples[/bold]

      kraft regress reopen 7c31 --store results --reason 'the checksums can be cached'
    """
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with refusing_bad_input():
        from kraft.regression.store import open_store
        from kraft.regression.verdict_choice import reopenings_of
        from kraft.regression.verdict_store import load_verdicts

        open_store(store)
        known = load_verdicts(store).verdicts
        made = reopenings_of(known, ids, _author(by), _reason(reason))
        _record(store, made, output, dry_run=dry_run)


def verdicts(
    store: StoreOption,
    benchmark: ChangedBenchmarkOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also verdicts that were replaced, and reopenings.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List verdicts, newest first: who accepted, expected or watches which change, and why.

    [bold]Examples[/bold]

      kraft regress verdicts --store results

      kraft regress verdicts --store results --benchmark 'Table::*' --all --json
    """
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with refusing_bad_input():
        from kraft.regression.project_rules import BenchmarkRule
        from kraft.regression.store import open_store
        from kraft.regression.verdict_store import load_verdicts

        open_store(store)
        ledger = load_verdicts(store)
        found = list(reversed(ledger.verdicts)) if every else ledger.in_force
        if benchmark is not None:
            rule = BenchmarkRule(benchmark)
            found = [each for each in found if rule.applies_to(each.key)]
        if as_json:
            from kraft.regression.json_report import verdict_as_json

            in_force = {each.id for each in ledger.in_force}
            output.document(
                {
                    "verdicts": [
                        {**verdict_as_json(each), "in_force": each.id in in_force} for each in found
                    ]
                }
            )
        else:
            _show(found, output)


def _judge(
    kind: str,
    chosen: ChosenOptions,
    runs: RunOptions,
    detection: DetectionOptions,
    master: str | None,
    until: str | None = None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Record a verdict on each change that the options of accept or watch select."""
    from kraft.cli.output import Output

    output = Output(as_json=as_json)
    with refusing_bad_input():
        from kraft.errors import InvalidRequestError
        from kraft.regression.verdict_choice import Judgement, changes_of, verdicts_on_changes
        from kraft.regression.verdicts import VerdictKind

        if chosen.every is not (chosen.benchmark is None and chosen.change is None):
            raise InvalidRequestError(
                f"name what to {kind} with --benchmark or --change, or everything with --all"
            )
        limit = None if chosen.at_most is None else 1 + share_of(chosen.at_most)
        judgement = Judgement(_author(chosen.by), _reason(chosen.reason), limit, _end(until))
        analysis = analysis_of(chosen.store, runs, detection, master)
        changes = changes_of(analysis, chosen.benchmark, chosen.change)
        made = verdicts_on_changes(VerdictKind(kind), changes, judgement)
        same = len(changes) - len(made)
        if same:
            output.note(f"{same} of {len(changes)} changes have this verdict already")
        _record(chosen.store, made, output, dry_run=dry_run)


def _record(store: str, made: Sequence[Verdict], output: Output, *, dry_run: bool) -> None:
    """Append verdicts to the ledger and print them."""
    from kraft.regression.json_report import verdict_as_json
    from kraft.regression.verdict_store import add_verdicts

    if made and not dry_run:
        made = add_verdicts(store, made)
    if output.as_json:
        document = {"dry_run": dry_run, "recorded": [verdict_as_json(each) for each in made]}
        output.document(document)
        return
    _show(made, output)
    if dry_run:
        output.note("nothing is recorded with --dry-run")


def _show(found: Sequence[Verdict], output: Output) -> None:
    from kraft.regression import report_text, verdict_text

    names = report_text.Names(each.key for each in found)
    columns = ["id", "when", "by", "verdict", "benchmark", "change", "commits", "until", "reason"]
    rows = [
        [
            each.id[:8],
            report_text.date_text(each.time_us) if each.time_us else "",
            report_text.printable(each.author),
            each.kind.value,
            names(each.key) + (f" over {each.size_param}" if each.size_param else ""),
            verdict_text.judged_change_text(each),
            verdict_text.judged_commits_text(each),
            report_text.date_text(each.until_us) if each.until_us else "",
            report_text.printable(each.reason),
        ]
        for each in found
    ]
    if rows:
        output.table("", columns, rows)
    else:
        output.note("no verdicts")


def _reason(text: str) -> str:
    from kraft.errors import InvalidRequestError

    if not text.strip():
        raise InvalidRequestError("--reason is empty: say why, for those who read the reports")
    return text.strip()


def _author(given: str | None) -> str:
    from kraft.errors import InvalidRequestError

    if given is not None:
        if not given.strip():
            raise InvalidRequestError("--by is empty: name who says so")
        return given.strip()
    try:
        ran = subprocess.run(
            ["git", "config", "user.name"], capture_output=True, text=True, check=False
        )
        name = ran.stdout.strip()
    except OSError:
        name = ""
    if name:
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise InvalidRequestError("who says so is unknown: name it with --by") from None


def _end(text: str | None) -> int | None:
    """Return the end of a watch in microseconds since 1970."""
    from kraft.errors import InvalidRequestError

    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(f"{text!r} is no date: write 2026-12-15") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at <= datetime.now(UTC):
        raise InvalidRequestError(f"--until {text} is past")
    return round(at.timestamp() * 1e6)
