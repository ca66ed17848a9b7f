"""``kraft lab fleet-calibrate`` and ``fleet-cost``: the costs of a cluster of any size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.options import JsonOption
from kraft.fleet.quorum_kind import QuorumKind

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.fleet.calibration import Calibration
    from kraft.fleet.cost_model import Coefficients
    from kraft.fleet.cost_report import CostReport

HeartbeatOption = Annotated[
    float,
    typer.Option(
        "--heartbeat-ms", metavar="MS", min=1, help="broker.heartbeat.interval.ms of the brokers."
    ),
]
IdleAppendOption = Annotated[
    float,
    typer.Option(
        "--idle-append-ms",
        metavar="MS",
        min=1,
        help="metadata.max.idle.interval.ms: an idle controller appends a record this often.",
    ),
]


def fleet_calibrate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Directories of runs of one quorum, or folders with such directories below.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the costs to this file, for fleet-cost.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit the costs of a quorum's work to runs of the fleet: CPU of a heartbeat, a fetch, a record, a byte.

    Each step of each run is one equation. The runs have to differ in brokers and in load; where they cannot tell two costs apart, the command says so and fits nothing. The CPU of a trace is that of all controllers, so that the costs include those of the standbys.

    [bold]Examples[/bold]

      kraft lab fleet-calibrate runs/kraft --out kraft-costs.json

      kraft lab fleet-cost --brokers 10000 --partitions 10000000 --costs kraft-costs.json
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output, progress
    from kraft.fleet.calibration import calibrate
    from kraft.fleet.traces import read_run, run_directories

    output = Output(as_json=as_json)
    directories = run_directories(paths)
    runs = []
    with progress("read runs", len(directories)) as advance:
        for number, directory in enumerate(directories, 1):
            runs.append(read_run(directory))
            advance(number)
    found = calibrate(runs)
    if out is not None:
        out.write_text(json.dumps(found.as_dict(), indent=2) + "\n", encoding="utf-8")
    if as_json:
        output.document(found.as_dict())
        return
    _show_calibration(output, found)
    if out is not None:
        output.note(f"wrote {out}")


def _show_calibration(output: Output, found: Calibration) -> None:
    from kraft.fleet.cost_model import UNITS, Term
    from kraft.fleet.texts import number_text, value_text

    costs = found.coefficients
    headings = ("cost", "value", "+-", "unit")
    output.table(
        f"Costs of {costs.quorum}, from {found.equations} steps of {len(found.runs)} runs",
        headings,
        [
            (
                term.value,
                "below 0, left out" if term in found.left_out else number_text(value),
                number_text(costs.error(term), digits=2),
                UNITS[term],
            )
            for term, value in zip(Term, costs.values, strict=True)
        ],
        numbers=headings[1:3],
    )
    memory = "the runs do not vary enough"
    if costs.memory is not None:
        base, broker, partition = (value_text(each, "bytes") for each in costs.memory)
        memory = f"{base}, {broker} a broker, {partition} a partition"
    output.fields(
        "Fit",
        [
            ("explained", f"{found.r_squared:.1%} of the variance of CPU"),
            ("residual", f"{number_text(found.residual)} cores"),
            ("memory of one controller", memory),
        ],
    )


def fleet_cost(
    brokers: Annotated[
        int, typer.Option("--brokers", metavar="B", min=1, help="The number of brokers.")
    ] = 10_000,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="P", min=1, help="The number of partitions.")
    ] = 10_000_000,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", metavar="R", min=1, help="Replicas a partition.")
    ] = 3,
    racks: Annotated[
        int,
        typer.Option("--racks", metavar="K", min=1, help="Racks; the loss of one is estimated."),
    ] = 3,
    changes: Annotated[
        float,
        typer.Option(
            "--changes", metavar="N", min=0, help="Metadata changes a second, beside idle appends."
        ),
    ] = 0.0,
    quorum: Annotated[
        QuorumKind | None,
        typer.Option(
            "--quorum",
            help="Whose controllers answer the observers: kraft's in rounds for many commits, "
            "Apache Kafka's twice an append. Default: the quorum of --costs, else kraft.",
            show_default=False,
        ),
    ] = None,
    fan_out: Annotated[
        int | None,
        typer.Option(
            "--fan-out",
            metavar="F",
            min=2,
            help="Compare with observers that fetch through a tree with F children a node.",
            show_default=False,
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs",
            metavar="FILE",
            help="The costs that fleet-calibrate wrote. Default: requests and bytes only, without "
            "CPU and memory.",
            show_default=False,
        ),
    ] = None,
    cores: Annotated[
        float,
        typer.Option(
            metavar="N",
            min=0.01,
            help="Cores that the active controller can use. 1: one thread handles its requests.",
        ),
    ] = 1.0,
    network_gbit: Annotated[
        float, typer.Option("--network-gbit", metavar="N", min=0.001, help="Its network, Gbit/s.")
    ] = 10.0,
    disk_mb: Annotated[
        float, typer.Option("--disk-mb", metavar="N", min=0.1, help="Its disk writes, MB/s.")
    ] = 200.0,
    memory_gib: Annotated[
        float, typer.Option("--memory-gib", metavar="N", min=0.1, help="Its memory, GiB.")
    ] = 64.0,
    burst_s: Annotated[
        float,
        typer.Option(
            "--burst-s",
            metavar="S",
            min=0.01,
            help="Seconds that the loss of a rack and a cold start may take.",
        ),
    ] = 9.0,
    heartbeat_ms: HeartbeatOption = 2000,
    idle_append_ms: IdleAppendOption = 500,
    as_json: JsonOption = False,
) -> None:
    """Estimate what a cluster costs its active controller, and which resource breaks first.

    Counts heartbeats, observer fetches and bytes from the protocol's rules and the format of the records; no measurement is needed for these. With the costs of fleet-calibrate also CPU and memory, with standard errors. The machine's limits are assumptions: change them with the options.

    [bold]Examples[/bold]

      kraft lab fleet-cost --brokers 10000 --partitions 10000000 --fan-out 16

      kraft lab fleet-cost --brokers 1000 --partitions 1000000 --costs kraft-costs.json --cores 2

      kraft lab fleet-cost --brokers 10000 --partitions 10000000 --quorum kafka
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output
    from kraft.fleet.calibration import parse
    from kraft.fleet.cost_model import Cluster, ControllerMachine
    from kraft.fleet.cost_report import cost_report

    output = Output(as_json=as_json)
    coefficients = None if costs is None else parse(costs.read_bytes(), str(costs))
    cluster = Cluster(
        brokers,
        partitions,
        replication_factor=replication_factor,
        racks=racks,
        changes_per_s=changes,
        heartbeat_s=heartbeat_ms / 1000,
        idle_append_s=idle_append_ms / 1000,
        quorum=_kind(quorum, coefficients),
    )
    machine = ControllerMachine(
        cores=cores,
        network_bytes_s=network_gbit * 1.25e8,
        disk_bytes_s=disk_mb * 1e6,
        memory_bytes=memory_gib * 2**30,
        burst_s=burst_s,
    )
    report = cost_report(cluster, machine, coefficients, fan_out)
    if as_json:
        output.document(report.as_dict())
        return
    _show_cost(output, report, has_costs=coefficients is not None)


def _kind(wanted: QuorumKind | None, coefficients: Coefficients | None) -> QuorumKind:
    """Return whose controllers are meant.

    Raises InvalidRequestError where the costs are those of other controllers.
    """
    from kraft.errors import InvalidRequestError

    if coefficients is None:
        return wanted or QuorumKind.KRAFT
    # The label of a run of Apache Kafka's quorum has its version: kafka-4.3.1.
    measured = coefficients.quorum.partition("-")[0]
    if measured not in list(QuorumKind):
        if wanted is None:
            raise InvalidRequestError(
                f"the costs are those of the quorum {coefficients.quorum!r}: say with --quorum "
                "whether its controllers are kraft's or Apache Kafka's"
            )
        return wanted
    if wanted is not None and wanted != measured:
        raise InvalidRequestError(
            f"--quorum {wanted} does not go with the costs of {coefficients.quorum}: leave "
            f"out --quorum, or name costs of {wanted} (kraft lab fleet-calibrate)"
        )
    return QuorumKind(measured)


def _show_cost(output: Output, report: CostReport, *, has_costs: bool) -> None:
    from kraft.fleet.cost_report import breaking_text
    from kraft.fleet.texts import ratio_text, value_text

    cluster = report.clusters[0]
    output.table(
        f"Work of the active controller: {cluster.brokers:,} brokers, "
        f"{cluster.partitions:,} partitions, quorum {cluster.quorum}",
        ["work", *report.names],
        [(row.name, *row.texts()) for row in report.rows],
        numbers=report.names,
    )
    headings = ("resource", "load", "limit", "load / limit", "reached at")
    for name, found, each in zip(report.names, report.limits, report.clusters, strict=True):
        output.table(
            f"Limits, {name}",
            headings,
            [
                (
                    limit.name,
                    value_text(limit.load, limit.unit),
                    value_text(limit.limit, limit.unit),
                    ratio_text(limit.share),
                    "never" if limit.breaks_at == float("inf")
                    else f"{each.scaled(limit.breaks_at).brokers:,} brokers",
                )
                for limit in found
            ],
            numbers=headings[1:],
        )  # fmt: skip
    first = [
        (name, breaking_text(found[0], each))
        for name, found, each in zip(report.names, report.limits, report.clusters, strict=True)
    ]
    if not has_costs:
        first.append(("CPU and memory", "not estimated: they need --costs, see fleet-calibrate"))
    output.fields("First to break, with partitions in proportion to brokers", first)
