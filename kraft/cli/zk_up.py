"""``kraft zk up``: run a cluster of the ZooKeeper era on this machine with one command."""

from __future__ import annotations

import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import REFUSED
from kraft.cli.input_lines import InputLines
from kraft.cli.options import JsonOption
from kraft.zookeeper.settings import ZkEra

if TYPE_CHECKING:
    from kraft.zookeeper.controller_node import ZkControllerNode
    from kraft.zookeeper.light_broker import ZkLightBroker
    from kraft.zookeeper.server import ZooKeeperAddress

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FIRST_CONTROLLER_ID = 1001
_START_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.3
_COMMANDS = "stop N, kill N, start N, status"


def up(
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers",
            min=0,
            max=50,
            help="The number of light brokers, in three racks. They register and obey the "
            "controller over sockets, and store no records.",
        ),
    ] = 3,
    era: Annotated[
        ZkEra,
        typer.Option(
            "--era",
            help="The generation of the controllers: 0.8 is that of Kafka 0.8.2, with listeners "
            "under one lock, 2018 that of Kafka 1.1, with one queue of events.",
        ),
    ] = ZkEra.V2018,
    controllers: Annotated[
        int, typer.Option("--controllers", min=1, max=9, help="The number of controllers.")
    ] = 2,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="H:P[,H:P…][/CHROOT]",
            help="Use this ensemble. Default: start a server, as kraft zk start does.",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Keep ZooKeeper's data in this directory. Default: a temporary directory, removed "
            "at the end.",
            show_default=False,
        ),
    ] = None,
    session_timeout_ms: Annotated[
        int,
        typer.Option(
            "--session-timeout-ms",
            min=100,
            help="The timeout of the sessions of controllers and brokers.",
        ),
    ] = 6000,
    sync_writes: Annotated[
        bool,
        typer.Option(
            "--sync-writes",
            help="Let controllers read and write one znode at a time, as Kafka before 1.1. Those "
            "of 0.8 always do.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run ZooKeeper, controllers of Kafka 1.1 or 0.8.2 and light brokers on loopback, until Ctrl-C.

    Brokers of Apache Kafka can join and follow the controller: 1.1 to 3.9 (inter.broker.protocol.version=1.1), or with --era 0.8 those of 0.8.2.

    Reads commands from standard input, one a line: [bold]stop N[/bold] ends controller or broker N, a broker after a controlled shutdown, [bold]kill N[/bold] at once, [bold]start N[/bold] starts it again, [bold]status[/bold] prints who is active.

    [bold]Examples[/bold]

      kraft zk up

      kraft zk up --brokers 5 --controllers 3

      kraft zk up --era 0.8

      kraft zk up --brokers 0 --zookeeper 127.0.0.1:2181/kafka
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.zookeeper.server import LocalZooKeeper, ZooKeeperAddress

    if directory is not None and zookeeper is not None:
        raise typer.BadParameter(
            "the data are those of the given ensemble", param_hint="--dir with --zookeeper"
        )
    address = None if zookeeper is None else ZooKeeperAddress.parse(zookeeper)
    for number in _INTERRUPTS[1:]:
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as stack:
        if address is None:
            home = directory or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="kraft-zk-"))
            )
            server = LocalZooKeeper(home)
            stack.callback(server.stop)
            server.start()
            address = ZooKeeperAddress.parse(server.endpoint)
        cluster = _ZkCluster(
            address, controllers, brokers, session_timeout_ms, era=era, pipelines=not sync_writes
        )
        stack.callback(cluster.stop)
        # A second Ctrl-C must not leave a server or a temporary directory.
        stack.callback(_ignore_interrupts)
        cluster.start()
        cluster.announce(as_json=as_json)
        lines = InputLines()
        while True:
            for line in lines.lines(_LOOK_EVERY_S):
                cluster.execute(line, as_json=as_json)


def _ignore_interrupts() -> None:
    for number in _INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)


class _ZkCluster:
    """The controllers and light brokers of one ``kraft zk up``."""

    def __init__(
        self,
        address: ZooKeeperAddress,
        controllers: int,
        brokers: int,
        session_timeout_ms: int,
        *,
        era: ZkEra,
        pipelines: bool,
    ) -> None:
        from kraft.server.light_brokers import RACKS
        from kraft.zookeeper.controller_node import ZkControllerNode
        from kraft.zookeeper.light_broker import ZkLightBroker
        from kraft.zookeeper.settings import SETTINGS_0_8

        # Kafka 0.8.2 deletes topics only if its settings say so.
        deletes = replace(SETTINGS_0_8, delete_topic_enable=True)
        self._era = era
        self._address = address
        self._controllers = {
            id: ZkControllerNode(
                id,
                address,
                era=era,
                settings=deletes if era == ZkEra.V0_8 else None,
                session_timeout_ms=session_timeout_ms,
                pipelines=pipelines,
            )
            for id in range(_FIRST_CONTROLLER_ID, _FIRST_CONTROLLER_ID + controllers)
        }
        self._brokers = {
            id: ZkLightBroker(
                id,
                address,
                rack=RACKS[id % len(RACKS)],
                session_timeout_ms=session_timeout_ms,
            )
            for id in range(1, brokers + 1)
        }

    def start(self) -> None:
        """Start all; return when a controller knows every broker. Raises Exit after a minute."""
        for controller in self._controllers.values():
            controller.start()
            self._await(lambda: self._is_elected())
        for broker in self._brokers.values():
            broker.start()
        self._await(self._knows_all)

    def _await(self, is_reached: Any) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not is_reached():
            if time.monotonic() > deadline:
                typer.echo(
                    f"error: no controller knows all brokers within {_START_TIMEOUT_S:.0f} s; see "
                    f"kraft zk controller --zookeeper {self._address}",
                    err=True,
                )
                raise typer.Exit(REFUSED)
            time.sleep(0.02)

    def _is_elected(self) -> bool:
        """Whether an own controller is active, or one of another process."""
        running = [one.controller for one in self._controllers.values()]
        return any(one is not None and one.active_controller_id >= 0 for one in running)

    def _knows_all(self) -> bool:
        active = self._active()
        if active is None or active.controller is None:
            return self._is_elected()
        return set(self._brokers) <= set(active.controller.context.brokers)

    def _active(self) -> ZkControllerNode | None:
        return next((one for one in self._controllers.values() if one.is_active), None)

    def stop(self) -> None:
        """End brokers, then controllers."""
        for broker in self._brokers.values():
            broker.kill()
        for controller in self._controllers.values():
            controller.stop()

    def announce(self, *, as_json: bool) -> None:
        """Print the status and what can be done."""
        self._show(as_json=as_json)
        if as_json:
            return
        replicas = min(len(self._brokers), 3) or 1
        print("From another terminal; Ctrl-C here stops it:")
        print(
            f"  kraft zk topics create --topic demo --partitions 6 --replication-factor {replicas}"
            f" --zookeeper {self._address}"
        )
        print(f"  kraft zk topics describe --zookeeper {self._address}")
        print(f"  kraft zk controller --zookeeper {self._address}")
        print(f"Commands here: {_COMMANDS}", flush=True)

    def execute(self, line: str, *, as_json: bool) -> None:
        """Carry out a typed command."""
        from kraft.errors import KraftError

        match line.split():
            case []:
                return
            case ["status"]:
                self._show(as_json=as_json)
            case [("stop" | "kill" | "start") as command, id] if id.isdigit():
                node = self._controllers.get(int(id)) or self._brokers.get(int(id))
                if node is None:
                    ids = ", ".join(map(str, (*self._controllers, *self._brokers)))
                    typer.echo(f"error: there is no node {id}; there are {ids}", err=True)
                elif node.is_running == (command == "start"):
                    state = "already" if node.is_running else "not"
                    typer.echo(f"error: node {id} is {state} running", err=True)
                else:
                    try:
                        self._change(command, node)
                    except (KraftError, OSError) as error:
                        typer.echo(f"error: {command} {id}: {error}", err=True)
                        return
                    if not as_json:
                        done = {"stop": "stopped", "kill": "killed", "start": "started"}[command]
                        print(f"node {id} {done}", flush=True)
            case _:
                typer.echo(f"error: unknown command {line!r}; commands are {_COMMANDS}", err=True)

    def _change(self, command: str, node: ZkControllerNode | ZkLightBroker) -> None:
        from kraft.zookeeper.light_broker import ZkLightBroker

        if command == "start":
            node.start()
        elif command == "kill" and isinstance(node, ZkLightBroker):
            node.kill()
        else:
            node.stop()

    def _show(self, *, as_json: bool) -> None:
        from kraft.cli.output import Output

        out = Output(as_json=as_json)
        active = self._active()
        controller = None if active is None else active.controller
        if as_json:
            out.document(
                {
                    "zookeeper": str(self._address),
                    "era": str(self._era),
                    "controllerId": -1 if active is None else active.id,
                    "controllerEpoch": -1 if controller is None else controller.context.epoch,
                    "events": {} if controller is None else dict(controller.event_counts),
                    "controllers": [
                        {"nodeId": id, "endpoint": node.endpoint if node.is_running else None}
                        for id, node in self._controllers.items()
                    ],
                    "brokers": [
                        {
                            "nodeId": id,
                            "endpoint": broker.endpoint if broker.is_running else None,
                            "replicas": len(broker.replicas),
                        }
                        for id, broker in self._brokers.items()
                    ],
                }
            )
            return
        rows = [
            (
                id,
                node.endpoint if node.is_running else "",
                "Active" if node is active else "Candidate" if node.is_running else "Down",
                "",
            )
            for id, node in self._controllers.items()
        ]
        rows += [
            (
                id,
                broker.endpoint if broker.is_running else "",
                "Broker" if broker.is_running else "Down",
                f"{len(broker.replicas)}",
            )
            for id, broker in self._brokers.items()
        ]
        epoch = "" if controller is None else f", controller epoch {controller.context.epoch}"
        out.table(
            f"cluster of {self._era} in ZooKeeper at {self._address}{epoch}",
            ("NodeId", "Endpoint", "Status", "Replicas"),
            rows,
            numbers=("NodeId", "Replicas"),
        )
        if controller is not None:
            events = ", ".join(f"{name} {n}" for name, n in sorted(controller.event_counts.items()))
            print(f"events of controller {controller.broker_id}: {events}", flush=True)
