"""The ``kraft`` command.

`main` is its entry point. ``commands`` has the table of all commands, which are typer's;
``node_start`` starts a node without typer, whose import takes a fifth of a node's start.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main() -> None:
    """The entry point of the ``kraft`` command."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is printed as "?", as by Kafka's tools.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.argv[1:3] == ["server", "start"]:
        from kraft.cli.exit_codes import exit_code_of
        from kraft.cli.node_start import read_plain_arguments, start_node

        options = read_plain_arguments(sys.argv[3:])
        if options is not None:
            sys.exit(exit_code_of(lambda: start_node(options)))
    from kraft.cli.commands import app

    app(prog_name="kraft")
