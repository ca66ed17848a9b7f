"""The entities of ``kraft configs``: which resource the options name, and its configurations.

Configurations come from the controllers (DescribeConfigs), from a directory, or, where the
controllers cannot answer, from the metadata of the quorum: the settings of a broker are in the
metadata, its properties file is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.errors import InvalidRequestError

if TYPE_CHECKING:
    from kraft.admin.client import BlockingAdmin
    from kraft.admin.configs import ConfigEntry, ConfigSource
    from kraft.image.configs import ConfigResource
    from kraft.metadata.facade import Metadata

#: Resources of one request.
_AT_ONCE = 100


class EntityType(StrEnum):
    """The entity types of ``kafka-configs`` that are resources with configurations."""

    TOPICS = "topics"
    BROKERS = "brokers"
    BROKER_LOGGERS = "broker-loggers"
    CLIENT_METRICS = "client-metrics"
    GROUPS = "groups"

    @property
    def resource_type(self) -> int:
        from kraft.admin.configs import ConfigResourceType as Type

        return {
            EntityType.TOPICS: Type.TOPIC,
            EntityType.BROKERS: Type.BROKER,
            EntityType.BROKER_LOGGERS: Type.BROKER_LOGGER,
            EntityType.CLIENT_METRICS: Type.CLIENT_METRICS,
            EntityType.GROUPS: Type.GROUP,
        }[self]

    @property
    def one(self) -> str:
        """The type of a single entity, as Kafka's tool prints it."""
        return self.value[:-1]

    def dynamic_source(self, name: str) -> ConfigSource | None:
        """Return the source of an entity's own settings; None where every value is dynamic."""
        from kraft.admin.configs import ConfigSource as Source

        return {
            EntityType.TOPICS: Source.DYNAMIC_TOPIC_CONFIG,
            EntityType.BROKERS: Source.DYNAMIC_BROKER_CONFIG
            if name
            else Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
            EntityType.BROKER_LOGGERS: None,
            EntityType.CLIENT_METRICS: Source.DYNAMIC_CLIENT_METRICS_CONFIG,
            EntityType.GROUPS: Source.DYNAMIC_GROUP_CONFIG,
        }[self]


@dataclass(frozen=True, slots=True)
class Entity:
    """One entity; the name "" is the default of all brokers."""

    type: EntityType
    name: str

    @property
    def resource(self) -> ConfigResource:
        return self.type.resource_type, self.name

    @property
    def is_node(self) -> bool:
        """Whether only one node can describe the entity."""
        return self.type in (EntityType.BROKERS, EntityType.BROKER_LOGGERS) and self.name != ""


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


@dataclass(frozen=True, slots=True)
class EntityOptions:
    """The options that name an entity: Kafka's general ones, and its short forms."""

    entity_type: EntityTypeOption = None
    entity_name: EntityNameOption = None
    entity_default: EntityDefaultOption = False
    topic: TopicEntityOption = None
    broker: BrokerEntityOption = None
    broker_defaults: BrokerDefaultsOption = False
    broker_logger: LoggerEntityOption = None
    client_metrics: MetricsEntityOption = None
    group: GroupEntityOption = None

    def read(self) -> tuple[EntityType, str | None]:
        """Return the type and name; None for all entities of the type. Raises a usage error."""
        short = [
            (type, name)
            for type, name in (
                (EntityType.TOPICS, self.topic),
                (EntityType.BROKERS, self.broker),
                (EntityType.BROKERS, "" if self.broker_defaults else None),
                (EntityType.BROKER_LOGGERS, self.broker_logger),
                (EntityType.CLIENT_METRICS, self.client_metrics),
                (EntityType.GROUPS, self.group),
            )
            if name is not None
        ]
        general = self.entity_type is not None
        if len(short) + general != 1:
            raise typer.BadParameter(
                "name one entity: by --entity-type with --entity-name or --entity-default, or by "
                "--topic, --broker, --broker-defaults, --broker-logger, --client-metrics or --group"
            )
        if not general and (self.entity_name is not None or self.entity_default):
            raise typer.BadParameter("--entity-name and --entity-default need --entity-type")
        if self.entity_name is not None and self.entity_default:
            raise typer.BadParameter("give either --entity-name or --entity-default")
        found: tuple[EntityType, str | None]
        if short:
            found = short[0]
        else:
            assert self.entity_type is not None
            found = self.entity_type, "" if self.entity_default else self.entity_name
        type, name = found
        if name == "" and type is not EntityType.BROKERS:
            raise typer.BadParameter(
                f"{type.value} have no default entity: name one, or use --entity-type brokers"
            )
        is_node = type in (EntityType.BROKERS, EntityType.BROKER_LOGGERS) and bool(name)
        # As for Kafka's tool: any decimal number.
        if is_node and not (name or "").removeprefix("-").isdecimal():
            raise typer.BadParameter(
                f"the entity name for {type.value} must be a node id, not {name!r:.80}"
            )
        return found


class ConfigReader:
    """Reads the configurations of entities of a running quorum or of a directory."""

    def __init__(self, admin: BlockingAdmin | None, metadata: Metadata | None) -> None:
        """``admin`` is None for a directory, whose ``metadata`` is given."""
        self._admin = admin
        self._metadata = metadata
        self._controller_ids: frozenset[str] | None = None

    @property
    def metadata(self) -> Metadata:
        """The metadata, which is read from the quorum on first use."""
        if self._metadata is None:
            assert self._admin is not None
            self._metadata = self._admin.read_metadata()
        return self._metadata

    def all_of(self, type: EntityType) -> list[Entity]:
        """Return the entities of a type, by name."""
        state = self.metadata
        match type:
            case EntityType.TOPICS:
                names: Iterable[str] = sorted(state.topics)
            case EntityType.BROKERS:
                nodes = {*state.brokers, *state.controllers}
                names = [*map(str, sorted(nodes)), ""]
            case EntityType.BROKER_LOGGERS:
                names = map(str, sorted(state.controllers))
            case _:
                names = sorted(name for kind, name in state.configs if kind == type.resource_type)
        return [Entity(type, name) for name in names]

    def read(
        self, entities: Sequence[Entity], *, describes_all: bool
    ) -> Iterator[tuple[Entity, list[ConfigEntry]]]:
        """Yield the configurations of each entity by name: its own, or all effective ones.

        Raises QuorumRefusedError (UNKNOWN_TOPIC_OR_PARTITION and others), InvalidRequestError for
        effective values that are not in the source.
        """
        for start in range(0, len(entities), _AT_ONCE):
            yield from self._read_some(entities[start : start + _AT_ONCE], describes_all)

    def _read_some(
        self, entities: Sequence[Entity], describes_all: bool
    ) -> Iterator[tuple[Entity, list[ConfigEntry]]]:
        asked = [entity for entity in entities if self._is_described_by_quorum(entity)]
        described = {}
        if asked:
            assert self._admin is not None
            described = self._admin.describe_configs(
                [entity.resource for entity in asked], include_synonyms=True
            ).all()
        for entity in entities:
            if entity.resource in described:
                source = entity.type.dynamic_source(entity.name)
                entries = described[entity.resource].values()
                found = [
                    each
                    for each in entries
                    if describes_all or source is None or each.source is source
                ]
            else:
                found = self._stored(entity, describes_all)
            yield entity, sorted(found, key=lambda each: each.name)

    def _is_described_by_quorum(self, entity: Entity) -> bool:
        if self._admin is None:
            return False
        if not entity.is_node:
            return True
        if self._controller_ids is None:
            controllers = self._admin.describe_cluster().controllers
            self._controller_ids = frozenset(map(str, controllers))
        return entity.name in self._controller_ids

    def _stored(self, entity: Entity, describes_all: bool) -> list[ConfigEntry]:
        """Return the settings of an entity in the metadata."""
        from kraft.admin.configs import ConfigEntry, SourcedEntry
        from kraft.metadata.kafka_json import is_secret_setting

        if entity.type is EntityType.BROKER_LOGGERS:
            where = "a directory does not have them"
            if self._admin is not None:
                where = f"node {entity.name} is no registered controller"
            raise InvalidRequestError(f"only a node itself knows its loggers: {where}")
        if describes_all:
            where = "the directory" if self._admin is None else "the metadata"
            raise InvalidRequestError(
                f"--all: {where} has only the dynamic settings of {entity.type.one} "
                f"{entity.name!r}; its other values come from the properties file of a node"
            )
        source = entity.type.dynamic_source(entity.name)
        assert source is not None
        if entity.type is EntityType.TOPICS:
            # Raises UnknownTopicNameError.
            _ = self.metadata.topics[entity.name]
        entries = []
        for name, value in self.metadata.configs.get(entity.resource, {}).items():
            is_secret = is_secret_setting(name)
            shown = None if is_secret else value
            synonyms = (SourcedEntry(name, shown, source),)
            entries.append(ConfigEntry(name, shown, source, is_secret, synonyms=synonyms))
        return entries
