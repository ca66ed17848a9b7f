"""Options of commands that read metadata from a directory, a running quorum or ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.admin_client import ClientConfigOption, QuorumOptions, progress_of_reading
from kraft.cli.options import AtOption
from kraft.cli.zookeeper_source import read_zookeeper
from kraft.zookeeper import SCHEME

if TYPE_CHECKING:
    from kraft.metadata.facade import Metadata

DirectoryOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="Read a metadata directory, or one segment or snapshot in it; or a cluster in "
        "ZooKeeper mode, zookeeper://HOST:PORT/CHROOT.",
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


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options that name a directory, or the controllers of a quorum."""

    from_: DirectoryOption = None
    at: AtOption = None
    bootstrap_controller: QuorumOption = None
    command_config: ClientConfigOption = None

    def quorum(self) -> QuorumOptions | None:
        """Return the quorum; None where a directory is the source.

        Raises a usage error unless exactly one source is given, with options that belong to it.
        """
        if (self.from_ is None) == (self.bootstrap_controller is None):
            raise typer.BadParameter("give either --from or --bootstrap-controller")
        if self.bootstrap_controller is None:
            if self.command_config is not None:
                raise typer.BadParameter("--command-config needs --bootstrap-controller")
            if self.at is not None and self.from_ is not None and self.from_.startswith(SCHEME):
                raise typer.BadParameter("--at needs a directory: ZooKeeper has no past states")
            return None
        if self.at is not None:
            raise typer.BadParameter("--at needs --from: a quorum has its latest committed state")
        return QuorumOptions(self.bootstrap_controller, self.command_config)

    def read_directory(self) -> Metadata:
        """Return the metadata of the directory, or of ZooKeeper; one must be given."""
        from kraft.metadata.facade import open_metadata

        assert self.from_ is not None
        if self.from_.startswith(SCHEME):
            return read_zookeeper(self.from_)
        return open_metadata(self.from_, at=self.at)

    def read(self) -> Metadata:
        """Return the metadata of the source; raises a usage error."""
        quorum = self.quorum()
        if quorum is None:
            return self.read_directory()
        with quorum.open() as admin, progress_of_reading() as advance:
            return admin.read_metadata(advance)
