"""``kraft up``: run a whole cluster on this machine with one command."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import EPILOG, REFUSED
from kraft.cli.input_lines import InputLines
from kraft.cli.options import JsonOption, LogFormat, LogFormatOption, MaxTransactionOption

if TYPE_CHECKING:
    from kraft.raft.rpc import DescribeQuorumResponse
    from kraft.server.light_brokers import LightBrokers
    from kraft.server.local_quorum import LocalNode, LocalQuorum

app = typer.Typer(add_completion=False, epilog=EPILOG)

_LEADER_TIMEOUT_S = 60.0
_BROKERS_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.5
_COMMANDS = "stop N, kill N, start N, status"
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@app.command(epilog=EPILOG)
def up(
    controllers: Annotated[
        int, typer.Option("--controllers", min=1, max=9, help="The number of controllers, 1 to 9.")
    ] = 3,
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers",
            min=0,
            max=50,
            help="The number of brokers, which clients produce to and consume from (default 0).",
            show_default=False,
        ),
    ] = 0,
    combined: Annotated[
        bool,
        typer.Option(
            "--combined",
            help="Run brokers in the processes of controllers, as process.roles=broker,controller.",
        ),
    ] = False,
    light_brokers: Annotated[
        int,
        typer.Option(
            "--light-brokers",
            min=0,
            max=1000,
            help="Register this many light brokers in three racks, so that topics can be created. "
            "They only send heartbeats: they have no listener and store no records (default 0).",
            show_default=False,
        ),
    ] = 0,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Keep the files in this directory; starts an existing quorum in it again. "
            "Default: a temporary directory, removed at the end.",
            show_default=False,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="K=V",
            help="Add a setting to every node's configuration. Repeatable.",
            show_default=False,
        ),
    ] = None,
    max_transaction_ms: MaxTransactionOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    exit_with_node: Annotated[
        bool,
        typer.Option(
            "--exit-with-node/--keep-going",
            help="When a node ends by itself: stop the whole quorum with exit code 1, or report it "
            "and keep the others running.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a whole cluster on loopback, one process a node, until Ctrl-C.

    Reads commands from standard input, one a line: [bold]stop N[/bold] shuts node N down, [bold]kill N[/bold] kills it as kill -9 does, [bold]start N[/bold] starts it again, [bold]status[/bold] prints which nodes run and which one leads.

    [bold]Examples[/bold]

      kraft up

      kraft up --controllers 3 --brokers 3

      kraft up --controllers 1 --brokers 1 --combined

      kraft up --controllers 3 --light-brokers 300

      kraft up --controllers 5 --dir /tmp/quorum

      kraft up --setting controller.quorum.append.linger.ms=0
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.server.local_quorum import LocalQuorum

    # Once nodes run nothing is imported: a Ctrl-C can be lost in the callbacks of an import.
    for module in (
        *("kraft.cli.output", "kraft.network.quorum_client", "kraft.server.light_brokers"),
        "kraft.metadata.quorum_reader",
    ):
        import_module(module)
    if brokers and light_brokers:
        raise typer.BadParameter(
            "topics would be placed on light brokers too, which store nothing",
            param_hint="--light-brokers with --brokers",
        )
    settings = {}
    for text in setting or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not of the form K=V", param_hint="--setting")
        settings[name.strip()] = value.strip()
    # SIGTERM, and a terminal that is closed, end the quorum as Ctrl-C does.
    for number in _INTERRUPTS[1:]:
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kraft-up-") as temporary:
        home = Path(temporary) if directory is None else directory
        quorum = None
        try:
            with LocalQuorum(
                home,
                controllers,
                settings,
                brokers=brokers,
                is_combined=combined,
                max_transaction_ms=max_transaction_ms,
                log_format=log_format.value,
            ) as quorum:
                quorum.report = lambda text: typer.echo(text, err=True)
                with _interrupts_held():
                    quorum.start()
                foreground = _Foreground(
                    quorum, light_brokers, as_json=as_json, exit_with_node=exit_with_node
                )
                foreground.run()
        finally:
            # Repeated Ctrl-C must leave neither a process nor a temporary directory.
            for number in _INTERRUPTS:
                signal.signal(number, signal.SIG_IGN)
            if quorum is not None:
                quorum.kill()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, so that no child process is left untracked."""
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in _INTERRUPTS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


class _Foreground:
    """The running command: prints changes, and executes commands from standard input."""

    def __init__(
        self, quorum: LocalQuorum, light_count: int, *, as_json: bool, exit_with_node: bool
    ) -> None:
        self._quorum = quorum
        self._light_count = light_count
        self._light: LightBrokers | None = None
        self._as_json = as_json
        self._exit_with_node = exit_with_node
        self._input = InputLines()
        #: The last (epoch, leader) printed; None before the first leader.
        self._shown: tuple[int, int] | None = None
        self._reported: set[int] = set()

    def run(self) -> None:
        """Print the endpoints once there is a leader, then each change, until Ctrl-C."""
        try:
            self._run()
        finally:
            if self._light is not None:
                self._light.stop()

    def _run(self) -> None:
        deadline = time.monotonic() + _LEADER_TIMEOUT_S
        while True:
            self._report_ended()
            state = self._describe()
            if state is not None and (state.epoch, state.leader_id) != self._shown:
                if self._shown is None:
                    self._start_light_brokers()
                    self._await_brokers()
                    self._announce(state)
                elif not self._as_json:
                    print(f"controller {state.leader_id} leads epoch {state.epoch}", flush=True)
                self._shown = state.epoch, state.leader_id
            elif self._shown is None and time.monotonic() > deadline:
                _complain(
                    f"no leader within {_LEADER_TIMEOUT_S:.0f} s; see "
                    f"{self._quorum.nodes[0].log_path}"
                )
                raise typer.Exit(REFUSED)
            for line in self._input.lines(_LOOK_EVERY_S if self._shown is not None else 0.1):
                self._execute(line)

    def _start_light_brokers(self) -> None:
        """Register the light brokers, and return when the controller has unfenced them."""
        if not self._light_count:
            return
        from kraft.network.quorum_client import QuorumClient
        from kraft.server.light_brokers import LightBrokers

        addresses = self._addresses()
        with QuorumClient(addresses) as client:
            cluster_id = client.describe_cluster().cluster_id
        self._light = light = LightBrokers(addresses, cluster_id, self._light_count)
        light.start()
        self._await(
            "light brokers", self._light_count, lambda: light.unfenced_count, lambda: light.failure
        )

    def _await_brokers(self) -> None:
        """Return when all brokers serve clients, and the controller has unfenced them."""
        if not self._quorum.brokers:
            return
        from kraft.errors import KraftError
        from kraft.metadata.quorum_reader import read_metadata
        from kraft.network.quorum_client import QuorumClient

        failure = ""

        def unfenced() -> int:
            nonlocal failure
            # The metadata show brokers of before as unfenced until their sessions end.
            ids = {node.id for node in self._quorum.brokers if node.accepts_clients()}
            try:
                with QuorumClient(self._addresses()) as client:
                    known = read_metadata(client).brokers
            except (KraftError, OSError) as error:
                failure = str(error)
                return 0
            return sum(id in ids and not broker.fenced for id, broker in known.items())

        self._await("brokers", len(self._quorum.brokers), unfenced, lambda: failure)

    def _await(
        self, what: str, count: int, unfenced: Callable[[], int], failure: Callable[[], str]
    ) -> None:
        """Wait until ``unfenced`` is ``count``. Raises Exit after a minute."""
        from kraft.cli.output import progress

        deadline = time.monotonic() + _BROKERS_TIMEOUT_S
        with progress(f"registering {what}", count) as advance:
            while (found := unfenced()) < count:
                if time.monotonic() > deadline:
                    _complain(
                        f"{found} of {count} {what} are unfenced after {_BROKERS_TIMEOUT_S:.0f} s"
                        f"; last error: {failure()}"
                    )
                    raise typer.Exit(REFUSED)
                self._report_ended()
                advance(found)
                time.sleep(0.05)

    def _addresses(self) -> list[tuple[str, int]]:
        """The controllers' addresses."""
        from kraft.server.local_quorum import LOOPBACK

        return [(LOOPBACK, node.port) for node in self._quorum.nodes]

    def _report_ended(self) -> None:
        """Report the nodes that ended by themselves since the last call.

        Raises Exit where no node runs before the first leader, and with --exit-with-node.
        """
        ended = [
            node
            for node in self._quorum.all
            if node.process is not None and not node.is_running and node.id not in self._reported
        ]
        for node in ended:
            assert node.process is not None
            self._reported.add(node.id)
            tail = node.log_path.read_text(errors="replace").splitlines()[-5:]
            _complain(
                f"{self._name(node)} ended with exit code {node.process.returncode}; "
                f"its log is {node.log_path}:\n  " + "\n  ".join(tail)
            )
        if ended and self._exit_with_node:
            raise typer.Exit(REFUSED)
        if self._shown is None and not any(node.is_running for node in self._quorum.nodes):
            raise typer.Exit(REFUSED)
        if ended:
            again = ", ".join(f"start {node.id}" for node in ended)
            print(f"The others keep running. To start it again, type: {again}", file=sys.stderr)

    def _describe(self) -> DescribeQuorumResponse | None:
        """Ask the running nodes; None without a leader, or without an answer in one second."""
        from kraft.errors import KraftError
        from kraft.network.quorum_client import QuorumClient
        from kraft.server.local_quorum import LOOPBACK

        addresses = [(LOOPBACK, node.port) for node in self._quorum.nodes if node.is_running]
        if not addresses:
            return None
        try:
            with QuorumClient(addresses, timeout_s=1.0) as client:
                return client.describe_quorum()
        except (KraftError, OSError):
            return None

    # -- commands

    def _execute(self, line: str) -> None:
        match line.split():
            case []:
                return
            case ["status"]:
                self._show_status()
            case [("stop" | "kill" | "start") as command, id] if id.isdigit():
                node = next((one for one in self._quorum.all if one.id == int(id)), None)
                if node is None:
                    ids = ", ".join(str(one.id) for one in self._quorum.all)
                    _complain(f"there is no node {id}; there are {ids}")
                elif node.is_running == (command == "start"):
                    state = "already" if node.is_running else "not"
                    _complain(f"{self._name(node)} is {state} running")
                else:
                    self._change(command, node)
            case _:
                _complain(f"unknown command {line!r}; commands are {_COMMANDS}")

    def _change(self, command: str, node: LocalNode) -> None:
        if command == "start":
            with _interrupts_held():
                self._quorum.start_node(node)
            self._reported.discard(node.id)
            result = "started"
        else:
            # Not to be reported as ended by itself.
            self._reported.add(node.id)
            if command == "stop":
                self._quorum.stop(node)
            else:
                self._quorum.kill(node)
            result = "stopped" if command == "stop" else "killed"
        if not self._as_json:
            print(f"{self._name(node)} {result}", flush=True)

    # -- output

    def _name(self, node: LocalNode) -> str:
        return f"controller {node.id}" if node in self._quorum.nodes else f"broker {node.id}"

    def _announce(self, state: DescribeQuorumResponse) -> None:
        self._show(state)
        if self._as_json:
            return
        bootstrap = self._bootstrap()
        print("Describe it from another terminal; Ctrl-C here stops it:")
        print(f"  kraft quorum describe --status --bootstrap-controller {bootstrap}")
        if self._quorum.brokers:
            clients = self._clients()
            print("Produce to a topic, which is created at once, and consume from it:")
            print(f"  echo hello | kcat -P -b {clients} -t demo")
            print(f"  kcat -C -b {clients} -t demo -o beginning -e")
        elif self._light is not None:
            replicas = min(self._light_count, 3)
            print(
                f"{self._light_count} light brokers are registered: they send heartbeats, and "
                "store and serve nothing."
            )
            print("Create topics, list and describe them:")
            print(
                f"  kraft topics create --topic demo --partitions 6 --replication-factor {replicas}"
                f" --bootstrap-controller {bootstrap}"
            )
            print(f"  kraft topics list --bootstrap-controller {bootstrap}")
            print(f"  kraft topics describe --topic demo --bootstrap-controller {bootstrap}")
        else:
            print("To create topics on it, start it with brokers: kraft up --brokers 3")
        print(f"Commands here: {_COMMANDS}", flush=True)

    def _show_status(self) -> None:
        state = self._describe()
        self._show(state)
        if state is None and not self._as_json:
            running = sum(node.is_running for node in self._quorum.nodes)
            print(f"no leader: {running} of {len(self._quorum.nodes)} controllers run", flush=True)

    def _bootstrap(self) -> str:
        return ",".join(node.endpoint for node in self._quorum.nodes)

    def _clients(self) -> str:
        """The bootstrap servers of clients."""
        return ",".join(node.client_endpoint for node in self._quorum.brokers)

    def _show(self, state: DescribeQuorumResponse | None) -> None:
        from kraft.cli.output import Output

        out, quorum = Output(as_json=self._as_json), self._quorum
        leader_id = -1 if state is None else state.leader_id
        pids = {
            node.id: node.process.pid
            for node in quorum.all
            if node.is_running and node.process is not None
        }
        if self._as_json:
            out.document(
                {
                    "bootstrapControllers": self._bootstrap(),
                    "bootstrapServers": self._clients(),
                    "leaderId": leader_id,
                    "leaderEpoch": -1 if state is None else state.epoch,
                    "lightBrokers": self._light_count,
                    "controllers": [_document(node, node.endpoint, pids) for node in quorum.nodes],
                    "brokers": [
                        _document(node, node.client_endpoint, pids) for node in quorum.brokers
                    ],
                }
            )
            return

        def role(node: LocalNode) -> str:
            if node.id not in pids:
                return "Down"
            return "Leader" if node.id == leader_id else "Follower" if state else "Running"

        brokers = f" and {len(quorum.brokers)} brokers" if quorum.brokers else ""
        rows = [(node.id, node.endpoint, role(node)) for node in quorum.nodes]
        rows += [
            (node.id, node.client_endpoint, "Broker" if node.id in pids else "Down")
            for node in quorum.brokers
        ]
        out.table(
            f"quorum of {len(quorum.nodes)} controllers{brokers} in {quorum.directory}",
            ("NodeId", "Endpoint", "Status", "Process"),
            [(*row, pids.get(row[0], "")) for row in rows],
            numbers=("NodeId", "Process"),
        )
        sys.stdout.flush()


def _document(node: LocalNode, endpoint: str, pids: Mapping[int, int]) -> dict[str, Any]:
    """Return the description of one node for --json."""
    return {
        "nodeId": node.id,
        "endpoint": endpoint,
        "config": str(node.config_path),
        "log": str(node.log_path),
        "pid": pids.get(node.id),
    }


def _complain(text: str) -> None:
    typer.echo(f"error: {text}", err=True)
