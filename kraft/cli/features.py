"""``kraft features``: the levels of features, as ``kafka-features`` shows and changes them.

``kraft storage version-mapping`` and ``feature-dependencies`` have the tables of that tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.errors import InvalidUpdateVersionError, UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraft.admin import FeatureMetadata, UpgradeType

app = typer.Typer(
    help="Show and change the levels of features, such as metadata.version.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

FeatureLevelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--feature",
        metavar="F=L",
        help="A feature and its new level, as metadata.version=30. Repeatable.",
        show_default=False,
    ),
]
ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release-version",
        metavar="V",
        help="Set all features to the levels of this release, as 4.3 or 4.3-IV0.",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Let the controller check the change, do not make it.")
]
UnsafeOption = Annotated[
    bool,
    typer.Option("--unsafe", help="Also where metadata would be lost that a lower level lacks."),
]


@app.callback()
def _features() -> None:
    """Show and change the levels of features, such as metadata.version."""


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    source: SourceOptions,
    as_json: JsonOption = False,
) -> None:
    """Print the finalized level of each feature, and the levels that a controller supports.

    Epoch is the offset that the levels are as of. A directory does not have the supported levels: `-`.

    [bold]Examples[/bold]

      kraft features describe --bootstrap-controller localhost:9093

      kraft features describe --from /var/lib/kafka/metadata
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    features = _read(source)
    names = sorted(features.supported.keys() | features.finalized.keys())
    if as_json:
        document = [
            {
                "feature": name,
                "supportedMinVersion": features.supported[name].min
                if name in features.supported
                else None,
                "supportedMaxVersion": features.supported[name].max
                if name in features.supported
                else None,
                "finalizedVersionLevel": features.finalized.get(name, 0),
                "epoch": features.finalized_epoch,
            }
            for name in names
        ]
        Output(as_json=True).document(document)
        return
    epoch = "-" if features.finalized_epoch < 0 else str(features.finalized_epoch)
    for name in names:
        lowest = highest = "-"
        if name in features.supported:
            lowest, highest = (_level_text(name, level) for level in features.supported[name])
        level = _level_text(name, features.finalized.get(name, 0))
        print(
            f"Feature: {name:<40}  SupportedMinVersion: {lowest:<15}  "
            f"SupportedMaxVersion: {highest:<15}  FinalizedVersionLevel: {level:<15}  "
            f"Epoch: {epoch}"
        )


@app.command(epilog=EPILOG)
@takes_groups
def upgrade(
    quorum: QuorumOptions,
    feature: FeatureLevelsOption = None,
    release_version: ReleaseOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Raise the levels of features, all or none.

    Every registered node must support the new levels.

    [bold]Examples[/bold]

      kraft features upgrade --release-version 4.3 --dry-run --bootstrap-controller localhost:9093

      kraft features upgrade --feature metadata.version=30 --bootstrap-controller localhost:9093
    """
    from kraft.admin import UpgradeType

    levels = requested_levels(feature, release_version, is_upgrade=True)
    update = _Update("upgrade", levels, UpgradeType.UPGRADE, dry_run)
    update.send(quorum, as_json)


@app.command(epilog=EPILOG)
@takes_groups
def downgrade(
    quorum: QuorumOptions,
    feature: FeatureLevelsOption = None,
    release_version: ReleaseOption = None,
    unsafe: UnsafeOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Lower the levels of features, all or none.

    [bold]Examples[/bold]

      kraft features downgrade --feature group.version=0 --bootstrap-controller localhost:9093
    """
    levels = requested_levels(feature, release_version, is_upgrade=False)
    update = _Update("downgrade", levels, _downgrade(unsafe), dry_run)
    update.send(quorum, as_json)


@app.command(epilog=EPILOG)
@takes_groups
def disable(
    quorum: QuorumOptions,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature",
            metavar="F",
            help="A feature to set to level 0. Repeatable.",
            show_default=False,
        ),
    ] = None,
    unsafe: UnsafeOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set features to level 0, all or none.

    [bold]Examples[/bold]

      kraft features disable --feature share.version --bootstrap-controller localhost:9093
    """
    if not feature:
        raise typer.BadParameter("give --feature")
    if len(set(feature)) < len(feature):
        raise typer.BadParameter("--feature names a feature twice")
    update = _Update("disable", dict.fromkeys(feature, 0), _downgrade(unsafe), dry_run)
    update.send(quorum, as_json)


class _Update:
    """A change of several levels."""

    def __init__(
        self, verb: str, levels: Mapping[str, int], upgrade_type: UpgradeType, is_dry_run: bool
    ) -> None:
        self._verb = verb
        self._levels = levels
        self._upgrade_type = upgrade_type
        self._is_dry_run = is_dry_run

    def send(self, quorum: QuorumOptions, as_json: bool) -> None:
        """Send the change and print the outcomes.

        Raises InvalidUpdateVersionError if one failed.
        """
        from kraft.admin import FeatureUpdate
        from kraft.cli.output import Output

        updates = [
            FeatureUpdate(name, level, self._upgrade_type)
            for name, level in sorted(self._levels.items())
        ]
        with quorum.open() as admin:
            results = admin.update_features(updates, validate_only=self._is_dry_run)
        errors = results.errors()
        if as_json:
            document = [
                {
                    "feature": name,
                    "level": self._levels[name],
                    "outcome": "failed" if name in errors else self._verb + "d",
                    **(
                        {"error": errors[name].name, "message": errors[name].message}
                        if name in errors
                        else {}
                    ),
                }
                for name in results
            ]
            Output(as_json=True).document({"dryRun": self._is_dry_run, "features": document})
        else:
            for name in results:
                print(self._text(name, errors.get(name)))
        if errors:
            raise InvalidUpdateVersionError(
                f"{len(errors)} out of {len(results)} operation(s) failed."
            )

    def _text(self, name: str, error: Any) -> str:
        level = "" if self._verb == "disable" else f" to {self._levels[name]}"
        if error is not None:
            failed = "Can not" if self._is_dry_run else "Could not"
            return f"{failed} {self._verb} {name}{level}. {error.message or error.name}"
        done = "can be" if self._is_dry_run else "was"
        return f"{name} {done} {self._verb}d{level}."


def _downgrade(is_unsafe: bool) -> UpgradeType:
    from kraft.admin import UpgradeType

    return UpgradeType.UNSAFE_DOWNGRADE if is_unsafe else UpgradeType.SAFE_DOWNGRADE


def requested_levels(
    features: list[str] | None, release: str | None, *, is_upgrade: bool
) -> dict[str, int]:
    """Return the new levels; raises a usage error, UnsupportedVersionError."""
    from kraft.records.versions import (
        METADATA_VERSION,
        SUPPORTED_FEATURES,
        MetadataVersion,
        default_feature_level,
    )
    from kraft.server.storage.features import parse_feature

    if bool(features) == (release is not None):
        raise typer.BadParameter("give either --feature or --release-version")
    if release is None:
        pairs = [parse_feature(each) for each in features or ()]
        if len(dict(pairs)) < len(pairs):
            raise typer.BadParameter("--feature names a feature twice")
        return dict(pairs)
    version = MetadataVersion.from_text(release)
    levels = {METADATA_VERSION: version.value}
    for name in SUPPORTED_FEATURES:
        level = default_feature_level(name, version)
        # No upgrade goes to level 0.
        if level > 0 or not is_upgrade:
            levels[name] = level
    return levels


def _read(source: SourceOptions) -> FeatureMetadata:
    from kraft.admin import FeatureMetadata

    quorum = source.quorum()
    if quorum is None:
        metadata = source.read_directory()
        return FeatureMetadata(dict(metadata.features), metadata.next_offset - 1, {})
    with quorum.open() as admin:
        return admin.describe_features()


def _level_text(name: str, level: int) -> str:
    """Return a level as Kafka's tool prints it: those of metadata.version by name."""
    from kraft.records.versions import METADATA_VERSION, MetadataVersion

    if name != METADATA_VERSION:
        return str(level)
    try:
        return MetadataVersion.from_level(level).text
    except UnsupportedVersionError:
        return f"UNKNOWN {level}"
