"""``kraft server``: one node of a quorum, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.exits import EPILOG
from kraft.cli.options import MaxTransactionOption

app = typer.Typer(no_args_is_help=True, add_completion=False, epilog=EPILOG)


@app.callback()
def _server() -> None:
    """A node of the quorum, as Kafka's own configuration describes it."""


@app.command(epilog=EPILOG)
def start(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The node's configuration: Kafka's own .properties file.",
            show_default=False,
        ),
    ],
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="K=V",
            help="A setting that stands in for the file's; may be given several times.",
            show_default=False,
        ),
    ] = None,
    max_transaction_ms: MaxTransactionOption = None,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes",
            help="Stop, in good order, when standard input ends too: for a program that starts "
            "nodes.",
        ),
    ] = False,
) -> None:
    """Run a controller in the foreground until Ctrl-C or SIGTERM, which it answers by resigning.
    Brokers are not served: of a combined node only the controller runs.

    Its directories must be formatted (kraft storage format). What happens goes to stderr.

    [bold]Examples[/bold]

      kraft server start controller.properties
      kraft server start controller.properties --override controller.quorum.append.linger.ms=0
      kraft server start controller.properties --max-transaction-ms 5000
    """
    from kraft.cli.configuration import load_configuration
    from kraft.cli.output import Output
    from kraft.server.process import QuorumNode, run

    output = Output()
    loaded = load_configuration(output, config, override or ())
    if loaded.is_controller and loaded.is_broker:
        unserved = ", ".join(
            str(one) for one in loaded.listeners if one not in loaded.controller_listeners
        )
        output.note(
            f"{loaded.path}: process.roles has broker, which is not served here: only the "
            f"controller runs, and nobody listens at {unserved}"
        )
    run(
        loaded,
        until_stdin_closes=until_stdin_closes,
        make_node=lambda config: QuorumNode(config, max_transaction_ms=max_transaction_ms),
    )
