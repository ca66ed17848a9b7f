"""``kraft storage``: format a node's directories and inspect them.

The commands and options of Kafka's ``kafka-storage``. The rules are in ``kraft.server.storage``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.configuration import load_configuration, without_effect
from kraft.cli.exit_codes import EPILOG, FOUND
from kraft.cli.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from kraft.metadata.directory import MetaProperties
    from kraft.server.storage.format import FormatReport

app = typer.Typer(no_args_is_help=True, add_completion=False, epilog=EPILOG)

ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release-version",
        "-r",
        metavar="V",
        help="Start the cluster with this Kafka release or metadata.version (3.3-IV3 to "
        "4.3-IV0). Default: the newest.",
        show_default=False,
    ),
]


@app.callback()
def _storage() -> None:
    """Format and inspect the directories of a node."""


@app.command("format", epilog=EPILOG)
def format_(
    config: ConfigOption,
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id",
            "-t",
            metavar="ID",
            help="The cluster id, the same on every node; `kraft storage random-uuid` prints one.",
            show_default=False,
        ),
    ],
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", "-s", help="Make this controller the only voter; add others later."
        ),
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers",
            "-I",
            metavar="VOTERS",
            help="The first voters, the same list on every node: id@host:port:directory-id, "
            "separated by commas.",
            show_default=False,
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool,
        typer.Option(
            "--no-initial-controllers",
            "-N",
            help="Format without voters: the node joins an existing quorum.",
        ),
    ] = False,
    release_version: ReleaseOption = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature",
            "-f",
            metavar="F=L",
            help="Start a feature at this level. Repeatable.",
            show_default=False,
        ),
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="CREDENTIAL",
            help="Create a user: SCRAM-SHA-256=\\[name=…,password=…] (or SCRAM-SHA-512; "
            "also iterations=, salt=, saltedpassword=). Repeatable.",
            show_default=False,
        ),
    ] = None,
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted", "-g", help="Skip directories that are already formatted."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Format a node's directories for its first start, with the files that `kafka-storage` writes.

    Formatting is atomic: a directory is formatted completely or not at all, even
    after a crash. A controller whose configuration has no
    controller.quorum.voters needs one of -s, -I and -N. stderr lists the settings
    without effect.

    [bold]Examples[/bold]

      kraft storage format -t "$(kraft storage random-uuid)" -c node-1.properties -s

      kraft storage format -t JEXY6aqzQY-32P5TStzaFg -c broker.properties -r 4.1
    """
    from kraft.cli.output import Output
    from kraft.server.storage.features import parse_feature
    from kraft.server.storage.format import FormatRequest, format_storage

    output = Output(as_json=as_json)
    loaded = load_configuration(output, config)
    request = FormatRequest(
        cluster_id=cluster_id,
        is_standalone=standalone,
        initial_controllers=initial_controllers,
        has_no_initial_controllers=no_initial_controllers,
        release=release_version,
        features=dict(map(parse_feature, feature or ())),
        scram=tuple(add_scram or ()),
        ignore_formatted=ignore_formatted,
    )
    report = format_storage(loaded, request, timestamp_ms=time.time_ns() // 1_000_000)
    if as_json:
        output.document(_report_document(report))
        return
    for directory, reason in report.failed.items():
        output.note(f"{directory} cannot be read and is not changed: {reason}")
    if not report.formatted:
        print("All of the log directories are already formatted.")
    for each in report.formatted:
        print(
            f"Formatting {each.kind.value} {each.path} with metadata.version "
            f"{report.metadata_version.text}."
        )


@app.command(epilog=EPILOG)
def info(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Print a node's directories and their problems.

    Exit code 3: there are problems.

    [bold]Examples[/bold]

      kraft storage info -c controller.properties --json
    """
    from kraft.cli.output import Output
    from kraft.server.storage.info import storage_info

    output = Output(as_json=as_json)
    loaded = load_configuration(output, config)
    found = storage_info(loaded)
    if as_json:
        output.document(
            {
                "directories": [
                    {"path": path, **_properties_document(found.by_directory.get(path))}
                    for path in found.directories
                ],
                "metadataLogDir": loaded.metadata_log_dir,
                "problems": list(found.problems),
                "notUnderstood": [each.name for each in loaded.not_understood],
                "noEffect": without_effect(loaded),
            }
        )
    else:
        _print_list("Found log director", found.directories, "y:", "ies:")
        if found.properties is not None:
            fields = sorted(_properties_fields(found.properties).items())
            print(f"Found metadata: {{{', '.join(f'{name}={value}' for name, value in fields)}}}\n")
        _print_list("Found problem", found.problems, ":", "s:")
    if found.problems:
        raise typer.Exit(FOUND)


@app.command("random-uuid", epilog=EPILOG)
def random_uuid_() -> None:
    """Print a random id for a cluster or a directory.

    [bold]Examples[/bold]

      CLUSTER_ID="$(kraft storage random-uuid)"
    """
    from kraft.metadata.identifiers import random_uuid

    print(random_uuid())


@app.command("version-mapping", epilog=EPILOG)
def version_mapping_(release_version: ReleaseOption = None, as_json: JsonOption = False) -> None:
    """Print the level of each feature in a cluster that is formatted for a release.

    [bold]Examples[/bold]

      kraft storage version-mapping --release-version 4.1
    """
    from kraft.cli.output import Output
    from kraft.records import LATEST_PRODUCTION, METADATA_VERSION
    from kraft.server.storage.features import version_mapping

    levels = version_mapping(release_version)
    if as_json:
        Output(as_json=True).document(levels)
        return
    for name, level in levels.items():
        text = f" ({release_version or LATEST_PRODUCTION.text})" if name == METADATA_VERSION else ""
        print(f"{name}={level}{text}")


@app.command("feature-dependencies", epilog=EPILOG)
def feature_dependencies_(
    feature: Annotated[
        list[str],
        typer.Option(
            "--feature",
            "-f",
            metavar="F=L",
            help="A feature and its level. Repeatable.",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Print the levels of other features that a feature level needs.

    [bold]Examples[/bold]

      kraft storage feature-dependencies --feature eligible.leader.replicas.version=1
    """
    from kraft.cli.output import Output
    from kraft.records import METADATA_VERSION, MetadataVersion, feature_dependencies
    from kraft.server.storage.features import parse_feature, release_version

    asked = [parse_feature(each) for each in feature]
    for name, level in asked:
        if name == METADATA_VERSION:
            release_version(None, {name: level})
    needed = [
        (name, level, {} if name == METADATA_VERSION else feature_dependencies(name, level))
        for name, level in asked
    ]
    if as_json:
        Output(as_json=True).document(
            [{"feature": name, "level": level, "requires": all_} for name, level, all_ in needed]
        )
        return

    def with_version(name: str, level: int) -> str:
        is_version = name == METADATA_VERSION
        return f"{name}={level}" + (f" ({MetadataVersion(level).text})" if is_version else "")

    for name, level, dependencies in needed:
        if not dependencies:
            print(f"{with_version(name, level)} has no dependencies.")
            continue
        print(f"{name}={level} requires:")
        for other, least in dependencies.items():
            print(f"    {with_version(other, least)}")


def _report_document(report: FormatReport) -> dict[str, Any]:
    voters = None
    if report.voters is not None:
        voters = [
            {
                "id": voter.id,
                "directoryId": str(voter.key.directory_id),
                "endpoints": [endpoint._asdict() for endpoint in voter.endpoints],
            }
            for voter in report.voters
        ]
    return {
        "clusterId": report.cluster_id,
        "nodeId": report.node_id,
        "metadataVersion": report.metadata_version.text,
        "features": dict(report.levels),
        "voters": voters,
        "formatted": [
            {"path": each.path, "kind": each.kind.value, "directoryId": str(each.directory_id)}
            for each in report.formatted
        ],
        "alreadyFormatted": list(report.already_formatted),
        "failed": dict(report.failed),
    }


def _properties_fields(properties: MetaProperties) -> dict[str, str]:
    fields = {
        "version": properties.version,
        "cluster.id": properties.cluster_id,
        "broker.id" if properties.version == 0 else "node.id": properties.node_id,
        "directory.id": properties.directory_id,
    }
    return {name: str(value) for name, value in fields.items() if value is not None}


def _properties_document(properties: MetaProperties | None) -> dict[str, Any]:
    if properties is None:
        return {"formatted": False}
    directory_id = properties.directory_id
    return {
        "formatted": True,
        "version": properties.version,
        "clusterId": properties.cluster_id,
        "nodeId": properties.node_id,
        "directoryId": None if directory_id is None else str(directory_id),
    }


def _print_list(title: str, entries: tuple[str, ...], one: str, several: str) -> None:
    if not entries:
        return
    print(title + (one if len(entries) == 1 else several))
    for entry in entries:
        print(f"  {entry}")
    print()
