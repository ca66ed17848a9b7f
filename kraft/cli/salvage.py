"""``kraft salvage``: a sound metadata directory out of a damaged one.

Owns the command's words; what is kept is decided by ``kraft.metadata.salvage``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.exits import EPILOG, FOUND
from kraft.cli.options import JsonOption, MetadataPath

app = typer.Typer(add_completion=False)


@app.command(epilog=EPILOG)
def salvage_(
    path: MetadataPath,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="DIR",
            help="The new directory; it must not exist, or be empty.",
            show_default=False,
        ),
    ],
    cluster_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Write this cluster id to meta.properties (default: copy the file).",
            show_default=False,
        ),
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Write this node id to meta.properties; goes with --cluster-id.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write what is sound in a damaged metadata directory to a new one.

    The new directory holds the newest snapshot that loads and the unbroken part
    of the log around or behind it, in files that Apache Kafka and kraft start on.
    DIR is never changed. Exit code 3: something was left out; stderr names it.
    Only metadata is written, not the logs of topics that a broker keeps in DIR.

    [bold]Examples[/bold]

      kraft salvage /var/lib/kafka/metadata --to /var/lib/kafka/metadata-salvaged

      kraft salvage /var/lib/kafka/metadata --to /tmp/sound --cluster-id JgxuGe9URy-E-ceaL04lEw \\
        --node-id 101
    """
    from kraft.cli.output import Output, progress
    from kraft.metadata.directory import MetadataDirectory
    from kraft.metadata.salvage import salvage

    total = sum(each.size for each in MetadataDirectory.find(path, salvage=True).segments)
    with progress("salvaging", total) as advance:
        done = salvage(path, to, cluster_id=cluster_id, node_id=node_id, advance=advance)
    output = Output(as_json=as_json)
    if as_json:
        output.document(
            {
                "path": str(done.path),
                "logStartOffset": done.log_start_offset,
                "logEndOffset": done.end_offset,
                "leaderEpoch": done.epoch,
                "segments": done.segments,
                "snapshots": list(done.snapshots),
                "leftOut": list(done.left_out),
            }
        )
    else:
        segments = f"{done.segments} segment{'s' if done.segments != 1 else ''}"
        output.fields(
            "Salvaged",
            [
                ("Path", done.path),
                ("Log", f"offsets {done.log_start_offset} to {done.end_offset} in {segments}"),
                ("LeaderEpoch", done.epoch),
                ("Snapshots", ", ".join(done.snapshots) or "none"),
            ],
        )
        for sentence in done.left_out:
            output.note(sentence)
    if done.left_out:
        raise typer.Exit(FOUND)
