"""The ACLs of a cluster, indexed for checks.

A check of one resource reads the ACLs of two principals, its own and ``User:*``. Per principal and
type of resource, literal names are in one dictionary and prefixes in one per length: a check costs
one look-up for each length of prefix (at most the length of the name), however many ACLs exist.
``StandardAuthorizer`` instead scans all ACLs on the name, of all principals (KAFKA-20667).

The ACLs of one principal on one pattern are two sets of operations, allowed and denied, per host.
The allowed set includes the implied operations: DESCRIBE for READ, WRITE, DELETE and ALTER, and
DESCRIBE_CONFIGS for ALTER_CONFIGS. In both sets ALL stands for every operation.

Invariant: an ACL that was added twice counts until it was removed twice. Kafka before 4.1 could
write the same ACL under two ids.

Sources: Kafka's ``StandardAuthorizerData``, ``StandardAcl`` (4.3.1); KIP-11, KIP-290.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from kraft.image.security import AccessControl, AclOperation, PatternType, PermissionType
from kraft.security.hosts import CidrNetwork, parse_address, parse_cidr

#: Matches every host; as a literal resource name, every name.
WILDCARD = "*"
#: Matches every principal.
WILDCARD_PRINCIPAL = "User:*"

# A set of operations has bit n for operation n. Denied operations are 16 bits higher.
DENIED_SHIFT = 16
_ALL_OPERATIONS = (1 << DENIED_SHIFT) - 1
_DESCRIBE = 1 << AclOperation.DESCRIBE
_IMPLIED: dict[int, int] = {
    AclOperation.READ: _DESCRIBE,
    AclOperation.WRITE: _DESCRIBE,
    AclOperation.DELETE: _DESCRIBE,
    AclOperation.ALTER: _DESCRIBE,
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
}
_KNOWN_OPERATIONS = frozenset(map(int, AclOperation))


def operations_of(acl: AccessControl) -> int:
    """Return the operations that an ACL decides: allowed in the lower 16 bits, denied above.

    Every permission but ALLOW denies, and an operation of a newer Kafka is UNKNOWN, as in Kafka.
    """
    return _operations(acl.operation, acl.permission_type)


# Both are an int8: the cache has a few hundred entries, and saves a third of the time of a load.
@cache
def _operations(operation: int, permission: int) -> int:
    is_allow = permission == PermissionType.ALLOW
    if operation == AclOperation.ALL:
        decided = _ALL_OPERATIONS
    elif operation not in _KNOWN_OPERATIONS:
        decided = 1 << AclOperation.UNKNOWN
    else:
        decided = 1 << operation
        if is_allow:
            decided |= _IMPLIED.get(operation, 0)
    return decided if is_allow else decided << DENIED_SHIFT


class _Grants:
    """The ACLs of one principal on one pattern."""

    __slots__ = ("acls", "by_host", "networks")

    def __init__(self) -> None:
        # How often each ACL was added.
        self.acls: dict[AccessControl, int] = {}
        self.by_host: dict[str, int] = {}
        self.networks: dict[str, CidrNetwork] = {}

    def add(self, acl: AccessControl) -> None:
        self.acls[acl] = self.acls.get(acl, 0) + 1
        self.by_host[acl.host] = self.by_host.get(acl.host, 0) | operations_of(acl)
        network = parse_cidr(acl.host)
        if network is not None:
            self.networks[acl.host] = network

    def remove(self, acl: AccessControl) -> None:
        if self.acls[acl] > 1:
            self.acls[acl] -= 1
            return
        del self.acls[acl]
        decided = 0
        for other in self.acls:
            if other.host == acl.host:
                decided |= operations_of(other)
        if decided:
            self.by_host[acl.host] = decided
        else:
            del self.by_host[acl.host]
            self.networks.pop(acl.host, None)

    def decided(self, host: str, is_cidr_supported: bool) -> int:
        found = self.by_host.get(WILDCARD, 0) | self.by_host.get(host, 0)
        if self.networks and is_cidr_supported:
            address = parse_address(host)
            for text, network in self.networks.items():
                if network.contains(address):
                    found |= self.by_host[text]
        return found


class _Patterns:
    """The patterns of one principal, or of all, for one type of resource.

    A pattern that is not LITERAL matches as a prefix, whatever its type, as in Kafka.
    """

    __slots__ = ("literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, _Grants] = {}
        #: By length of the prefix.
        self.prefixes: dict[int, dict[str, _Grants]] = {}

    def of(self, acl: AccessControl) -> _Grants:
        """Return the grants of an ACL's pattern; create them if they do not exist."""
        name = acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            names = self.literals
        else:
            names = self.prefixes.setdefault(len(name), {})
        grants = names.get(name)
        if grants is None:
            grants = names[name] = _Grants()
        return grants

    def drop(self, acl: AccessControl) -> None:
        """Remove the pattern of an ACL."""
        name = acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            del self.literals[name]
            return
        names = self.prefixes[len(name)]
        del names[name]
        if not names:
            del self.prefixes[len(name)]

    def matching(self, name: str) -> list[_Grants]:
        """Return the grants of every pattern that matches a resource."""
        found = []
        grants = self.literals.get(name)
        if grants is not None:
            found.append(grants)
        # Kafka's scan does not apply `*` to longer names that begin with it.
        if name[:1] != WILDCARD:
            grants = self.literals.get(WILDCARD)
            if grants is not None:
                found.append(grants)
        for length, names in self.prefixes.items():
            # A shorter name equals no key here, as all keys have this length.
            grants = names.get(name[:length])
            if grants is not None:
                found.append(grants)
        return found


class AclIndex:
    """The ACLs of a cluster by type of resource and principal.

    ``is_cidr_supported``: CIDR patterns match hosts, as from metadata.version 4.4-IV1 on. Before,
    they match nothing.
    """

    def __init__(self) -> None:
        self.is_cidr_supported = False
        # The key of the inner dictionary is the ACL's principal as text.
        self._principals: dict[int, dict[str, _Patterns]] = {}
        # The patterns of all principals, which say whether a resource has any ACL.
        self._resources: dict[int, _Patterns] = {}

    def add(self, acl: AccessControl) -> None:
        principals = self._principals.setdefault(acl.resource_type, {})
        patterns = principals.get(acl.principal)
        if patterns is None:
            patterns = principals[acl.principal] = _Patterns()
        patterns.of(acl).add(acl)
        resources = self._resources.get(acl.resource_type)
        if resources is None:
            resources = self._resources[acl.resource_type] = _Patterns()
        counts = resources.of(acl).acls
        counts[acl] = counts.get(acl, 0) + 1

    def remove(self, acl: AccessControl) -> None:
        """Remove an ACL that was added."""
        patterns = self._principals[acl.resource_type][acl.principal]
        grants = patterns.of(acl)
        grants.remove(acl)
        if not grants.acls:
            patterns.drop(acl)
            if not patterns.literals and not patterns.prefixes:
                del self._principals[acl.resource_type][acl.principal]
        resources = self._resources[acl.resource_type]
        counts = resources.of(acl).acls
        if counts[acl] > 1:
            counts[acl] -= 1
            return
        del counts[acl]
        if not counts:
            resources.drop(acl)

    def decided(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """Return the operations that ACLs decide for a principal at a host on a resource.

        Allowed operations are in the lower 16 bits, denied ones above; an operation may be both.
        """
        principals = self._principals.get(resource_type)
        if principals is None:
            return 0
        found = 0
        for key in (principal, WILDCARD_PRINCIPAL):
            patterns = principals.get(key)
            if patterns is not None:
                for grants in patterns.matching(name):
                    found |= grants.decided(host, self.is_cidr_supported)
        return found

    def has_acls(self, resource_type: int, name: str) -> bool:
        """Return whether any ACL, of any principal, matches a resource."""
        resources = self._resources.get(resource_type)
        return resources is not None and bool(resources.matching(name))

    def acls_on(
        self, principal: str, host: str, resource_type: int, name: str
    ) -> Iterator[AccessControl]:
        """Return the ACLs of the principal and host that match a resource, of any operation."""
        principals = self._principals.get(resource_type, {})
        for key in dict.fromkeys((principal, WILDCARD_PRINCIPAL)):
            patterns = principals.get(key)
            for grants in patterns.matching(name) if patterns else ():
                for acl in grants.acls:
                    if self._is_host_of(acl, host):
                        yield acl

    def acls_of(self, principal: str, host: str, resource_type: int) -> Iterator[AccessControl]:
        """Return the ACLs of the principal and host on any resource of a type."""
        principals = self._principals.get(resource_type, {})
        for key in dict.fromkeys((principal, WILDCARD_PRINCIPAL)):
            patterns = principals.get(key)
            if patterns is None:
                continue
            for names in (patterns.literals, *patterns.prefixes.values()):
                for grants in names.values():
                    for acl in grants.acls:
                        if self._is_host_of(acl, host):
                            yield acl

    def _is_host_of(self, acl: AccessControl, host: str) -> bool:
        if acl.host in (WILDCARD, host):
            return True
        network = parse_cidr(acl.host) if self.is_cidr_supported else None
        return network is not None and network.contains(parse_address(host))
