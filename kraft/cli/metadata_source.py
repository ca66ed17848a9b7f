"""Options of commands that read metadata from a directory or from a running quorum."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kraft.metadata.facade import Metadata

DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="Read a metadata directory, or one segment or snapshot in it.",
        show_default=False,
    ),
]
QuorumOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="Read the metadata of a running quorum; any of its controllers can name the leader.",
        show_default=False,
    ),
]


def read_from(
    directory: Path | None, at: int | None, controllers: str | None, client_config: Path | None
) -> Metadata:
    """Return the metadata of exactly one of the sources; raises a usage error."""
    from kraft.cli.output import progress
    from kraft.cli.quorum import controller_addresses, open_client
    from kraft.metadata.facade import open_metadata
    from kraft.metadata.quorum_reader import read_metadata

    if (directory is None) == (controllers is None):
        raise typer.BadParameter("give either --from or --bootstrap-controller")
    if directory is not None:
        if client_config is not None:
            raise typer.BadParameter("--command-config needs --bootstrap-controller")
        return open_metadata(directory, at=at)
    assert controllers is not None
    if at is not None:
        raise typer.BadParameter("--at needs --from: a quorum has its latest committed state")
    with (
        open_client(controller_addresses(controllers), client_config) as client,
        progress("reading the quorum's metadata", 1.0) as advance,
    ):
        return read_metadata(client, advance)
