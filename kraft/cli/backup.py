"""``kraft backup``: write the metadata of a running quorum to a checked backup."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.admin.client import BlockingAdmin
    from kraft.cli.output import Advance
    from kraft.metadata.facade import Metadata

app = typer.Typer(add_completion=False)

#: A metadata transaction ends or is aborted within seconds.
_MOST_READS = 10
_PAUSE_S = 1.0


@app.command(epilog=EPILOG)
@takes_groups
def backup_(
    quorum: QuorumOptions,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="DIR",
            help="The new directory; it must not exist or must be empty.",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Write the committed metadata of a running quorum to a new directory.

    Reads the leader's snapshot and log by Kafka's protocol, from Apache Kafka's
    controllers or kraft's. The directory has a snapshot and backup.json, with the
    cluster id, the offset, counts and checksums. It contains the salted keys of
    SCRAM users: only its owner can read it. The data of topics is not part of it.

    [bold]Examples[/bold]

      kraft backup --bootstrap-controller localhost:9093 --to /backup/2026-11-24
    """
    from kraft.cli.output import Output, progress
    from kraft.cli.restore import show_manifest
    from kraft.metadata.backup import write_backup

    output = Output(as_json=as_json)
    with quorum.open() as admin:
        cluster_id = admin.describe_cluster().cluster_id
        with progress("reading the quorum's metadata", 1.0) as advance:
            metadata = _read_outside_transactions(admin, advance)
    made = write_backup(metadata, to, cluster_id=cluster_id, created_ms=time.time_ns() // 1_000_000)
    show_manifest(output, made)


def _read_outside_transactions(admin: BlockingAdmin, advance: Advance) -> Metadata:
    """Read until the state does not end inside a metadata transaction, which a snapshot cannot."""
    metadata = admin.read_metadata(advance)
    for _ in range(_MOST_READS):
        if metadata.cluster.dropped_transaction is None:
            break
        time.sleep(_PAUSE_S)
        metadata = admin.read_metadata(advance)
    return metadata
