"""``kraft zk topics`` and ``kraft zk controller``: what ZooKeeper has of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.exit_codes import EPILOG, FOUND
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.zookeeper.administration import ZkAdmin

topics_app = typer.Typer(
    help="Create, describe and delete topics, as Kafka's tools did: in ZooKeeper.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

ZooKeeperOption = Annotated[
    str,
    typer.Option(
        "--zookeeper",
        metavar="H:P[,H:P…][/CHROOT]",
        help="The servers and the chroot, as zookeeper.connect of the brokers.",
    ),
]
TopicOption = Annotated[
    list[str], typer.Option("--topic", metavar="NAME", help="A topic. Repeatable.")
]


@contextmanager
def _connected(address: str) -> Iterator[ZkAdmin]:
    from kraft.zookeeper.administration import ZkAdmin
    from kraft.zookeeper.kazoo_port import KazooPort
    from kraft.zookeeper.server import ZooKeeperAddress

    port = KazooPort(ZooKeeperAddress.parse(address))
    try:
        yield ZkAdmin(port)
    finally:
        port.close()


@topics_app.command("list", epilog=EPILOG)
def list_topics(zookeeper: ZooKeeperOption = "127.0.0.1:2181", as_json: JsonOption = False) -> None:
    """List topics, one a line.

    [bold]Example[/bold]

      kraft zk topics list --zookeeper 127.0.0.1:2181/kafka
    """
    from kraft.cli.output import Output

    with _connected(zookeeper) as admin:
        names, deletions = admin.topics(), admin.deletions()
    if as_json:
        Output(as_json=True).document(
            [{"topic": name, "isMarkedForDeletion": name in deletions} for name in names]
        )
        return
    for name in names:
        print(f"{name} - marked for deletion" if name in deletions else name)


@topics_app.command("describe", epilog=EPILOG)
def describe_topics(
    zookeeper: ZooKeeperOption = "127.0.0.1:2181",
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="A topic. Repeatable. Default: all topics.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the leader, replicas and ISR of each partition.

    Exit code 3: a partition has no leader.

    [bold]Example[/bold]

      kraft zk topics describe --topic orders
    """
    from kraft.cli.output import Output

    out = Output(as_json=as_json)
    with _connected(zookeeper) as admin:
        described = admin.describe(topic or admin.topics())
    rows = [
        (name, one.partition, one.replicas, one.state)
        for name, partitions in described.items()
        for one in partitions
    ]
    if as_json:
        out.document(
            [
                {
                    "topic": name,
                    "partition": partition,
                    "leader": -1 if state is None else state.leader,
                    "leaderEpoch": -1 if state is None else state.leader_epoch,
                    "replicas": list(replicas),
                    "isr": [] if state is None else list(state.isr),
                    "controllerEpoch": -1 if state is None else state.controller_epoch,
                }
                for name, partition, replicas, state in rows
            ]
        )
    else:
        out.table(
            "",
            ("Topic", "Partition", "Leader", "LeaderEpoch", "Replicas", "Isr"),
            [
                (
                    name,
                    partition,
                    "none" if state is None or state.leader < 0 else state.leader,
                    "" if state is None else state.leader_epoch,
                    ",".join(map(str, replicas)),
                    "" if state is None else ",".join(map(str, state.isr)),
                )
                for name, partition, replicas, state in rows
            ],
            numbers=("Partition", "Leader", "LeaderEpoch"),
        )
    if any(state is None or state.leader < 0 for *_, state in rows):
        raise typer.Exit(FOUND)


@topics_app.command("create", epilog=EPILOG)
def create_topics(
    topic: TopicOption,
    zookeeper: ZooKeeperOption = "127.0.0.1:2181",
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=1_000_000, help="Partitions of each topic.")
    ] = 1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, max=1000, help="Replicas of a partition.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Create topics on the registered brokers; the controller elects their leaders.

    [bold]Example[/bold]

      kraft zk topics create --topic orders --partitions 6 --replication-factor 3
    """
    from kraft.cli.output import Output

    with _connected(zookeeper) as admin:
        created = {name: admin.create(name, partitions, replication_factor) for name in topic}
    if as_json:
        Output(as_json=True).document(
            [
                {"topic": name, "replicas": [list(ids) for ids in assignment.values()]}
                for name, assignment in created.items()
            ]
        )
        return
    for name, assignment in created.items():
        print(f"created topic {name} with {len(assignment)} partitions")


@topics_app.command("delete", epilog=EPILOG)
def delete_topics(
    topic: TopicOption, zookeeper: ZooKeeperOption = "127.0.0.1:2181", as_json: JsonOption = False
) -> None:
    """Mark topics for deletion; the controller deletes them when all their brokers are live.

    [bold]Example[/bold]

      kraft zk topics delete --topic orders
    """
    from kraft.cli.output import Output

    with _connected(zookeeper) as admin:
        admin.delete(topic)
    if as_json:
        Output(as_json=True).document([{"topic": name} for name in topic])
        return
    for name in topic:
        print(f"topic {name} is marked for deletion")


def controller(zookeeper: ZooKeeperOption = "127.0.0.1:2181", as_json: JsonOption = False) -> None:
    """Show the active controller and its epoch, of kraft or Apache Kafka.

    Those of kraft have an era, 0.8 or 2018. Exit code 3: there is none.

    [bold]Example[/bold]

      kraft zk controller --zookeeper 127.0.0.1:2181/kafka
    """
    from datetime import UTC, datetime

    from kraft.cli.output import Output

    with _connected(zookeeper) as admin:
        found = admin.controller()
    since = datetime.fromtimestamp(found.timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    out = Output(as_json=as_json)
    if as_json:
        out.document(
            {
                "controllerId": found.broker_id,
                "controllerEpoch": found.epoch,
                "sinceMs": found.timestamp_ms,
                "era": found.era or None,
                "brokers": list(found.brokers),
                "topics": found.topics,
            }
        )
    else:
        has_one = found.broker_id >= 0
        out.fields(
            "controller",
            [
                ("id", found.broker_id if has_one else "none"),
                ("epoch", found.epoch),
                ("since", since if has_one else None),
                ("era", found.era or None),
                ("brokers", ", ".join(map(str, found.brokers)) or "none"),
                ("topics", found.topics),
            ],
        )
    if found.broker_id < 0:
        raise typer.Exit(FOUND)
