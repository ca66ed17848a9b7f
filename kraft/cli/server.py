"""``kraft server``: run one node of a quorum in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.exit_codes import EPILOG
from kraft.cli.node_start import StartOptions, start_node
from kraft.cli.options import LogFormat, LogFormatOption, MaxTransactionOption

app = typer.Typer(no_args_is_help=True, add_completion=False, epilog=EPILOG)


@app.callback()
def _server() -> None:
    """Run a controller or a broker with a Kafka configuration."""


@app.command(epilog=EPILOG)
def start(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The node's configuration, a .properties file as for Apache Kafka.",
            show_default=False,
        ),
    ],
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="K=V",
            help="Override a setting of the file. Repeatable.",
            show_default=False,
        ),
    ] = None,
    max_transaction_ms: MaxTransactionOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes",
            help="Also shut down when standard input ends, for programs that start nodes.",
        ),
    ] = False,
) -> None:
    """Run a controller, a broker, or both, as process.roles says, in the foreground until Ctrl-C or SIGTERM.

    Then a broker lets the controller move its leaders away, and a controller resigns. A second Ctrl-C ends it at once. The directories must be formatted (kraft storage format). Logs to stderr.

    [bold]Examples[/bold]

      kraft server start controller.properties

      kraft server start broker.properties

      kraft server start controller.properties --override controller.quorum.append.linger.ms=0

      kraft server start controller.properties --max-transaction-ms 5000

      kraft server start controller.properties --log-format json --override kraft.http.listener=127.0.0.1:9404
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    start_node(
        StartOptions(
            config,
            tuple(override or ()),
            max_transaction_ms,
            log_as_json=log_format is LogFormat.JSON,
            until_stdin_closes=until_stdin_closes,
        )
    )
