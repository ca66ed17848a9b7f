"""``kraft preflight``: ask a running quorum whether a change will work, before making it.

Nothing is changed. ``kraft.preflight`` has the facts and the rules; this module prints them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG, FAILED, FOUND
from kraft.cli.features import FeatureLevelsOption, requested_levels
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.cli.quorum import controller_of

if TYPE_CHECKING:
    from kraft.preflight.changes import FeatureLevelChange, PlannedChange
    from kraft.preflight.facts import ClusterFacts, ControllerFacts
    from kraft.preflight.findings import PreflightFinding, RemedyStep

app = typer.Typer(
    help="Check whether a change of a running quorum will work, before making it.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

FINDING_COLUMNS = ("NUMBER", "SEVERITY", "WHERE", "FOUND")
NODE_COLUMNS = ("NODE", "ROLE", "LEVELS", "ADDRESS", "LAG", "STATE")

ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release-version",
        metavar="V",
        help="The levels of all features of this release, as 4.3 or 4.3-IV0.",
        show_default=False,
    ),
]
MetadataOption = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="V",
        help="A level of metadata.version alone, as 4.3 or 4.3-IV0.",
        show_default=False,
    ),
]
DirectoriesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--directory",
        metavar="DIR",
        help="Also check the disk of this metadata directory of a controller of this machine. "
        "Repeatable.",
        show_default=False,
    ),
]
MinFreeOption = Annotated[
    int,
    typer.Option(
        "--min-free",
        metavar="MIB",
        min=0,
        help="With --directory: report a disk with less free space, in MiB.",
    ),
]
UnsafeOption = Annotated[
    bool, typer.Option("--unsafe", help="Check an unsafe downgrade, as kafka-features has it.")
]
_MIN_FREE_MIB = 1024


@app.callback()
def _preflight() -> None:
    """Check whether a change of a running quorum will work, before making it.

    Works on quorums of Apache Kafka (3.7 or newer) and of kraft. Changes nothing. Exit code 0: the change will work; 3: with a risk; 4: it will be rejected, or stop the quorum.
    """  # noqa: E501  (help joins no lines: each paragraph is one)


@app.command("quorum", epilog=EPILOG)
@takes_groups
def quorum_(
    quorum: QuorumOptions,
    directory: DirectoriesOption = None,
    min_free: MinFreeOption = _MIN_FREE_MIB,
    as_json: JsonOption = False,
) -> None:
    """Check the quorum itself: voters that fail or lag, registrations of nodes that are gone, disks.

    The checks of a change include these.

    [bold]Examples[/bold]

      kraft preflight quorum --bootstrap-controller localhost:9093

      kraft preflight quorum --bootstrap-controller localhost:9093 --directory /var/lib/kafka/metadata
    """  # noqa: E501
    _run(quorum, None, directory, min_free, as_json)


@app.command(epilog=EPILOG)
@takes_groups
def upgrade(
    quorum: QuorumOptions,
    release_version: ReleaseOption = None,
    metadata: MetadataOption = None,
    feature: FeatureLevelsOption = None,
    directory: DirectoriesOption = None,
    min_free: MinFreeOption = _MIN_FREE_MIB,
    as_json: JsonOption = False,
) -> None:
    """Check higher levels of features: every registered node must support them.

    [bold]Examples[/bold]

      kraft preflight upgrade --release-version 4.3 --bootstrap-controller localhost:9093

      kraft preflight upgrade --feature kraft.version=1 --bootstrap-controller localhost:9093
    """
    from kraft.admin import UpgradeType

    change = _levels(release_version, metadata, feature, UpgradeType.UPGRADE)
    _run(quorum, change, directory, min_free, as_json)


@app.command(epilog=EPILOG)
@takes_groups
def downgrade(
    quorum: QuorumOptions,
    release_version: ReleaseOption = None,
    metadata: MetadataOption = None,
    feature: FeatureLevelsOption = None,
    unsafe: UnsafeOption = False,
    directory: DirectoriesOption = None,
    min_free: MinFreeOption = _MIN_FREE_MIB,
    as_json: JsonOption = False,
) -> None:
    """Check lower levels of features: no metadata may be lost.

    [bold]Examples[/bold]

      kraft preflight downgrade --metadata 4.2 --bootstrap-controller localhost:9093
    """
    from kraft.admin import UpgradeType

    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    change = _levels(release_version, metadata, feature, kind)
    _run(quorum, change, directory, min_free, as_json)


@app.command("dynamic-quorum", epilog=EPILOG)
@takes_groups
def dynamic_quorum(
    quorum: QuorumOptions,
    directory: DirectoriesOption = None,
    min_free: MinFreeOption = _MIN_FREE_MIB,
    as_json: JsonOption = False,
) -> None:
    """Check whether static voters can become voters that can change: kraft.version 0 to 1.

    [bold]Examples[/bold]

      kraft preflight dynamic-quorum --bootstrap-controller localhost:9093
    """
    from kraft.preflight.changes import DynamicQuorumChange

    change = DynamicQuorumChange()
    _run(quorum, change, directory, min_free, as_json)


@app.command("replace-controller", epilog=EPILOG)
@takes_groups
def replace_controller(
    quorum: QuorumOptions,
    controller_id: Annotated[
        int, typer.Option("--controller-id", "-i", min=0, help="The node id of the old voter.")
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The configuration of the replacement; its directory must be formatted.",
            show_default=False,
        ),
    ] = None,
    directory: DirectoriesOption = None,
    min_free: MinFreeOption = _MIN_FREE_MIB,
    as_json: JsonOption = False,
) -> None:
    """Check whether a voter can be replaced: by another controller, or by its own new disk.

    [bold]Examples[/bold]

      kraft preflight replace-controller --controller-id 3 --bootstrap-controller localhost:9093

      kraft preflight replace-controller --controller-id 3 -c controller-4.properties
      --bootstrap-controller localhost:9093
    """
    from kraft.preflight.changes import ControllerReplacement

    change = ControllerReplacement(controller_id)
    if config is not None:
        new = controller_of(config)
        change = ControllerReplacement(controller_id, new.voter, new.endpoints, str(config))
    _run(quorum, change, directory, min_free, as_json)


def _levels(
    release: str | None, metadata: str | None, features: list[str] | None, kind: Any
) -> FeatureLevelChange:
    """Return the change that the options name; raises a usage error, UnsupportedVersionError."""
    from kraft.admin import UpgradeType
    from kraft.preflight.changes import FeatureLevelChange
    from kraft.records.versions import METADATA_VERSION, MetadataVersion

    given = list(features or ())
    if metadata is not None:
        if release is not None:
            raise typer.BadParameter("give either --release-version or --metadata")
        given.append(f"{METADATA_VERSION}={MetadataVersion.from_text(metadata).value}")
    if bool(given) == (release is not None):
        raise typer.BadParameter("give either --release-version, or --metadata and --feature")
    levels = requested_levels(given or None, release, is_upgrade=kind is UpgradeType.UPGRADE)
    return FeatureLevelChange(levels, kind, release)


def _run(
    quorum: QuorumOptions,
    change: PlannedChange,
    directories: list[Path] | None,
    min_free_mib: int,
    as_json: bool,
) -> None:
    """Gather, check and print; end with the exit code of the worst finding."""
    from kraft.cli.output import Output, progress
    from kraft.preflight.changes import DynamicQuorumChange, FeatureLevelChange, commands_of
    from kraft.preflight.findings import CommandWords, FindingSeverity
    from kraft.preflight.gathering import gather
    from kraft.preflight.rules import check

    levels = change.as_levels() if isinstance(change, DynamicQuorumChange) else change
    with progress("asking the controllers", 1.0, shown=not as_json) as advance:
        facts = gather(
            quorum.settings(),
            levels if isinstance(levels, FeatureLevelChange) else None,
            directories or (),
            advance,
        )
    words = CommandWords(
        quorum.bootstrap_controller,
        None if quorum.command_config is None else str(quorum.command_config),
    )
    findings = check(facts, change, words, min_free_mib=min_free_mib)
    severities = {each.severity for each in findings}
    is_blocked = FindingSeverity.BLOCKS in severities
    # What is blocked is not shown how to do.
    steps = [] if is_blocked else commands_of(change, facts, words)
    output = Output(as_json=as_json)
    if as_json:
        output.document(_document(facts, change, findings, steps))
    else:
        _print(output, facts, change, findings, steps)
    if is_blocked:
        count = sum(each.severity is FindingSeverity.BLOCKS for each in findings)
        what = "the quorum has" if change is None else "the change will not work:"
        print(
            f"error: {what} {count} finding{'s' if count > 1 else ''} that block"
            f"{'' if count > 1 else 's'} it",
            file=sys.stderr,
        )
        raise typer.Exit(FAILED)
    if FindingSeverity.WARNING in severities:
        raise typer.Exit(FOUND)


# -- output


def _print(
    output: Any,
    facts: ClusterFacts,
    change: PlannedChange,
    findings: Sequence[PreflightFinding],
    steps: Sequence[RemedyStep],
) -> None:
    from kraft.preflight.facts import level_text

    output.fields(
        "Quorum",
        [
            ("Change", "none: the quorum itself" if change is None else str(change)),
            ("ClusterId", facts.cluster_id),
            ("LeaderId", facts.leader_id),
            ("Voters", ", ".join(str(each.id) for each in facts.voters)),
            (
                "Levels",
                ", ".join(
                    f"{name} {level_text(name, level)}"
                    for name, level in sorted(facts.finalized.items())
                ),
            ),
        ],
    )
    output.table("Nodes", NODE_COLUMNS, _node_rows(facts), numbers=("NODE", "LAG"))
    if findings:
        rows = [
            (number, each.severity.value, each.subject, each.found)
            for number, each in enumerate(findings, 1)
        ]
        output.table("Findings", FINDING_COLUMNS, rows, numbers=("NUMBER",))
        print("\nWhy, and what to do")
        for number, finding in enumerate(findings, 1):
            print(f"{number}. {finding.subject}: {finding.why}")
            _print_steps(finding.steps)
    if not any(each.severity != "note" for each in findings):
        print(f"\nNothing stands against {'a change' if change is None else 'the change'}.")
    if steps:
        print("\nThe change")
        _print_steps(steps)


def _print_steps(steps: Sequence[RemedyStep]) -> None:
    for step in steps:
        first, *more = step.text.splitlines()
        print(f"   - {first}")
        for line in more:
            print(f"     {line}")
        for command in (step.kafka, step.kraft):
            if command:
                print(f"       {command}")


def _node_rows(facts: ClusterFacts) -> list[tuple[object, ...]]:
    """Return a row of `NODE_COLUMNS` for each controller and broker."""
    from kraft.preflight.facts import release_of
    from kraft.records.versions import METADATA_VERSION

    rows: list[tuple[object, ...]] = []
    for id, each in sorted(facts.controllers.items()):
        role = "leader" if id == facts.leader_id else "voter" if each.is_voter else "controller"
        lag = "" if each.replica is None else each.replica.lag
        release = release_of(each.metadata_version_max)
        rows.append((id, role, release, each.address or "", lag, _controller_state(each)))
    for id, broker in sorted(facts.brokers.items()):
        levels = broker.features.get(METADATA_VERSION)
        release = release_of(None if levels is None else levels.max)
        state = "gone" if broker.is_gone else "fenced" if broker.is_fenced else "running"
        rows.append((id, "broker", release, broker.address, "", state))
    return rows


def _controller_state(controller: ControllerFacts) -> str:
    if controller.is_gone:
        return "gone"
    states = ["running" if controller.running is not None else "no answer"]
    if controller.registered is None:
        states.append("not registered")
    if controller.is_voter and controller.replica is not None and not controller.replica.is_current:
        states.append("lags" if controller.replica.is_fetching else "does not fetch")
    return ", ".join(states)


def _document(
    facts: ClusterFacts,
    change: PlannedChange,
    findings: Sequence[PreflightFinding],
    steps: Sequence[RemedyStep],
) -> dict[str, Any]:
    """Return the whole result with stable keys."""
    blocks = any(each.severity == "blocks" for each in findings)
    rows = [dict(zip(NODE_COLUMNS, row, strict=True)) for row in _node_rows(facts)]
    return {
        "change": None if change is None else str(change),
        "clusterId": facts.cluster_id,
        "leaderId": facts.leader_id,
        "voters": [each.id for each in facts.voters],
        "features": dict(sorted(facts.finalized.items())),
        "willWork": not blocks,
        "nodes": [{name.lower(): value for name, value in row.items()} for row in rows],
        "findings": [
            {**asdict(each), "severity": each.severity.value, "steps": _documents(each.steps)}
            for each in findings
        ],
        "steps": _documents(steps),
    }


def _documents(steps: Sequence[RemedyStep]) -> list[dict[str, str]]:
    return [asdict(step) for step in steps]
