"""``kraft acls``: list, add and remove ACLs, as ``kafka-acls`` does.

Options and text are those of Kafka's ``AclCommand`` (4.3.1); resources and ACLs are sorted.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.acl_options import (
    AclEntries,
    AclEntry,
    AclResource,
    AclResources,
    PatternOption,
    acls_of,
    filter_of,
    read_principal,
)
from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.controller.security.acls import AclFilter
    from kraft.image.security import AccessControl

app = typer.Typer(
    help="List, add and remove ACLs.", no_args_is_help=True, add_completion=False, epilog=EPILOG
)

#: ACLs of one request.
_AT_ONCE = 1000


@app.callback()
def _acls() -> None:
    """List, add and remove ACLs."""


@app.command("list", epilog=EPILOG)
@takes_groups
def list_acls(
    resources: AclResources,
    source: SourceOptions,
    principal: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="NAME",
            help="Only the ACLs of this principal, as User:alice. Repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the ACLs of the named resources, by default of all.

    [bold]Examples[/bold]

      kraft acls list --bootstrap-controller localhost:9093

      kraft acls list --topic orders --resource-pattern-type match --bootstrap-controller localhost:9093

      kraft acls list --principal User:alice --from /var/lib/kafka/metadata
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    principals = [read_principal(each) for each in principal or ()]
    filters = [filter_of(resource) for resource in resources.read()]
    found = _read(filters, source)
    if principals:
        found = {acl for acl in found if acl.principal in principals}
    if as_json:
        Output(as_json=True).document([_document(acl) for acl in sorted(found)])
        return
    if not principals:
        _show_current(found)
    for each in principals:
        print(f"ACLs for principal `{each}`")
        _show_current(acl for acl in found if acl.principal == each)


@app.command(epilog=EPILOG)
@takes_groups
def add(
    resources: AclResources,
    entries: AclEntries,
    quorum: QuorumOptions,
    as_json: JsonOption = False,
) -> None:
    """Add ACLs: one for each combination of resource, principal, host and operation.

    An ACL that exists is accepted, and named. A denial wins over every permission.

    [bold]Examples[/bold]

      kraft acls add --allow-principal User:alice --operation Read --topic orders --bootstrap-controller localhost:9093

      kraft acls add --allow-principal User:app --consumer --topic orders- --group app --resource-pattern-type prefixed --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    pattern = resources.resource_pattern_type
    if pattern in (PatternOption.ANY, PatternOption.MATCH):
        raise typer.BadParameter(
            f"--resource-pattern-type {pattern.value} is for list and remove; an ACL is literal or "
            "prefixed"
        )
    found = entries.by_resource(resources)
    if not all(found.values()):
        raise typer.BadParameter("give --allow-principal or --deny-principal")
    with quorum.open() as admin:
        present = {acl for each in found for acl in admin.describe_acls(filter_of(each))}
        wanted = acls_of(found)
        added = [acl for acl in wanted if acl not in present]
        for acls in _in_requests(added):
            admin.create_acls(acls).all()
    existing = [acl for acl in wanted if acl in present]
    if as_json:
        document = {
            "added": list(map(_document, added)),
            "existing": list(map(_document, existing)),
        }
        Output(as_json=True).document(document)
        return
    for acl in existing:
        entry = _lines([AclEntry(*acl[3:])]).strip()
        resource = _resource_text(AclResource(*acl[:3]))
        print(f"Acl (pattern={resource}, entry={entry}) already exists.")
    for each in found:
        new = [AclEntry(*acl[3:]) for acl in added if acl[:3] == each]
        if new:
            print(f"Adding ACLs for resource `{_resource_text(each)}`: \n {_lines(new)} \n")


@app.command(epilog=EPILOG)
@takes_groups
def remove(
    resources: AclResources,
    entries: AclEntries,
    quorum: QuorumOptions,
    force: Annotated[bool, typer.Option("--force", help="Remove without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the given ACLs; without a principal, all ACLs of the named resources.

    Asks before each resource, unless --force is given.

    [bold]Examples[/bold]

      kraft acls remove --allow-principal User:alice --operation Read --topic orders --force --bootstrap-controller localhost:9093

      kraft acls remove --topic orders --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    filters: list[AclFilter] = []
    for resource, wanted in entries.by_resource(resources).items():
        if force or _is_confirmed(resource, wanted):
            filters += [filter_of(resource, entry) for entry in wanted] or [filter_of(resource)]
    removed: set[AccessControl] = set()
    with quorum.open() as admin:
        for some in _in_requests(filters):
            for deleted in admin.delete_acls(some).all().values():
                removed |= deleted.all().keys()
    output = Output(as_json=as_json)
    if as_json:
        output.document({"removed": [_document(acl) for acl in sorted(removed)]})
    elif filters:
        output.note(f"removed {len(removed)} ACL{'' if len(removed) == 1 else 's'}")


def _read(filters: Sequence[AclFilter], source: SourceOptions) -> set[AccessControl]:
    """Return the ACLs that match a filter, by default all."""
    from kraft.controller.security.acls import AclFilter

    filters = filters or [AclFilter()]
    quorum = source.quorum()
    if quorum is None:
        acls = set(source.read_directory().acls.values())
        return {acl for acl in acls if any(each.matches(acl) for each in filters)}
    with quorum.open() as admin:
        return {acl for each in filters for acl in admin.describe_acls(each)}


def _in_requests(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


def _is_confirmed(resource: AclResource, entries: Sequence[AclEntry]) -> bool:
    """Ask on the terminal, in the words of Kafka's tool."""
    where = f"resource filter `{_resource_text(resource)}`? (y/n)"
    if entries:
        print(f"Are you sure you want to remove ACLs: \n {_lines(entries)} \n from {where}")
    else:
        print(f"Are you sure you want to delete all ACLs for {where}")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() == "y"


# -- output


def _show_current(acls: Iterable[AccessControl]) -> None:
    by_resource: Mapping[AclResource, list[AclEntry]] = defaultdict(list)
    for acl in sorted(acls):
        by_resource[AclResource(*acl[:3])].append(AclEntry(*acl[3:]))
    for resource, entries in by_resource.items():
        text = _resource_text(resource)
        print(f"Current ACLs for resource `{text}`: \n {_lines(entries)} \n")


def _resource_text(resource: AclResource) -> str:
    from kraft.image.security import PatternType, ResourceType

    return (
        f"ResourcePattern(resourceType={_name(ResourceType, resource.type)}, name={resource.name}, "
        f"patternType={_name(PatternType, resource.pattern_type)})"
    )


def _lines(entries: Iterable[AclEntry]) -> str:
    """Return the entries as Kafka prints them, one a line."""
    from kraft.image.security import AclOperation, PermissionType

    return "\n".join(
        f"\t(principal={each.principal}, host={each.host}, "
        f"operation={_name(AclOperation, each.operation)}, "
        f"permissionType={_name(PermissionType, each.permission_type)})"
        for each in entries
    )


def _name(kind: Any, number: int) -> str:
    """Return the name of a number; UNKNOWN for one of a newer Kafka."""
    known = {int(each): str(each.name) for each in kind}
    return known.get(number, "UNKNOWN")


def _document(acl: AccessControl) -> dict[str, Any]:
    from kraft.image.security import AclOperation, PatternType, PermissionType, ResourceType

    return {
        "resourceType": _name(ResourceType, acl.resource_type),
        "resourceName": acl.resource_name,
        "patternType": _name(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _name(AclOperation, acl.operation),
        "permissionType": _name(PermissionType, acl.permission_type),
    }
