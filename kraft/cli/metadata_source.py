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


def check_source(
    directory: Path | None, at: int | None, controllers: str | None, client_config: Path | None
) -> None:
    """Raise a usage error unless exactly one source is given, with options that belong to it."""
    if (directory is None) == (controllers is None):
        raise typer.BadParameter("give either --from or --bootstrap-controller")
    if directory is not None and client_config is not None:
        raise typer.BadParameter("--command-config needs --bootstrap-controller")
    if controllers is not None and at is not None:
        raise typer.BadParameter("--at needs --from: a quorum has its latest committed state")


def read_from(
    directory: Path | None, at: int | None, controllers: str | None, client_config: Path | None
) -> Metadata:
    """Return the metadata of exactly one of the sources; raises a usage error."""
    from kraft.cli.admin_client import open_admin
    from kraft.cli.output import progress
    from kraft.metadata.facade import open_metadata

    check_source(directory, at, controllers, client_config)
    if directory is not None:
        return open_metadata(directory, at=at)
    assert controllers is not None
    with (
        open_admin(controllers, client_config) as admin,
        progress("reading the quorum's metadata", 1.0) as advance,
    ):
        return admin.read_metadata(advance)
