"""``kraft sweep outages``: simulate the loss of brokers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.exit_codes import FAILED, INTERRUPTED
from kraft.cli.options import (
    AtOption,
    FromOption,
    JsonOption,
    SalvageOption,
    SweepMasterOption,
    SweepSparkOption,
)

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.lab.outage_report import Outage, OutagePlan, OutageReport
    from kraft.metadata.facade import Metadata

_HEADINGS = (
    *("lost", "unavailable", "unclean", "under min ISR", "at min ISR", "leaders moved"),
    *("leader skew", "most loaded"),
)
#: Brokers of one --lose that are listed; the others are counted.
_MOST_NAMED = 8


def outages(
    from_: FromOption,
    at: AtOption = None,
    brokers: Annotated[
        bool,
        typer.Option("--brokers/--no-brokers", help="Evaluate the loss of each single broker."),
    ] = True,
    racks: Annotated[
        bool, typer.Option("--racks/--no-racks", help="Evaluate the loss of each rack.")
    ] = True,
    pairs: Annotated[
        bool, typer.Option("--pairs/--no-pairs", help="Evaluate the loss of each pair.")
    ] = True,
    lose: Annotated[
        list[str] | None,
        typer.Option(
            "--lose",
            metavar="ID,ID...",
            help="Also evaluate the loss of these brokers, in this order. Repeatable.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="Show the N worst; 0 for all.")
    ] = 10,
    max_unavailable: Annotated[
        int | None,
        typer.Option(
            "--max-unavailable",
            metavar="N",
            min=0,
            help="Exit with code 4 if an outage leaves more than N partitions without a leader.",
            show_default=False,
        ),
    ] = None,
    max_under_min_isr: Annotated[
        int | None,
        typer.Option(
            "--max-under-min-isr",
            metavar="N",
            min=0,
            help="Exit with code 4 if an outage leaves more than N partitions under "
            "min.insync.replicas or without a leader.",
            show_default=False,
        ),
    ] = None,
    max_unclean: Annotated[
        int | None,
        typer.Option(
            "--max-unclean",
            metavar="N",
            min=0,
            help="Exit with code 4 if an outage causes more than N unclean elections, which lose "
            "records.",
            show_default=False,
        ),
    ] = None,
    max_leader_skew: Annotated[
        float | None,
        typer.Option(
            "--max-leader-skew",
            metavar="X",
            min=1.0,
            help="Exit with code 4 if the most loaded broker leads more than X times the mean.",
            show_default=False,
        ),
    ] = None,
    master: SweepMasterOption = None,
    spark: SweepSparkOption = False,
    salvage: SalvageOption = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate the loss of every broker, rack and pair of brokers, and print the worst outages first.

    Applies Kafka's rules to the metadata: ISRs, ELRs, offline log directories, min.insync.replicas and unclean.leader.election.enable of each topic. The brokers of an outage are fenced one after another, as the controller does when their sessions end; brokers that are already fenced are skipped.

    Counts the partitions that lose their leader, get a leader out of sync (records are lost), fall under or down to min.insync.replicas, or change their leader, and divides the leaders of the most loaded broker by the mean. Partitions in such a state before the outage are not counted; they are printed separately.

    The thresholds are for CI: exit code 4 if any outage exceeds one, whether it is shown or not.

    [bold]Examples[/bold]

      kraft sweep outages --from /var/lib/kafka/metadata

      kraft sweep outages --from DIR --no-pairs --max-unavailable 0 --max-under-min-isr 0

      kraft sweep outages --from DIR --no-brokers --no-pairs --max-leader-skew 2

      kraft sweep outages --from DIR --no-brokers --no-racks --no-pairs --lose 1,2,3

      kraft sweep outages --from DIR --master spark://host:7077 --json --top 0
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output
    from kraft.lab.outages import plan_outages
    from kraft.metadata.facade import open_metadata

    groups = [_brokers(text) for text in lose or ()]
    output = Output(as_json=as_json)
    metadata = open_metadata(Path(from_), at=at, salvage=salvage)
    plan = plan_outages(metadata, brokers=brokers, racks=racks, pairs=pairs, groups=groups)
    try:
        if spark or master is not None:
            report = _on_spark(metadata, plan, master, as_json)
        else:
            report = _here(metadata, plan)
    except KeyboardInterrupt:
        print("interrupted: no files are left", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        output.document(report.as_dict(top or None))
    else:
        _show(output, report, top)
    limits = {
        "unavailable": max_unavailable,
        "under_min_isr": max_under_min_isr,
        "unclean": max_unclean,
        "leader_skew": max_leader_skew,
    }
    exceeded = [
        f"{name} {report.greatest(name):g} (limit {limit:g})"
        for name, limit in limits.items()
        if limit is not None and report.greatest(name) > limit
    ]
    if exceeded:
        print(f"error: an outage exceeds a limit: {'; '.join(exceeded)}", file=sys.stderr)
        raise typer.Exit(FAILED)


def _brokers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of broker ids", param_hint="--lose"
        ) from None


def _here(metadata: Metadata, plan: OutagePlan) -> OutageReport:
    from kraft.cli.output import progress
    from kraft.lab.outages import sweep_outages

    with progress("sweep outages", len(plan)) as advance:
        return sweep_outages(metadata, plan, advance=advance)


def _on_spark(
    metadata: Metadata, plan: OutagePlan, master: str | None, quiet: bool
) -> OutageReport:
    from kraft.spark.outages import sweep
    from kraft.spark.session import spark_session

    shows_progress = sys.stderr.isatty() and not quiet
    with spark_session(
        master=master or "local[*]", app_name="kraft sweep outages", progress=shows_progress
    ) as session:
        return sweep(session, metadata, plan)


def _show(output: Output, report: OutageReport, top: int) -> None:
    before = report.baseline
    names = {"broker": "single", "rack": "by rack", "pair": "in pairs", "brokers": "named"}
    counts = [
        f"{report.count_of(kind):,} {name}" for kind, name in names.items() if report.count_of(kind)
    ]
    output.fields(
        "Before",
        [
            ("partitions", before.partitions),
            ("brokers alive", before.living),
            ("without a leader", before.unavailable),
            ("under min ISR", before.under_min_isr),
            ("at min ISR", before.at_min_isr),
            ("leader skew", _skew(before.leader_skew)),
            ("outages swept", ", ".join(counts) or "none"),
        ],
    )
    shown = report.worst(top or None)
    output.table(
        "Outages, worst first" if len(shown) == len(report) else f"The {len(shown)} worst outages",
        _HEADINGS,
        [
            (
                _name(each),
                each.unavailable,
                each.unclean,
                each.under_min_isr,
                each.at_min_isr,
                each.moved,
                _skew(each.leader_skew),
                "none left" if each.most_loaded is None else f"broker {each.most_loaded}",
            )
            for each in shown
        ],
        numbers=_HEADINGS[1:-1],
    )


def _name(outage: Outage) -> str:
    if outage.rack is None and len(outage.brokers) > _MOST_NAMED:
        first = ", ".join(map(str, outage.brokers[:_MOST_NAMED]))
        return f"brokers {first} and {len(outage.brokers) - _MOST_NAMED} more"
    return outage.name


def _skew(skew: float | None) -> str:
    return "" if skew is None else f"{skew:.2f}"
