"""The options of ``kraft acls``, and the ACLs and filters that they stand for.

The rules are those of Kafka's ``AclCommand`` and ``AclEntry.supportedOperations`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from kraft.controller.security.acls import AclFilter
    from kraft.image.security import AccessControl, AclOperation, PermissionType


#: What --producer and --consumer allow, by resource type.
_OF_PRODUCERS = {
    "TOPIC": ("WRITE", "DESCRIBE", "CREATE"),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
}
_OF_CONSUMERS = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
#: The operations of a resource type, beside All.
_SUPPORTED = {
    "TOPIC": (
        *("READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER"),
        *("DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    ),
    "GROUP": ("READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "CLUSTER": (
        *("CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
        *("IDEMPOTENT_WRITE", "ALTER", "DESCRIBE"),
    ),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE", "TWO_PHASE_COMMIT"),
    "DELEGATION_TOKEN": ("DESCRIBE",),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
}


class PatternOption(StrEnum):
    """The values of --resource-pattern-type."""

    ANY = "any"
    MATCH = "match"
    LITERAL = "literal"
    PREFIXED = "prefixed"


def _names(flag: str, help: str) -> object:
    return typer.Option(flag, metavar="NAME", help=help, show_default=False)


TopicsOption = Annotated[list[str] | None, _names("--topic", "A topic; * for all. Repeatable.")]
GroupsOption = Annotated[list[str] | None, _names("--group", "A group; * for all. Repeatable.")]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
TransactionalIdsOption = Annotated[
    list[str] | None, _names("--transactional-id", "A transactional id; * for all. Repeatable.")
]
TokensOption = Annotated[
    list[str] | None, _names("--delegation-token", "A token id; * for all. Repeatable.")
]
UserPrincipalsOption = Annotated[
    list[str] | None,
    _names("--user-principal", "A user as the resource of CreateTokens and DescribeTokens."),
]
PatternTypeOption = Annotated[
    PatternOption,
    typer.Option(
        "--resource-pattern-type",
        help="How names are meant: exactly (literal) or as prefixes (prefixed). For list and "
        "remove also any (both types, exactly this name) and match (all ACLs that affect it).",
    ),
]
AllowPrincipalsOption = Annotated[
    list[str] | None, _names("--allow-principal", "Whom to allow, as User:alice. Repeatable.")
]
DenyPrincipalsOption = Annotated[
    list[str] | None, _names("--deny-principal", "Whom to deny, as User:bob. Repeatable.")
]
AllowHostsOption = Annotated[
    list[str] | None,
    _names("--allow-host", "From which address to allow. Repeatable. Default: any."),
]
DenyHostsOption = Annotated[
    list[str] | None, _names("--deny-host", "From which address to deny. Repeatable. Default: any.")
]
OperationsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="NAME",
        help="Read, Write, Create, Delete, Alter, Describe, ClusterAction, DescribeConfigs, "
        "AlterConfigs, IdempotentWrite, CreateTokens, DescribeTokens, All. Repeatable. "
        "Default: All.",
        show_default=False,
    ),
]
ProducerOption = Annotated[
    bool,
    typer.Option("--producer", help="Write, Describe and Create on the topics, for a producer."),
]
ConsumerOption = Annotated[
    bool,
    typer.Option(
        "--consumer", help="Read and Describe on the topics, Read on the groups, for a consumer."
    ),
]
IdempotentOption = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: also IdempotentWrite.")
]


class AclResource(NamedTuple):
    """A resource pattern; the numbers are those of `ResourceType` and `PatternType`."""

    type: int
    name: str
    pattern_type: int


class AclEntry(NamedTuple):
    """The part of an ACL that is not its resource."""

    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclResources:
    """The options that name resources."""

    topic: TopicsOption = None
    group: GroupsOption = None
    cluster: ClusterOption = False
    transactional_id: TransactionalIdsOption = None
    delegation_token: TokensOption = None
    user_principal: UserPrincipalsOption = None
    resource_pattern_type: PatternTypeOption = PatternOption.LITERAL

    def read(self) -> list[AclResource]:
        """Return the named resources, sorted."""
        from kraft.image.security import PatternType, ResourceType
        from kraft.security.controller_apis import CLUSTER_NAME

        pattern_type = PatternType[self.resource_pattern_type.name]
        found = [
            AclResource(type, name.strip(), pattern_type)
            for type, names in (
                (ResourceType.TOPIC, self.topic),
                (ResourceType.GROUP, self.group),
                (ResourceType.TRANSACTIONAL_ID, self.transactional_id),
                (ResourceType.DELEGATION_TOKEN, self.delegation_token),
                (ResourceType.USER, self.user_principal),
            )
            for name in names or ()
        ]
        if self.cluster and pattern_type == PatternType.LITERAL:
            found.append(AclResource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
        return sorted(set(found))


@dataclass(frozen=True, slots=True)
class AclEntries:
    """The options that say whom to allow and deny what."""

    allow_principal: AllowPrincipalsOption = None
    deny_principal: DenyPrincipalsOption = None
    allow_host: AllowHostsOption = None
    deny_host: DenyHostsOption = None
    operation: OperationsOption = None
    producer: ProducerOption = False
    consumer: ConsumerOption = False
    idempotent: IdempotentOption = False

    def by_resource(self, resources: AclResources) -> dict[AclResource, list[AclEntry]]:
        """Return the entries of each resource, sorted; none without a principal.

        Raises a usage error.
        """
        from kraft.image.security import AclOperation as Op
        from kraft.image.security import PatternType, ResourceType
        from kraft.security.controller_apis import CLUSTER_NAME

        self._check(resources)
        named = resources.read()
        if not named:
            raise typer.BadParameter(
                "name a resource: --topic, --group, --cluster, --transactional-id, "
                "--delegation-token or --user-principal"
            )
        if not self.producer and not self.consumer:
            operations = [read_operation(name) for name in self.operation or ()] or [Op.ALL]
            _check_operations(named, operations)
            return {resource: self._entries(operations) for resource in named}
        found = {}
        for resource in named:
            kind = ResourceType(resource.type).name
            names: tuple[str, ...] = ()
            if self.producer:
                names += _OF_PRODUCERS.get(kind, ())
            if self.consumer:
                names += _OF_CONSUMERS.get(kind, ())
            if names:
                found[resource] = self._entries([Op[name] for name in names])
        if self.idempotent:
            cluster = AclResource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
            found[cluster] = self._entries([Op.IDEMPOTENT_WRITE])
        return found

    def _check(self, resources: AclResources) -> None:
        given = self.producer or self.consumer
        if given and (self.operation or self.deny_principal or self.deny_host):
            raise typer.BadParameter(
                "--producer and --consumer stand for operations that are allowed: give no "
                "--operation, --deny-principal or --deny-host"
            )
        if self.producer and not resources.topic:
            raise typer.BadParameter("--producer needs --topic")
        if self.idempotent and not self.producer:
            raise typer.BadParameter("--idempotent needs --producer")
        if self.consumer:
            if not resources.topic or not resources.group:
                raise typer.BadParameter("--consumer needs --topic and --group")
            if not self.producer and (resources.cluster or resources.transactional_id):
                raise typer.BadParameter("--consumer takes no --cluster and no --transactional-id")

    def _entries(self, operations: Iterable[AclOperation]) -> list[AclEntry]:
        from kraft.image.security import PermissionType

        operations = list(operations)
        return sorted(
            {
                *_combined(
                    *(self.allow_principal, self.allow_host, operations, PermissionType.ALLOW)
                ),
                *_combined(*(self.deny_principal, self.deny_host, operations, PermissionType.DENY)),
            }
        )


def read_operation(text: str) -> AclOperation:
    """Return the operation named ``Read``, ``DescribeConfigs`` or ``DESCRIBE_CONFIGS``.

    Raises a usage error.
    """
    from kraft.image.security import AclOperation

    wanted = text.strip().replace("_", "").upper()
    for operation in AclOperation:
        if operation.name.replace("_", "") == wanted and operation >= AclOperation.ALL:
            return operation
    names = ", ".join(each.name.lower() for each in AclOperation if each >= AclOperation.ALL)
    raise typer.BadParameter(f"--operation: {text!r:.80} is no operation of ACLs: expected {names}")


def read_principal(text: str) -> str:
    """Return a principal without blanks around it. Raises a usage error."""
    principal = text.strip()
    kind, colon, name = principal.partition(":")
    if not kind or not colon or not name:
        raise typer.BadParameter(
            f"{text!r:.80} is not a principal: expected its type and name, as User:alice"
        )
    return principal


def acls_of(found: Mapping[AclResource, Sequence[AclEntry]]) -> list[AccessControl]:
    """Return the ACLs of the entries."""
    from kraft.image.security import AccessControl

    return [
        AccessControl._make((*resource, *entry))
        for resource, entries in found.items()
        for entry in entries
    ]


def filter_of(resource: AclResource, entry: AclEntry | None = None) -> AclFilter:
    """Return the filter of a resource's ACLs: of all, or of those equal to ``entry``."""
    from kraft.controller.security.acls import AclFilter

    return AclFilter(*resource) if entry is None else AclFilter._make((*resource, *entry))


def _combined(
    principals: Sequence[str] | None,
    hosts: Sequence[str] | None,
    operations: Iterable[AclOperation],
    permission_type: PermissionType,
) -> list[AclEntry]:
    """Return an entry for each principal, host and operation; the default host is any."""
    return [
        AclEntry(read_principal(principal), host.strip(), operation, permission_type)
        for principal in principals or ()
        for host in hosts or ("*",)
        for operation in operations
    ]


def _check_operations(named: Iterable[AclResource], operations: Iterable[AclOperation]) -> None:
    """Raise a usage error for an operation that a resource does not have."""
    from kraft.image.security import AclOperation, ResourceType

    for resource in named:
        kind = ResourceType(resource.type).name
        supported = _SUPPORTED[kind]
        for operation in operations:
            if operation is not AclOperation.ALL and operation.name not in supported:
                raise typer.BadParameter(
                    f"a resource of type {kind} has no operation {operation.name}; it has "
                    f"{', '.join(supported)}, ALL"
                )
