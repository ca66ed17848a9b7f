"""``kraft preflight``: ask a running quorum whether a change will work, before making it.

Nothing is changed. ``kraft.preflight`` has the facts and the rules; this module prints them.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.features import FeatureLevelsOption, requested_levels
from kraft.cli.findings import (
    DirectoriesOption,
    MinFreeOption,
    exit_by,
    finding_documents,
    is_blocked,
    print_findings,
    print_quorum,
    print_steps,
    quorum_document,
)
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.cli.quorum import controller_of
from kraft.preflight.findings import MIN_FREE_MIB

if TYPE_CHECKING:
    from kraft.preflight.changes import FeatureLevelChange, PlannedChange

app = typer.Typer(
    help="Check whether a change of a running quorum will work, before making it.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

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
UnsafeOption = Annotated[
    bool, typer.Option("--unsafe", help="Check an unsafe downgrade, as kafka-features has it.")
]


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
    min_free: MinFreeOption = MIN_FREE_MIB,
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
    min_free: MinFreeOption = MIN_FREE_MIB,
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
    min_free: MinFreeOption = MIN_FREE_MIB,
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
    min_free: MinFreeOption = MIN_FREE_MIB,
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
    min_free: MinFreeOption = MIN_FREE_MIB,
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
    from kraft.preflight.findings import CommandWords
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
    # What is blocked is not shown how to do.
    steps = [] if is_blocked(findings) else commands_of(change, facts, words)
    output = Output(as_json=as_json)
    if as_json:
        output.document(
            {
                "change": None if change is None else str(change),
                **quorum_document(facts),
                "willWork": not is_blocked(findings),
                "findings": finding_documents(findings),
                "steps": [asdict(step) for step in steps],
            }
        )
    else:
        what = "none: the quorum itself" if change is None else str(change)
        print_quorum(output, facts, [("Change", what)])
        print_findings(output, findings, "a change" if change is None else "the change")
        if steps:
            print("\nThe change")
            print_steps(steps)
    exit_by(findings, "the quorum has" if change is None else "the change will not work:")
