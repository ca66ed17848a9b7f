"""Options of commands that talk to the controllers of a running quorum, and their client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kraft.admin.client import BlockingAdmin
    from kraft.admin.settings import AdminSettings

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


def open_admin(controllers: str, config: Path | None) -> BlockingAdmin:
    """Return an admin client with the settings of a --command-config file.

    Raises a usage error for a malformed address, InvalidConfigError.
    """
    from kraft.admin.client import BlockingAdmin

    return BlockingAdmin(admin_settings(controllers, config))


def admin_settings(controllers: str, config: Path | None) -> AdminSettings:
    """Return the settings of an admin client; the errors are those of `open_admin`."""
    from kraft.admin.settings import read_admin_settings
    from kraft.errors import InvalidArgumentError

    try:
        return read_admin_settings(controllers, config, leader_wait_ms=LEADER_WAIT_MS)
    except InvalidArgumentError as error:
        raise typer.BadParameter(f"--bootstrap-controller: {error}") from error
