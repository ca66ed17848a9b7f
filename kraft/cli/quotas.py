"""``kraft quotas``: the quotas of users, clients and IP addresses.

Entities, texts and rules are those of ``kafka-configs --entity-type users|clients|ips`` (4.3.1). A
controller has no API that describes quotas: ``describe`` reads the metadata of the quorum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.config_values import read_changes
from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption, ValidateOnlyOption
from kraft.configdef import double_text
from kraft.errors import InvalidConfigError

if TYPE_CHECKING:
    from kraft.admin import QuotaFilter
    from kraft.image.quotas import QuotaEntity

app = typer.Typer(
    help="Describe and change the quotas of users, clients and IP addresses.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)


def _name(flag: str, help: str) -> Any:
    return typer.Option(flag, metavar="NAME", help=help, show_default=False)


UserOption = Annotated[str | None, _name("--user", "A user.")]
UserDefaultsOption = Annotated[
    bool, typer.Option("--user-defaults", help="Users without a quota of their own.")
]
ClientOption = Annotated[str | None, _name("--client", "A client id.")]
ClientDefaultsOption = Annotated[
    bool, typer.Option("--client-defaults", help="Client ids without a quota of their own.")
]
IpOption = Annotated[str | None, _name("--ip", "An IP address.")]
IpDefaultsOption = Annotated[
    bool, typer.Option("--ip-defaults", help="IP addresses without a quota of their own.")
]

#: Entity type -> its name in Kafka's output, and the type of the entities of `kafka-configs`.
_SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_PLURALS = {"user": "users", "client-id": "clients", "ip": "ips"}


@dataclass(frozen=True, slots=True)
class QuotaEntityOptions:
    """The options that name an entity, or a part of one."""

    user: UserOption = None
    user_defaults: UserDefaultsOption = False
    client: ClientOption = None
    client_defaults: ClientDefaultsOption = False
    ip: IpOption = None
    ip_defaults: IpDefaultsOption = False

    def read(self) -> dict[str, str | None]:
        """Return the names by entity type, None for a default. Raises a usage error."""
        entity: dict[str, str | None] = {}
        for type, name, is_default, flag in (
            ("user", self.user, self.user_defaults, "user"),
            ("client-id", self.client, self.client_defaults, "client"),
            ("ip", self.ip, self.ip_defaults, "ip"),
        ):
            if name is not None and is_default:
                raise typer.BadParameter(f"give either --{flag} or --{flag}-defaults")
            if name == "":
                raise typer.BadParameter(
                    f"--{flag} is empty; for the default use --{flag}-defaults"
                )
            if name is not None or is_default:
                entity[type] = name
        if "ip" in entity and len(entity) > 1:
            raise typer.BadParameter("an IP address has no quotas together with a user or client")
        return entity


@app.callback()
def _quotas() -> None:
    """Describe and change the quotas of users, clients and IP addresses."""


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    parts: QuotaEntityOptions,
    source: SourceOptions,
    users: Annotated[bool, typer.Option("--users", help="All users and their default.")] = False,
    clients: Annotated[
        bool, typer.Option("--clients", help="All client ids and their default.")
    ] = False,
    ips: Annotated[bool, typer.Option("--ips", help="All IP addresses and their default.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the quotas of the entities that consist of exactly the named parts; by default all.

    [bold]Examples[/bold]

      kraft quotas describe --bootstrap-controller localhost:9093

      kraft quotas describe --user alice --clients --bootstrap-controller localhost:9093

      kraft quotas describe --ips --from /var/lib/kafka/metadata
    """
    from kraft.admin import QuotaFilter
    from kraft.cli.output import Output

    entity = parts.read()
    filters = [QuotaFilter(type, name) for type, name in entity.items()]
    for type, is_any in (("user", users), ("client-id", clients), ("ip", ips)):
        if is_any and type in entity:
            raise typer.BadParameter(f"--{_PLURALS[type]} and a single one exclude each other")
        if is_any:
            filters.append(QuotaFilter(type, is_any=True))
    metadata = source.read()
    found = _matching(metadata, filters)
    if as_json:
        document = [
            {"entity": dict(each), "quotas": dict(quotas)} for each, quotas in found.items()
        ]
        Output(as_json=True).document(document)
        return
    for each, quotas in found.items():
        values = ", ".join(f"{key}={double_text(value)}" for key, value in sorted(quotas.items()))
        print(f"Quota configs for {_entity_text(each)} are {values}")


@app.command(epilog=EPILOG)
@takes_groups
def alter(
    parts: QuotaEntityOptions,
    quorum: QuorumOptions,
    add_config: Annotated[
        str | None,
        typer.Option(
            "--add-config",
            metavar="K=V,…",
            help="Set these quotas: producer_byte_rate, consumer_byte_rate, request_percentage, "
            "controller_mutation_rate; connection_creation_rate of an IP address.",
            show_default=False,
        ),
    ] = None,
    add_config_file: Annotated[
        Path | None,
        typer.Option(
            "--add-config-file",
            metavar="FILE",
            help="Set the quotas of this .properties file.",
            show_default=False,
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="K,…",
            help="Remove these quotas. Repeatable.",
            show_default=False,
        ),
    ] = None,
    validate_only: ValidateOnlyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set and remove quotas of one entity: a user, a client id, both, or an IP address.

    [bold]Examples[/bold]

      kraft quotas alter --user alice --add-config producer_byte_rate=1048576 --bootstrap-controller localhost:9093

      kraft quotas alter --user alice --client-defaults --delete-config request_percentage --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.admin import QuotaAlteration, QuotaFilter
    from kraft.cli.output import Output

    entity = parts.read()
    if not entity:
        raise typer.BadParameter("name an entity: --user, --client, --ip or one of …-defaults")
    values, deleted = read_changes(add_config, add_config_file, delete_config)
    added = {key: _number(key, value) for key, value in values.items()}
    with quorum.open() as admin:
        if deleted:
            # As Kafka's tool does: a controller accepts the removal of any quota.
            filters = [QuotaFilter(type, name) for type, name in entity.items()]
            present: set[str] = set()
            for quotas in admin.describe_client_quotas(filters, is_strict=True).values():
                present |= quotas.keys()
            absent = [key for key in deleted if key not in present]
            if absent:
                raise InvalidConfigError(f"Invalid config(s): {','.join(absent)} (not set)")
        changes = [*added.items(), *((key, None) for key in deleted)]
        admin.alter_client_quotas(
            [QuotaAlteration(entity, changes)], validate_only=validate_only
        ).all()
    if as_json:
        document = {
            "entity": entity,
            "added": added,
            "deleted": sorted(deleted),
            "validateOnly": validate_only,
        }
        Output(as_json=True).document(document)
        return
    # Kafka's tool names one part: the client before the user, and a default only if it is alone.
    type, name = min(entity.items(), key=lambda part: (part[1] is None, part[0]))
    done = "Would complete" if validate_only else "Completed"
    if name is not None:
        print(f"{done} updating config for {_PLURALS[type][:-1]} {name}.")
    else:
        print(f"{done} updating default config for {_PLURALS[type]} in the cluster.")


def _matching(metadata: Any, filters: list[QuotaFilter]) -> dict[QuotaEntity, Mapping[str, float]]:
    """Return the quotas of the entities with exactly these parts; of all without a filter."""
    from kraft.controller.configs.client_quotas import describe_client_quotas

    found = describe_client_quotas(metadata.cluster, filters, is_strict=bool(filters))
    return dict(sorted(found.items(), key=lambda item: _entity_text(item[0])))


def _entity_text(entity: QuotaEntity) -> str:
    names = dict(entity)
    return ", ".join(
        f"the default {_SHOWN[type]}" if names[type] is None else f"{_SHOWN[type]} '{names[type]}'"
        for type in ("user", "client-id", "ip")
        if type in names
    )


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"--add-config: the quota {key} must be a number, not {text!r:.40}"
        ) from None
