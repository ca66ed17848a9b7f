"""``kraft sweep simulate``: simulate clusters for very many seeds."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import FAILED, INTERRUPTED
from kraft.cli.options import JsonOption, SweepMasterOption, SweepSparkOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from kraft.cli.output import Output
    from kraft.simulation.seeds import SeedSummary, ShrunkFailure


def simulate(
    seeds: Annotated[
        str,
        typer.Option("--seeds", metavar="A..B", help="Simulate the seeds A to B - 1, or one seed."),
    ] = "0..1000",
    controllers: Annotated[
        bool,
        typer.Option(
            "--controllers",
            help="Simulate whole clusters (real controllers, simulated brokers and clients), not "
            "only the quorum.",
        ),
    ] = False,
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            metavar="N",
            min=1,
            help="Events per seed, at least. Default: 10,000; 4,000 with --controllers.",
            show_default=False,
        ),
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink/--no-shrink",
            help="Minimise a failing seed: remove faults and nodes while the same invariant is "
            "violated.",
        ),
    ] = True,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="SPEC",
            help="Run one seed again, original or minimised, as printed: quorum:1173:10000.",
            show_default=False,
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="With --replay: print every line of the trace.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Processes on this machine. Default: one per core.",
            show_default=False,
        ),
    ] = None,
    master: SweepMasterOption = None,
    spark: SweepSparkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate clusters with faults in virtual time, one per seed, and check every invariant after every event.

    Networks lose and damage messages, nodes crash and lose unsynced writes, disks fill up, clocks drift, operators change the voters. Then the faults stop, and the cluster must make progress. For a failing seed, prints the violated invariant, minimises the faults, and prints the result as a line for --replay with the end of its trace. Exit code 4: a seed failed.

    The same seeds always give the same counts and the same digest, on any number of cores.

    [bold]Examples[/bold]

      kraft sweep simulate --seeds 0..2000

      kraft sweep simulate --seeds 0..20000 --controllers

      kraft sweep simulate --seeds 0..1000000 --master spark://host:7077 --json

      kraft sweep simulate --replay quorum:1173:10000
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output
    from kraft.simulation.seeds import parse_seeds

    output = Output(as_json=as_json)
    if replay is not None:
        _replay(output, replay, is_shrunk=shrink, is_whole=whole)
        return
    chosen = parse_seeds(seeds)
    with ExitStack() as stack:
        session = None
        if spark or master is not None:
            from kraft.spark.session import spark_session

            session = stack.enter_context(
                spark_session(master=master or "local[*]", app_name="kraft sweep simulate")
            )
        _sweep(output, chosen, controllers, events, shrink, jobs or os.cpu_count() or 1, session)


def _sweep(
    output: Output,
    seeds: range,
    controllers: bool,
    events: int | None,
    is_shrunk: bool,
    jobs: int,
    session: SparkSession | None,
) -> None:
    from kraft.cli.output import progress
    from kraft.simulation.replays import CONTROLLERS, QUORUM
    from kraft.simulation.seeds import SeedSummary, failures_to_shrink, shrink_locally

    kind = CONTROLLERS if controllers else QUORUM
    event_limit = events or kind.event_limit
    summary = SeedSummary(kind)
    findings: list[ShrunkFailure] = []
    start = perf_counter()
    wall_seconds = 0.0
    is_interrupted = False
    try:
        with progress("simulate", len(seeds), shown=not output.as_json) as advance:
            for part in _parts(seeds, kind, event_limit, jobs, session):
                summary.add(part)
                wall_seconds = perf_counter() - start
                advance(summary.seeds)
        replays = failures_to_shrink(summary, event_limit) if is_shrunk else []
        if session is None:
            findings = shrink_locally(replays, jobs) if replays else []
        else:
            from kraft.spark.seeds import shrink_on_spark

            findings = shrink_on_spark(session, replays)
    except KeyboardInterrupt:
        is_interrupted = True
    figures = summary.as_dict(wall_seconds)
    # Summaries arrive in the order of the seeds, so the finished seeds are the first ones.
    left = seeds[summary.seeds :]
    if output.as_json:
        figures["shrunk"] = [finding.as_dict() for finding in findings]
        figures["left"] = f"{left.start}..{left.stop}" if left else None
        output.document(figures)
    else:
        _show(summary, findings, event_limit)
        print(summary.as_line(wall_seconds))
    if is_interrupted:
        text = f"{summary.seeds:,} of {len(seeds):,} seeds are done"
        if left:
            text += f"; the others: --seeds {left.start}..{left.stop}"
        print(f"interrupted: {text}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if summary.failures:
        print(f"error: {len(summary.failures)} of {summary.seeds} seeds failed", file=sys.stderr)
        raise typer.Exit(FAILED)


def _parts(
    seeds: range, kind: Any, event_limit: int, jobs: int, session: SparkSession | None
) -> Iterator[SeedSummary]:
    if session is None:
        from kraft.simulation.seeds import run_locally

        return run_locally(seeds, kind, event_limit, jobs)
    from kraft.spark.seeds import run_on_spark

    return run_on_spark(session, seeds, kind, event_limit)


def _show(summary: SeedSummary, findings: list[ShrunkFailure], event_limit: int) -> None:
    for finding in findings:
        _show_finding(finding)
    shrunk_seeds = {finding.failure.seed for finding in findings}
    for failure in summary.failures:
        if failure.seed not in shrunk_seeds:
            print(f"seed {failure.seed}, event {failure.event}: {failure.violation}")
            print(f"again: --replay {summary.kind.name}:{failure.seed}:{event_limit}")


def _show_finding(finding: ShrunkFailure) -> None:
    failure = finding.failure
    print(f"seed {failure.seed}, shrunk by {finding.runs} runs; its last lines:")
    for line in finding.lines:
        print(f"  {line}")
    print(
        f"{failure.violation}\n"
        f"{failure.event} events -> {finding.events}, {finding.faults_before} faults -> "
        f"{finding.faults}, {finding.nodes_before} nodes -> {finding.nodes}\n"
        f"again: kraft sweep simulate --no-shrink --replay {finding.replay}\n"
    )


def _replay(output: Output, text: str, *, is_shrunk: bool, is_whole: bool) -> None:
    """Run one seed again and print its outcome."""
    from kraft.simulation.replays import parse
    from kraft.simulation.seeds import LAST_LINES, MAX_LINE_LENGTH, shrink_failure

    given = parse(text)
    outcome = given.run(is_traced=True)
    if is_whole and not output.as_json:
        print("\n".join(outcome.lines))
    violation = outcome.violation
    finding = shrink_failure(text) if violation is not None and is_shrunk else None
    if output.as_json:
        output.document(
            {
                "replay": str(given),
                "events": outcome.events,
                "nodes": outcome.node_count,
                "simulated_seconds": round(outcome.simulated_ms / 1000.0, 3),
                "digest": f"{outcome.digest:08x}",
                "faults": [{"number": number, "name": name} for number, name in outcome.injected],
                "violation": None if violation is None else str(violation),
                "counts": dict(sorted(outcome.counts.items())),
                "lines": outcome.lines if is_whole else outcome.lines[-LAST_LINES:],
                "shrunk": None if finding is None else finding.as_dict(),
            }
        )
    elif finding is not None:
        _show_finding(finding)
    else:
        for line in outcome.lines[-LAST_LINES:] if violation is not None and not is_whole else ():
            print(line[:MAX_LINE_LENGTH])
        faults = ", ".join(f"{number} {name}" for number, name in outcome.injected)
        print(f"faults: {faults or 'none'}")
        print(
            f"{given}: {outcome.events} events of {outcome.node_count} nodes in "
            f"{outcome.simulated_ms / 1000.0:.1f} simulated seconds; digest {outcome.digest:08x}; "
            f"{violation or 'no violation'}"
        )
    if violation is not None:
        print(f"error: the history violates an invariant: {violation}", file=sys.stderr)
        raise typer.Exit(FAILED)
