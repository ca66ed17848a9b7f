"""``kraft restore``: check a backup, and write a directory that starts a new quorum."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.configuration import controller_endpoints, load_configuration
from kraft.cli.exit_codes import EPILOG
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.metadata.backup import Backup

app = typer.Typer(add_completion=False)


@app.command(epilog=EPILOG)
def restore_(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A directory that `kraft backup` wrote.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="The node's new metadata directory; it must not exist or must be empty.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The configuration of the controller that starts on DIR: its node id, its "
            "listeners, and whether its voters are static (controller.quorum.voters).",
            show_default=False,
        ),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id",
            "-t",
            metavar="ID",
            help="The id of the new cluster. Default: that of the backup, which brokers with "
            "their disks need.",
            show_default=False,
        ),
    ] = None,
    epoch_margin: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How far the epochs of the quorum and of partitions are above those of the "
            "backup (default 1000). Raise it by 1000 at each further restore of one backup.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a backup; with --to write a directory from which a node starts a new quorum.

    The node is the only voter, unless its configuration has static voters: then start
    it before the others are a majority. Leader epochs and producer ids move on, so that
    brokers accept them. The command lists what a backup cannot bring back.

    [bold]Examples[/bold]

      kraft restore /backup/2026-11-24

      kraft restore /backup/2026-11-24 --to /var/lib/kafka/metadata -c controller.properties
    """
    from kraft.cli.output import Output
    from kraft.metadata.backup import read_backup
    from kraft.server.storage.restore import EPOCH_MARGIN, NOT_RESTORED, restore

    output = Output(as_json=as_json)
    if to is None:
        if config is not None or cluster_id is not None or epoch_margin is not None:
            raise typer.BadParameter("--config, --cluster-id and --epoch-margin need --to")
        show_manifest(output, read_backup(backup))
        return
    if config is None:
        raise typer.BadParameter("--to needs the configuration of the node: -c FILE")
    loaded = load_configuration(output, config)
    if not loaded.is_controller:
        raise typer.BadParameter(f"{config}: process.roles has no controller")
    done = restore(
        read_backup(backup),
        to,
        node_id=loaded.node_id,
        endpoints=() if loaded.voters else controller_endpoints(loaded),
        timestamp_ms=time.time_ns() // 1_000_000,
        cluster_id=cluster_id,
        epoch_margin=EPOCH_MARGIN if epoch_margin is None else epoch_margin,
    )
    if as_json:
        output.document(
            {
                "path": str(done.path),
                "clusterId": done.cluster_id,
                "nodeId": done.node_id,
                "directoryId": str(done.directory_id),
                "offset": done.offset,
                "epoch": done.epoch,
                "kraftVersion": int(done.is_dynamic),
                "records": done.records,
                "notRestored": list(NOT_RESTORED),
            }
        )
        return
    voters = "only this node" if done.is_dynamic else "as controller.quorum.voters names them"
    output.fields(
        "Restored",
        [
            ("Path", done.path),
            ("ClusterId", done.cluster_id),
            ("NodeId", done.node_id),
            ("Offset", done.offset),
            ("LeaderEpoch", done.epoch),
            ("Voters", voters),
            ("Records", ", ".join(f"{name} {count}" for name, count in done.records.items())),
        ],
    )
    print("\nNot restored")
    for sentence in NOT_RESTORED:
        print(f"- {sentence}")


def show_manifest(output: Output, backup: Backup) -> None:
    """Print what a backup holds."""
    made = backup.manifest
    if output.as_json:
        output.document(
            {
                "path": str(backup.path),
                "clusterId": made.cluster_id,
                "offset": made.offset,
                "epoch": made.epoch,
                "metadataVersion": made.metadata_version,
                "kraftVersion": made.kraft_version,
                "voters": list(made.voters),
                "createdMs": made.created_ms,
                "snapshot": made.snapshot,
                "size": made.size,
                "sha256": made.sha256,
                "records": dict(made.records),
            }
        )
        return
    created = datetime.fromtimestamp(made.created_ms / 1000, UTC)
    output.fields(
        "Backup",
        [
            ("Path", backup.path),
            ("Created", created.strftime("%Y-%m-%d %H:%M:%S UTC")),
            ("ClusterId", made.cluster_id),
            ("Offset", made.offset),
            ("LeaderEpoch", made.epoch),
            ("MetadataVersion", made.metadata_version),
            ("KRaftVersion", made.kraft_version),
            ("Snapshot", f"{made.snapshot}, {made.size:,} bytes, SHA-256 {made.sha256}"),
            ("Records", ", ".join(f"{name} {count}" for name, count in made.records.items())),
        ],
    )
