"""``kraft brokers``: the registered brokers, and how many partitions each leads and holds.

``unregister`` is that of ``kafka-cluster``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption
from kraft.errors import BrokerIdNotRegisteredError

if TYPE_CHECKING:
    from kraft.image import BrokerRegistration
    from kraft.metadata.facade import Metadata

app = typer.Typer(
    help="List and describe the registered brokers; remove registrations.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

IdOption = Annotated[
    int, typer.Option("--id", "-i", min=0, metavar="N", help="The id of the broker.")
]

BROKER_COLUMNS = (
    *("ID", "RACK", "STATE", "EPOCH", "IN_CONTROLLED_SHUTDOWN", "LEADERS", "REPLICAS"),
    *("ENDPOINTS", "LOG_DIRS"),
)
BROKER_NUMBERS = ("ID", "EPOCH", "LEADERS", "REPLICAS")


@app.callback()
def _brokers() -> None:
    """List and describe the registered brokers; remove registrations."""


@app.command("list", epilog=EPILOG)
@takes_groups
def list_brokers(
    source: SourceOptions,
    as_json: JsonOption = False,
) -> None:
    """List the registered brokers: rack, state, epoch, endpoints, partitions led and held.

    [bold]Examples[/bold]

      kraft brokers list --from /var/lib/kafka/metadata

      kraft brokers list --bootstrap-controller localhost:9093

      kraft brokers list --from /var/lib/kafka/metadata --at 1200 --json
    """
    from kraft.cli.output import Output

    metadata = source.read()
    brokers = broker_documents(metadata)
    output = Output(as_json=as_json)
    if as_json:
        output.document(brokers)
        return
    output.table("", BROKER_COLUMNS, map(broker_row, brokers), numbers=BROKER_NUMBERS)


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    source: SourceOptions,
    id: IdOption,
    as_json: JsonOption = False,
) -> None:
    """Print one broker: registration, supported features, directories and dynamic settings.

    [bold]Examples[/bold]

      kraft brokers describe --id 1 --bootstrap-controller localhost:9093
    """
    from kraft.cli.output import Output
    from kraft.metadata.kafka_json import settings_of

    metadata = source.read()
    broker = next((each for each in broker_documents(metadata) if each["brokerId"] == id), None)
    if broker is None:
        known = ", ".join(map(str, sorted(metadata.brokers))) or "none"
        raise BrokerIdNotRegisteredError(f"broker {id} is not registered; registered are {known}")
    broker["configs"] = settings_of(metadata.configs.broker(id))
    output = Output(as_json=as_json)
    if as_json:
        output.document(broker)
        return
    settings = broker["configs"].items()
    output.fields(
        f"Broker {id}",
        [
            ("Rack", broker["rack"]),
            ("State", broker["state"]),
            ("InControlledShutdown", broker["inControlledShutdown"]),
            ("BrokerEpoch", broker["brokerEpoch"]),
            ("IncarnationId", broker["incarnationId"]),
            ("Endpoints", endpoints_text(broker["endPoints"])),
            ("LogDirs", ",".join(broker["logDirs"])),
            ("CordonedLogDirs", ",".join(broker["cordonedLogDirs"] or ()) or None),
            ("Leaders", broker["leaders"]),
            ("Replicas", broker["replicas"]),
            ("Features", _features_text(metadata.brokers[id])),
            ("Configs", ", ".join(f"{name}={value}" for name, value in settings) or "none"),
        ],
    )


@app.command(epilog=EPILOG)
@takes_groups
def unregister(
    quorum: QuorumOptions,
    id: IdOption,
    as_json: JsonOption = False,
) -> None:
    """Remove the registration of a broker that is gone for good.

    Its partitions get other leaders where replicas are in sync; it stays among their replicas. A broker that runs registers again when it restarts.

    [bold]Examples[/bold]

      kraft brokers unregister --id 3 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    with quorum.open() as admin:
        admin.unregister_broker(id)
    if as_json:
        Output(as_json=True).document({"unregistered": id})
        return
    print(f"Broker {id} is no longer registered.")


def _features_text(broker: BrokerRegistration) -> str:
    return ", ".join(
        f"{name}={levels.min}-{levels.max}" for name, levels in sorted(broker.features.items())
    )


def broker_documents(metadata: Metadata) -> list[dict[str, Any]]:
    """Return one JSON object for each broker, by id, with the names of Kafka's
    RegisterBrokerRecord.
    """
    import numpy as np

    from kraft.metadata.kafka_json import json_value

    partitions = metadata.partitions
    live = partitions.live
    replicas = partitions.replica_matrix()[live]
    leads = dict(zip(*np.unique(partitions.leader[live], return_counts=True), strict=True))
    holds = dict(zip(*np.unique(replicas[replicas >= 0], return_counts=True), strict=True))

    def document(broker: BrokerRegistration) -> dict[str, Any]:
        cordoned = broker.cordoned_log_dirs
        return {
            "brokerId": broker.id,
            "rack": broker.rack,
            "state": "fenced" if broker.fenced else "unfenced",
            "brokerEpoch": broker.epoch,
            "inControlledShutdown": broker.in_controlled_shutdown,
            "leaders": int(leads.get(broker.id, 0)),
            "replicas": int(holds.get(broker.id, 0)),
            "endPoints": endpoint_documents(broker.endpoints.values()),
            "logDirs": json_value(broker.log_dirs),
            "cordonedLogDirs": None if cordoned is None else json_value(cordoned),
            "incarnationId": str(broker.incarnation_id),
            "features": json_value(broker.features),
        }

    return [document(broker) for _, broker in sorted(metadata.brokers.items())]


def broker_row(broker: dict[str, Any]) -> tuple[object, ...]:
    """Return a broker's document as a row for the columns of ``kraft brokers list``."""
    return (
        broker["brokerId"],
        broker["rack"],
        broker["state"],
        broker["brokerEpoch"],
        broker["inControlledShutdown"],
        broker["leaders"],
        broker["replicas"],
        endpoints_text(broker["endPoints"]),
        ",".join(broker["logDirs"]),
    )


def endpoint_documents(endpoints: Any) -> list[dict[str, Any]]:
    """Return endpoints by listener name, with the names of their security protocols."""
    from kraft.image.nodes import SECURITY_PROTOCOLS

    return [
        {
            "name": point.name,
            "host": point.host,
            "port": point.port,
            "securityProtocol": SECURITY_PROTOCOLS[point.security_protocol],
        }
        for point in sorted(endpoints)
    ]


def endpoints_text(endpoints: list[dict[str, Any]]) -> str:
    """Return ``PLAINTEXT://host:9092,…``."""
    return ",".join(f"{point['name']}://{point['host']}:{point['port']}" for point in endpoints)
