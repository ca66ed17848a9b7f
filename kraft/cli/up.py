"""``kraft up``: a whole quorum on this machine, by one command."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exits import EPILOG, REFUSED
from kraft.cli.options import JsonOption, MaxTransactionOption

if TYPE_CHECKING:
    from kraft.raft.messages import DescribeQuorumResponse
    from kraft.server.local_quorum import LocalQuorum

app = typer.Typer(add_completion=False, epilog=EPILOG)

_LEADER_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.5


@app.command(epilog=EPILOG)
def up(
    controllers: Annotated[
        int, typer.Option("--controllers", min=1, max=9, help="How many controllers.")
    ] = 3,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where their files go, and stay; a quorum that lies there is started again. "
            "Default: a temporary directory, removed at the end.",
            show_default=False,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="K=V",
            help="A setting for every node's configuration; may be given several times.",
            show_default=False,
        ),
    ] = None,
    max_transaction_ms: MaxTransactionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a whole quorum on loopback, as separate processes; Ctrl-C stops it.

    [bold]Examples[/bold]

      kraft up
      kraft up --controllers 5 --dir /tmp/quorum
      kraft up --setting controller.quorum.append.linger.ms=0
    """
    from kraft.server.local_quorum import LocalQuorum

    settings = {}
    for text in setting or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not of the form K=V", param_hint="--setting")
        settings[name.strip()] = value.strip()
    # SIGTERM ends the quorum as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kraft-up-") as temporary:
        home = Path(temporary) if directory is None else directory
        with LocalQuorum(
            home, controllers, settings, max_transaction_ms=max_transaction_ms
        ) as quorum:
            with _interrupts_held():
                quorum.start()
            _watch(quorum, as_json=as_json)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: half-way through it a process could go unknown."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _watch(quorum: LocalQuorum, *, as_json: bool) -> None:
    """Shows the endpoints once there is a leader, then each change of it, until Ctrl-C."""
    from kraft.server.network.quorum_client import QuorumClient

    addresses = [("127.0.0.1", node.port) for node in quorum.nodes]
    shown = None
    deadline = time.monotonic() + _LEADER_TIMEOUT_S
    while True:
        for node in quorum.nodes:
            if node.process is not None and not node.is_running:
                tail = node.log_path.read_text(errors="replace").splitlines()[-5:]
                typer.echo(
                    f"error: controller {node.id} ended with exit code {node.process.returncode}; "
                    f"its log is {node.log_path}:\n  " + "\n  ".join(tail),
                    err=True,
                )
                raise typer.Exit(REFUSED)
        state = _describe(QuorumClient, addresses)
        if state is not None and (state.epoch, state.leader_id) != shown:
            if shown is None:
                _announce(quorum, state, as_json=as_json)
            elif not as_json:
                print(f"controller {state.leader_id} leads epoch {state.epoch}", flush=True)
            shown = (state.epoch, state.leader_id)
        elif shown is None and time.monotonic() > deadline:
            typer.echo(
                f"error: no leader within {_LEADER_TIMEOUT_S:.0f} s; see "
                f"{quorum.nodes[0].log_path}",
                err=True,
            )
            raise typer.Exit(REFUSED)
        time.sleep(_LOOK_EVERY_S if shown is not None else 0.1)


def _describe(client: Any, addresses: list[tuple[str, int]]) -> DescribeQuorumResponse | None:
    from kraft.errors import KraftError

    try:
        with client(addresses, timeout_s=1.0) as quorum:
            described: DescribeQuorumResponse = quorum.describe_quorum()
            return described
    except (KraftError, OSError):
        return None


def _announce(quorum: LocalQuorum, state: DescribeQuorumResponse, *, as_json: bool) -> None:
    from kraft.cli.output import Output

    out = Output(as_json=as_json)
    bootstrap = ",".join(node.endpoint for node in quorum.nodes)
    if as_json:
        out.document(
            {
                "bootstrapControllers": bootstrap,
                "leaderId": state.leader_id,
                "leaderEpoch": state.epoch,
                "controllers": [
                    {
                        "nodeId": node.id,
                        "endpoint": node.endpoint,
                        "config": str(node.config_path),
                        "log": str(node.log_path),
                        "pid": node.process.pid if node.process is not None else None,
                    }
                    for node in quorum.nodes
                ],
            }
        )
    else:
        out.table(
            f"quorum of {len(quorum.nodes)} controllers in {quorum.directory}",
            ("NodeId", "Endpoint", "Status", "Process"),
            [
                (
                    node.id,
                    node.endpoint,
                    "Leader" if node.id == state.leader_id else "Follower",
                    node.process.pid if node.process is not None else "",
                )
                for node in quorum.nodes
            ],
            numbers=("NodeId", "Process"),
        )
        print("Look at it from another terminal; Ctrl-C here stops it:")
        print(f"  kraft quorum describe --status --bootstrap-controller {bootstrap}", flush=True)
