"""The table of commands.

A command is a module of this package with a typer ``app``; `_COMMANDS` lists them. A module is
imported only when its command is called or when help lists it, so that ``kraft --help`` is fast.
For the same reason the functions of a command import the library themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from kraft.cli.exit_codes import EPILOG, OK, exit_code_of

# Command -> the module with its ``app``, in the order of help.
_COMMANDS: dict[str, str] = {
    "open": "kraft.cli.open",
    "log": "kraft.cli.log",
    "topics": "kraft.cli.topics",
    "brokers": "kraft.cli.brokers",
    "configs": "kraft.cli.configs",
    "acls": "kraft.cli.acls",
    "elect": "kraft.cli.elect",
    "reassign": "kraft.cli.reassign",
    "features": "kraft.cli.features",
    "users": "kraft.cli.users",
    "quotas": "kraft.cli.quotas",
    "tokens": "kraft.cli.tokens",
    "shell": "kraft.cli.shell",
    "snapshot": "kraft.cli.snapshot",
    "verify": "kraft.cli.verify",
    "salvage": "kraft.cli.salvage",
    "rescue": "kraft.cli.rescue",
    "backup": "kraft.cli.backup",
    "restore": "kraft.cli.restore",
    "storage": "kraft.cli.storage",
    "server": "kraft.cli.server",
    "quorum": "kraft.cli.quorum",
    "preflight": "kraft.cli.preflight",
    "transplant": "kraft.cli.transplant",
    "up": "kraft.cli.up",
    "fleet": "kraft.cli.fleet",
    "zk": "kraft.cli.zk",
    "lab": "kraft.cli.lab",
    "sweep": "kraft.cli.sweep",
    "bench": "kraft.cli.bench",
    "regress": "kraft.cli.regress",
    "doctor": "kraft.cli.doctor",
}


class CommandGroup(TyperGroup):
    """The commands of the table, each imported on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        command = get_command(import_module(_COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> None:
        code = exit_code_of(lambda: super(CommandGroup, self).invoke(ctx))
        if code != OK:
            raise typer.Exit(code)


app = typer.Typer(
    name="kraft",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from kraft import __version__

        print(f"kraft {__version__}")
        raise typer.Exit()


@app.callback()
def _kraft(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version and exit.",
        is_eager=True,
        callback=_show_version,
    ),
) -> None:
    """Inspect, verify and repair a Kafka cluster's KRaft metadata, run controllers, simulate failures.

    Commands never change a directory that they read. Only `snapshot write`, `salvage`, `rescue`, `backup`, `restore`, `storage format`, `fleet`, `lab`, `server`, `up` and `zk` write, to the directory that their options name. Commands with `--bootstrap-controller` read a running quorum, or change it.
    """  # noqa: E501  (help joins no lines: each paragraph is one)
