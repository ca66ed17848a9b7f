"""Start one node in the foreground: what ``kraft server start`` does after its options are read.

typer reads them (``server``), except when they are plain: importing typer takes about 130 ms, a
fifth of the start of a node with two million partitions. Imports here are in the order of what the
start needs first.
"""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft.broker.node import BrokerNode


class StartOptions(NamedTuple):
    """The options of ``kraft server start``."""

    config: Path
    overrides: tuple[str, ...] = ()
    max_transaction_ms: int | None = None
    log_as_json: bool = False
    until_stdin_closes: bool = False


def read_plain_arguments(arguments: list[str]) -> StartOptions | None:
    """Return the options as typer would read them.

    None for help, for anything wrong, and for spellings that are not handled here: typer's parser
    decides then.
    """
    files: list[str] = []
    options = StartOptions(Path())
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--until-stdin-closes":
            options = options._replace(until_stdin_closes=True)
        elif not argument.startswith("-"):
            files.append(argument)
        else:
            value = value if equals else next(rest, "")
            if name == "--override" and value and not value.startswith("-"):
                options = options._replace(overrides=(*options.overrides, value))
            elif name == "--max-transaction-ms" and re.fullmatch(r"[0-9]{1,18}", value):
                options = options._replace(max_transaction_ms=int(value))
            elif name == "--log-format" and value in ("text", "json"):
                options = options._replace(log_as_json=value == "json")
            else:
                return None
    if len(files) != 1 or not files[0] or options.max_transaction_ms == 0:
        return None
    return options._replace(config=Path(files[0]))


def start_node(options: StartOptions) -> None:
    """Run a node until Ctrl-C or SIGTERM. Raises KraftError and OSError where it cannot start."""
    # Imports leave no garbage, and passes over all modules take a tenth of the start; `run` turns
    # the collector on again.
    gc.disable()
    # kraft uses no linear algebra, whose threads numpy would start, and let spin, at its import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from kraft.cli.configuration import load_configuration
    from kraft.cli.output import Output

    output = Output()
    loaded = load_configuration(output, options.config, options.overrides)
    from kraft.server.logs import configure_logging
    from kraft.server.opening import StoreOpening

    configure_logging(loaded.node_id, as_json=options.log_as_json)
    opening = StoreOpening(loaded)
    # A third of the start-up: imported while the store is being opened.
    from kraft.server.process import QuorumNode, run

    node_type: type[QuorumNode] | type[BrokerNode] = QuorumNode
    if loaded.is_broker:
        from kraft.broker.node import BrokerNode

        node_type = BrokerNode
    run(
        loaded,
        until_stdin_closes=options.until_stdin_closes,
        make_node=lambda config: node_type(
            config, max_transaction_ms=options.max_transaction_ms, opening=opening
        ),
    )
