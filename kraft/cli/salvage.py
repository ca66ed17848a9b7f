"""``kraft salvage``: write the sound part of a damaged metadata directory to a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.exit_codes import EPILOG, FOUND
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
            help="The new directory; it must not exist or must be empty.",
            show_default=False,
        ),
    ],
    cluster_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Write meta.properties with this cluster id; needs --node-id. Default: copy it.",
            show_default=False,
        ),
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Write meta.properties with this node id; needs --cluster-id. Default: copy it.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the sound part of a damaged metadata directory to a new one.

    The new directory gets the newest snapshot that loads and the contiguous part
    of the log around or after it; Apache Kafka and kraft start on these files.
    DIR is never changed. Exit code 3: a part was dropped; stderr names it.
    Only metadata is written, not the logs of a broker's topics in DIR.

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
