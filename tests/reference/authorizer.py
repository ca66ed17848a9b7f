"""The rules of the authorizer, one after the other over a list of all ACLs."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.image.security import AccessControl, AclOperation, PatternType, PermissionType

_IMPLY_DESCRIBE = ("READ", "WRITE", "DELETE", "ALTER")


def is_allowed(
    acls: Iterable[AccessControl],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: int,
    name: str,
    *,
    is_allowed_without_acls: bool = False,
) -> bool:
    """Return whether the ACLs allow an operation; for literal and prefixed patterns, no CIDR."""
    on_resource = [acl for acl in acls if _is_on(acl, resource_type, name)]
    if not on_resource:
        return is_allowed_without_acls
    mine = [
        acl
        for acl in on_resource
        if acl.principal in (principal, "User:*") and acl.host in (host, "*")
    ]
    if any(
        acl.permission_type == PermissionType.DENY
        and acl.operation in (operation, AclOperation.ALL)
        for acl in mine
    ):
        return False
    return any(
        acl.permission_type == PermissionType.ALLOW
        and _allows(AclOperation(acl.operation), operation)
        for acl in mine
    )


def _is_on(acl: AccessControl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    # Kafka does not apply the wildcard to longer names that begin with it.
    is_wildcard = acl.resource_name == "*" and not name.startswith("*")
    return is_wildcard or acl.resource_name == name


def _allows(allowed: AclOperation, asked: AclOperation) -> bool:
    if allowed in (asked, AclOperation.ALL):
        return True
    if asked == AclOperation.DESCRIBE:
        return allowed.name in _IMPLY_DESCRIBE
    return asked == AclOperation.DESCRIBE_CONFIGS and allowed == AclOperation.ALTER_CONFIGS
