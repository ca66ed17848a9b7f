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

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.config_entities import ConfigReader, Entity, EntityOptions, EntityType
from kraft.cli.config_values import read_changes
from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption, ValidateOnlyOption
from kraft.errors import InvalidConfigError

if TYPE_CHECKING:
    from kraft.admin.configs import ConfigEntry

app = typer.Typer(
    help="Describe and alter the dynamic configurations of topics, brokers, groups and others.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)


@app.callback()
def _configs() -> None:
    """Describe and alter the dynamic configurations of topics, brokers, groups and others."""


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    named: EntityOptions,
    source: SourceOptions,
    describes_all: Annotated[
        bool,
        typer.Option("--all", help="Print all effective values, not only the entity's own."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the configurations of one entity, or of all entities of a type.

    Without --all only the values that the entity itself sets, with the values of other sources that they override. Sensitive values are null.

    [bold]Examples[/bold]

      kraft configs describe --topic orders --all --bootstrap-controller localhost:9093

      kraft configs describe --entity-type brokers --bootstrap-controller localhost:9093

      kraft configs describe --entity-type topics --from /var/lib/kafka/metadata
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output, progress

    type, name = named.read()
    quorum = source.quorum()
    admin = None if quorum is None else quorum.open()
    with admin or nullcontext():
        reader = ConfigReader(admin, source.read_directory() if quorum is None else None)
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
@takes_groups
def alter(
    named: EntityOptions,
    quorum: QuorumOptions,
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
    validate_only: ValidateOnlyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set and remove configurations of one entity, all or none.

    [bold]Examples[/bold]

      kraft configs alter --topic orders --add-config retention.ms=60000,cleanup.policy=\\[compact,delete] --bootstrap-controller localhost:9093

      kraft configs alter --broker-defaults --delete-config log.retention.ms --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.admin import ConfigChange, ConfigOperation
    from kraft.cli.output import Output

    type, name = named.read()
    if name is None:
        raise typer.BadParameter("name the entity: --entity-name or --entity-default")
    added, deleted = read_changes(add_config, add_config_file, delete_config)
    entity = Entity(type, name)
    with quorum.open() as admin:
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
