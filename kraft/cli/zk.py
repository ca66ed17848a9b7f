"""``kraft zk``: Apache ZooKeeper, and Kafka's metadata before KRaft."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.exit_codes import EPILOG, REFUSED
from kraft.cli.options import JsonOption
from kraft.cli.zk_convert import convert_
from kraft.cli.zk_topics import controller, topics_app
from kraft.cli.zk_up import up

app = typer.Typer(
    help="Run a cluster of the time before KRaft, or convert its metadata.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@app.callback()
def _zk() -> None:
    """Run a cluster of the time before KRaft, or convert its metadata."""


app.command("up", epilog=EPILOG)(up)
app.add_typer(topics_app, name="topics")
app.command("controller", epilog=EPILOG)(controller)


@app.command("start", epilog=EPILOG)
def start(
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="The port on loopback.")
    ] = 2181,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Keep the data in this directory, and use what is there. "
            "Default: a temporary directory, removed at the end.",
            show_default=False,
        ),
    ] = None,
    tick_ms: Annotated[
        int,
        typer.Option(
            "--tick-ms",
            min=20,
            max=60_000,
            help="The unit of session timeouts: a client gets 2 to 20 ticks.",
        ),
    ] = 2000,
    heap_mb: Annotated[
        int,
        typer.Option("--heap-mb", min=32, help="The largest heap of the JVM, in MiB."),
    ] = 512,
    as_json: JsonOption = False,
) -> None:
    """Run one ZooKeeper server on loopback until Ctrl-C.

    The server is the one in the wheel [bold]pyspark[/bold] (pip install 'kraft\\[zookeeper]'); it needs Java 17 or newer. Prints the address once the server answers.

    [bold]Examples[/bold]

      kraft zk start

      kraft zk start --port 2182 --dir /tmp/zookeeper
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output
    from kraft.zookeeper.server import LocalZooKeeper

    # SIGTERM, and a terminal that is closed, end the server as Ctrl-C does.
    for number in _INTERRUPTS[1:]:
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kraft-zk-") as temporary:
        home = Path(temporary) if directory is None else directory
        server = LocalZooKeeper(home, port=port, tick_ms=tick_ms, heap_mb=heap_mb)
        try:
            server.start()
            assert server.process is not None
            if as_json:
                Output(as_json=True).document(
                    {
                        "zookeeper": server.endpoint,
                        "pid": server.process.pid,
                        "log": str(server.log_path),
                    }
                )
            else:
                print(f"ZooKeeper answers at {server.endpoint}; Ctrl-C stops it", flush=True)
            while server.is_running:
                time.sleep(0.2)
            tail = server.log_path.read_text(errors="replace").splitlines()[-5:]
            print(
                f"error: ZooKeeper ended with exit code {server.process.returncode}:\n  "
                + "\n  ".join(tail),
                file=sys.stderr,
            )
            raise typer.Exit(REFUSED)
        finally:
            # A second Ctrl-C must leave neither a process nor a temporary directory.
            for number in _INTERRUPTS:
                signal.signal(number, signal.SIG_IGN)
            server.stop()


app.command("convert", epilog=EPILOG)(convert_)
