"""The lines of Kafka's audit log ``kafka.authorizer.logger``.

Kafka's default configuration of its log writes them to ``kafka-authorizer.log``: denied operations
at INFO, allowed ones at DEBUG. Checks that only filter a list or describe the allowed operations
are at TRACE. Called by ``kraft.security.authorizer``.

Source: ``StandardAuthorizerData`` (4.3.1).
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import Final

from kraft.image.security import (
    AccessControl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.security.acl_index import WILDCARD
from kraft.security.principals import KafkaPrincipal

AUDIT_LOG: Final = logging.getLogger("kafka.authorizer.logger")
#: Below DEBUG; Python's own levels have no TRACE.
TRACE: Final = 5

#: The rules of decisions that no single ACL made.
SUPER_USER: Final = "SuperUser"
DEFAULT_ALLOW: Final = "DefaultAllow"
DEFAULT_DENY: Final = "DefaultDeny"

_RESOURCE_NAMES = {
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
}


def level_of(is_allowed: bool, *, log_if_allowed: bool, log_if_denied: bool) -> int:
    """Return the level of a line."""
    if is_allowed:
        return logging.DEBUG if log_if_allowed else TRACE
    return logging.INFO if log_if_denied else TRACE


def line(
    *,
    principal: KafkaPrincipal,
    is_allowed: bool,
    operation: AclOperation,
    host: str,
    resource_type: ResourceType,
    resource_name: str,
    api_name: str,
    reference_count: int,
    rule: str,
) -> str:
    """Return the line of one decision; ``rule`` is one of this module's, or `matching_acl`."""
    type_name = _RESOURCE_NAMES.get(resource_type, resource_type.name.capitalize())
    return (
        f"Principal = {principal} is {'Allowed' if is_allowed else 'Denied'} operation = "
        f"{operation.name} from host = {host} on resource = {type_name}:LITERAL:{resource_name} "
        f"for request = {api_name} with resourceRefCount = {reference_count} "
        f"based on rule {rule}"
    )


def matching_acl(acl: AccessControl) -> str:
    """Return the rule of a decision that one ACL made."""
    return (
        f"MatchingAcl(acl=StandardAcl[resourceType={_name(ResourceType, acl.resource_type)}, "
        f"resourceName={acl.resource_name}, "
        f"patternType={_name(PatternType, acl.pattern_type)}, principal={acl.principal}, "
        f"host={acl.host}, operation={_name(AclOperation, acl.operation)}, "
        f"permissionType={_name(PermissionType, acl.permission_type)}])"
    )


def order_of(acl: AccessControl, resource_name: str) -> tuple[object, ...]:
    """Return the position in which Kafka scans an ACL that matches a resource.

    The longest name comes first and ``*`` last; ACLs on one pattern follow the order of
    ``StandardAcl.compareTo``, which compares texts as UTF-16.
    """
    is_wildcard = acl.resource_name == WILDCARD and resource_name[:1] != WILDCARD
    return (
        is_wildcard,
        -len(acl.resource_name),
        acl.pattern_type,
        acl.operation,
        acl.principal.encode("utf-16-be"),
        acl.host.encode("utf-16-be"),
        acl.permission_type,
    )


def _name(names: type[IntEnum], number: int) -> str:
    return names(number).name if number in names._value2member_map_ else "UNKNOWN"
