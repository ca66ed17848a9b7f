"""``kraft configs``: describe and alter dynamic configurations, as ``kafka-configs`` does.

Options and text are those of Kafka's ``ConfigCommand`` (4.3.1). The entity types users, clients and
ips of that tool have commands of their own: ``kraft users`` and ``kraft quotas``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import ClientConfigOption, ControllersOption, open_admin
from kraft.cli.config_entities import ConfigReader, Entity, EntityOptions, EntityType
from kraft.cli.config_values import read_added, read_deleted
from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import DirectoryOption, QuorumOption, check_source
from kraft.cli.options import AtOption, JsonOption
from kraft.errors import InvalidConfigError

if TYPE_CHECKING:
    from kraft.admin.configs import ConfigEntry

app = typer.Typer(
    help="Describe and alter the dynamic configurations of topics, brokers, groups and others.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

EntityTypeOption = Annotated[
    EntityType | None,
    typer.Option("--entity-type", help="The type of the entity.", show_default=False),
]
EntityNameOption = Annotated[
    str | None,
    typer.Option(
        "--entity-name",
        metavar="NAME",
        help="A topic, node id, subscription of client metrics, or group.",
        show_default=False,
    ),
]
EntityDefaultOption = Annotated[
    bool, typer.Option("--entity-default", help="The default of all brokers.")
]
TopicEntityOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="A topic.", show_default=False),
]
BrokerEntityOption = Annotated[
    str | None,
    typer.Option("--broker", metavar="ID", help="A broker or controller.", show_default=False),
]
BrokerDefaultsOption = Annotated[
    bool, typer.Option("--broker-defaults", help="The default of all brokers.")
]
LoggerEntityOption = Annotated[
    str | None,
    typer.Option(
        "--broker-logger", metavar="ID", help="The loggers of a controller.", show_default=False
    ),
]
MetricsEntityOption = Annotated[
    str | None,
    typer.Option(
        "--client-metrics",
        metavar="NAME",
        help="A subscription of client metrics.",
        show_default=False,
    ),
]
GroupEntityOption = Annotated[
    str | None, typer.Option("--group", metavar="ID", help="A group.", show_default=False)
]


@app.callback()
def _configs() -> None:
    """Describe and alter the dynamic configurations of topics, brokers, groups and others."""


@app.command(epilog=EPILOG)
def describe(
    entity_type: EntityTypeOption = None,
    entity_name: EntityNameOption = None,
    entity_default: EntityDefaultOption = False,
    topic: TopicEntityOption = None,
    broker: BrokerEntityOption = None,
    broker_defaults: BrokerDefaultsOption = False,
    broker_logger: LoggerEntityOption = None,
    client_metrics: MetricsEntityOption = None,
    group: GroupEntityOption = None,
    describes_all: Annotated[
        bool,
        typer.Option("--all", help="Print all effective values, not only the entity's own."),
    ] = False,
    from_: DirectoryOption = None,
    at: AtOption = None,
    bootstrap_controller: QuorumOption = None,
    as_json: JsonOption = False,
    command_config: ClientConfigOption = None,
) -> None:
    """Print the configurations of one entity, or of all entities of a type.

    Without --all only the values that the entity itself sets, with the values of other sources that they override. Sensitive values are null.

    [bold]Examples[/bold]

      kraft configs describe --topic orders --all --bootstrap-controller localhost:9093

      kraft configs describe --entity-type brokers --bootstrap-controller localhost:9093

      kraft configs describe --entity-type topics --from /var/lib/kafka/metadata
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output, progress
    from kraft.metadata.facade import open_metadata

    type, name = EntityOptions(
        *(entity_type, entity_name, entity_default, topic, broker, broker_defaults),
        *(broker_logger, client_metrics, group),
    ).read()
    check_source(from_, at, bootstrap_controller, command_config)
    admin = None
    if bootstrap_controller is not None:
        admin = open_admin(bootstrap_controller, command_config)
    with admin or nullcontext():
        reader = ConfigReader(admin, None if from_ is None else open_metadata(from_, at=at))
        entities = reader.all_of(type) if name is None else [Entity(type, name)]
        described = reader.read(entities, describes_all=describes_all)
        if as_json:
            Output(as_json=True).document([_document(*each) for each in described])
            return
        is_long = len(entities) > 1000
        with progress("describing configs", len(entities), shown=is_long) as advance:
            for number, (entity, entries) in enumerate(described, 1):
                _show(entity, entries, describes_all)
                advance(number)


@app.command(epilog=EPILOG)
def alter(
    bootstrap_controller: ControllersOption,
    entity_type: EntityTypeOption = None,
    entity_name: EntityNameOption = None,
    entity_default: EntityDefaultOption = False,
    topic: TopicEntityOption = None,
    broker: BrokerEntityOption = None,
    broker_defaults: BrokerDefaultsOption = False,
    broker_logger: LoggerEntityOption = None,
    client_metrics: MetricsEntityOption = None,
    group: GroupEntityOption = None,
    add_config: Annotated[
        str | None,
        typer.Option(
            "--add-config",
            metavar="K=V,…",
            help="Set these values. Square brackets group a value with commas: k1=v1,k2=\\[a,b].",
            show_default=False,
        ),
    ] = None,
    add_config_file: Annotated[
        Path | None,
        typer.Option(
            "--add-config-file",
            metavar="FILE",
            help="Set the values of this .properties file.",
            show_default=False,
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="K,…",
            help="Remove these values. Repeatable.",
            show_default=False,
        ),
    ] = None,
    validate_only: Annotated[
        bool,
        typer.Option(
            "--validate-only", help="Let the controller check the request, change nothing."
        ),
    ] = False,
    as_json: JsonOption = False,
    command_config: ClientConfigOption = None,
) -> None:
    """Set and remove configurations of one entity, all or none.

    [bold]Examples[/bold]

      kraft configs alter --topic orders --add-config retention.ms=60000,cleanup.policy=\\[compact,delete] --bootstrap-controller localhost:9093

      kraft configs alter --broker-defaults --delete-config log.retention.ms --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.admin import ConfigChange, ConfigOperation
    from kraft.cli.output import Output

    type, name = EntityOptions(
        *(entity_type, entity_name, entity_default, topic, broker, broker_defaults),
        *(broker_logger, client_metrics, group),
    ).read()
    if name is None:
        raise typer.BadParameter("name the entity: --entity-name or --entity-default")
    added = read_added(add_config, add_config_file)
    deleted = read_deleted(delete_config)
    if not added and not deleted:
        raise typer.BadParameter("give --add-config, --add-config-file or --delete-config")
    entity = Entity(type, name)
    with open_admin(bootstrap_controller, command_config) as admin:
        if type is EntityType.BROKER_LOGGERS:
            _check_loggers(ConfigReader(admin, None), entity, [*added, *deleted])
        changes = [ConfigChange(key, value) for key, value in added.items()]
        changes += [ConfigChange(key, None, ConfigOperation.DELETE) for key in deleted]
        altered = admin.incremental_alter_configs(
            {entity.resource: changes}, validate_only=validate_only
        )
        altered.all()
    if as_json:
        document = {
            "entityType": type.value,
            "entityName": name,
            "added": sorted(added),
            "deleted": sorted(deleted),
            "validateOnly": validate_only,
        }
        Output(as_json=True).document(document)
        return
    done = "Would complete" if validate_only else "Completed"
    if name:
        print(f"{done} updating config for {type.one} {name}.")
    else:
        print(f"{done} updating default config for {type.value} in the cluster.")


# -- checks


def _check_loggers(reader: ConfigReader, entity: Entity, names: Iterable[str]) -> None:
    """Raise InvalidConfigError for a logger that the node does not have, as Kafka's tool does."""
    ((_, entries),) = reader.read([entity], describes_all=False)
    present = {each.name for each in entries}
    unknown = [name for name in names if name not in present]
    if unknown:
        raise InvalidConfigError(f"Invalid broker logger(s): {','.join(unknown)}")


# -- output


def _show(entity: Entity, entries: list[ConfigEntry], describes_all: bool) -> None:
    if entity.name:
        which = "All" if describes_all else "Dynamic"
        print(f"{which} configs for {entity.type.one} {entity.name} are:")
    else:
        print(f"Default configs for {entity.type.value} in the cluster are:")
    for each in entries:
        synonyms = ", ".join(
            f"{one.source.name}:{one.name}={_value(one.value)}" for one in each.synonyms
        )
        is_sensitive = str(each.is_sensitive).lower()
        print(
            f"  {each.name}={_value(each.value)} sensitive={is_sensitive} synonyms={{{synonyms}}}"
        )


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _document(entity: Entity, entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        "entityType": entity.type.value,
        "entityName": entity.name,
        "configs": [
            {
                "name": each.name,
                "value": each.value,
                "source": each.source.name,
                "isSensitive": each.is_sensitive,
                "isReadOnly": each.is_read_only,
                "synonyms": [
                    {"name": one.name, "value": one.value, "source": one.source.name}
                    for one in each.synonyms
                ],
            }
            for each in entries
        ],
    }
