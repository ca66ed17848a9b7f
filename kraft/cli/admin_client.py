"""Options of commands that talk to the controllers of a running quorum, and their client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kraft.admin.client import BlockingAdmin
    from kraft.admin.settings import AdminSettings
    from kraft.cli.output import Advance
    from kraft.live.metadata import LiveMetadata

#: How long to wait for a leader; with the default settings an election takes 2 to 4 s.
LEADER_WAIT_MS = 5000

ControllersOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="Controllers to contact first; any of them can name the leader.",
        show_default=False,
    ),
]
ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="The client's .properties file: request.timeout.ms (default 30000), "
        "default.api.timeout.ms (default 60000), client.id (default kraft-admin), "
        "security.protocol (default PLAINTEXT), ssl.*, sasl.mechanism, sasl.jaas.config.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class QuorumOptions:
    """The options that name the controllers and the client's settings."""

    bootstrap_controller: ControllersOption
    command_config: ClientConfigOption = None

    def settings(self) -> AdminSettings:
        """Return the settings of an admin client.

        Raises a usage error for a malformed address, InvalidConfigError.
        """
        from kraft.admin.settings import read_admin_settings
        from kraft.errors import InvalidArgumentError

        try:
            return read_admin_settings(
                self.bootstrap_controller, self.command_config, leader_wait_ms=LEADER_WAIT_MS
            )
        except InvalidArgumentError as error:
            raise typer.BadParameter(f"--bootstrap-controller: {error}") from error

    def open(self) -> BlockingAdmin:
        """Return an admin client; the errors are those of `settings`."""
        from kraft.admin.client import BlockingAdmin

        return BlockingAdmin(self.settings())

    def follow(self) -> LiveMetadata:
        """Return the quorum's metadata as it changes; the errors are those of `settings`."""
        from kraft.errors import InvalidArgumentError
        from kraft.live.metadata import follow

        try:
            with progress_of_reading() as advance:
                return follow(
                    self.bootstrap_controller,
                    properties=self.command_config,
                    on_progress=advance,
                )
        except InvalidArgumentError as error:
            raise typer.BadParameter(f"--bootstrap-controller: {error}") from error


def progress_of_reading() -> AbstractContextManager[Advance]:
    """Return the progress bar of reading a quorum's metadata; it ends at 1."""
    from kraft.cli.output import progress

    return progress("reading the quorum's metadata", 1.0)
