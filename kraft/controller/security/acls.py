"""CreateAcls, DeleteAcls and DescribeAcls.

Decides which ACLs are accepted and which ACLs a filter matches. Creating an ACL that exists
succeeds without a record. A creation takes time in proportion to its ACLs. A filter reads the ACLs
of its name or its principal; without either it reads all ACLs.

Sources: Kafka's ``AclControlManager``, ``AclApis``, ``ResourcePatternFilter``,
``AccessControlEntryFilter`` (4.3.1); KIP-11, KIP-290. Hosts as in 4.4: ``acl_hosts``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import NamedTuple

from kraft import records
from kraft.controller.arguments import is_integer, is_text
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
    in_chunks,
)
from kraft.controller.security.acl_hosts import host_refusal
from kraft.controller.state import ClusterMetadata, ReadableMetadata
from kraft.errors import (
    InvalidRequestError,
    KraftError,
    PolicyViolationError,
    SecurityDisabledError,
)
from kraft.image.security import (
    AccessControl,
    AclOperation,
    Acls,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.records import Record, Uuid

#: The name of the one resource of the type CLUSTER (Resource.CLUSTER_NAME).
CLUSTER_RESOURCE = "kafka-cluster"
#: As the name of a literal pattern: every resource of the type (wildcard).
WILDCARD_RESOURCE = "*"

# ACLs that one chunk of a transaction checks or writes.
_ACLS_PER_CHUNK = 500

# Plain integers, for loops over every ACL. ANY is 1 in all four, and 0 is UNKNOWN.
_ANY = 1
_MATCH = int(PatternType.MATCH)

# Indices in an `AccessControl`, and so in an `AclFilter`.
_NAME = AccessControl._fields.index("resource_name")
_PATTERN_TYPE = AccessControl._fields.index("pattern_type")
_PRINCIPAL = AccessControl._fields.index("principal")

# Longer names are not looked up by each of their prefixes.
_MAX_PREFIXES = 1000

# Valid values of an ACL.
_RESOURCE_TYPES = range(ResourceType.TOPIC, max(ResourceType) + 1)
_PATTERN_TYPES = range(PatternType.LITERAL, max(PatternType) + 1)
_OPERATIONS = range(AclOperation.ALL, max(AclOperation) + 1)
_PERMISSION_TYPES = range(PermissionType.DENY, max(PermissionType) + 1)


class AclFilter(NamedTuple):
    """A filter of ACLs: None and ANY match everything. See `PatternType` for names."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = PermissionType.ANY

    def matches(self, acl: AccessControl) -> bool:
        """Return whether the filter matches ``acl``."""
        return (
            (self.resource_type == _ANY or self.resource_type == acl.resource_type)
            and self._matches_pattern(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and (self.operation == _ANY or self.operation == acl.operation)
            and (self.permission_type == _ANY or self.permission_type == acl.permission_type)
        )

    def _matches_pattern(self, acl: AccessControl) -> bool:
        name, wanted = self.resource_name, self.pattern_type
        if wanted == _MATCH and name is not None:
            if acl.pattern_type == PatternType.PREFIXED:
                return name.startswith(acl.resource_name)
            return acl.resource_name == name or acl.resource_name == WILDCARD_RESOURCE
        return (wanted in (_ANY, _MATCH) or wanted == acl.pattern_type) and (
            name is None or name == acl.resource_name
        )


def create_acls(
    cluster: ClusterMetadata,
    acls: Sequence[AccessControl],
    *,
    random_uuid: Callable[[], Uuid],
    has_authorizer: bool = True,
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[list[KraftError | None]]:
    """Create ACLs; the response lists for each, in order, its error or None.

    ``random_uuid`` makes the id of each new ACL. ``has_authorizer``: ``authorizer.class.name`` is
    set. More than ``at_once`` ACLs are decided in chunks. Raises SecurityDisabledError without an
    authorizer, PolicyViolationError for more than 10,000 new ACLs at once.
    """
    is_large = len(acls) > at_once
    if is_large:
        yield NO_RECORDS
    _check_authorizer(has_authorizer)
    creation = _AclCreation(cluster, random_uuid)
    for number, acl in enumerate(acls, 1):
        creation.add(acl)
        if number % _ACLS_PER_CHUNK == 0:
            yield NO_RECORDS
        if not is_large and len(creation.created) > MAX_RECORDS_PER_BATCH:
            raise PolicyViolationError(f"a request creates at most {MAX_RECORDS_PER_BATCH} ACLs")
    last = yield from _written(creation.written(), cluster, is_large)
    return Decision(last, creation.response, is_atomic=True)


def delete_acls(
    cluster: ClusterMetadata,
    filters: Sequence[AclFilter],
    *,
    has_authorizer: bool = True,
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[list[list[AccessControl] | KraftError]]:
    """Delete the ACLs that filters match; the response lists them for each filter, in order.

    An ACL that several filters match is in the result of each. A filter may match any number of
    ACLs, so a cluster with more than ``at_once`` ACLs is searched in chunks. ``has_authorizer`` and
    SecurityDisabledError as in `create_acls`. Raises InvalidRequestError for more than 10,000
    deletions at once, because a partial deletion could pass for a complete one.
    """
    is_large = len(cluster.state.acls) > at_once
    if is_large:
        yield NO_RECORDS
    _check_authorizer(has_authorizer)
    deletion = _AclDeletion(cluster.state.acls)
    cost = 0
    for wanted in filters:
        cost += 1
        for found_count in deletion.find(wanted):
            cost += found_count
            if cost >= _ACLS_PER_CHUNK:
                yield NO_RECORDS
                cost = 0
            if not is_large and len(deletion.removed) > MAX_RECORDS_PER_BATCH:
                raise InvalidRequestError(
                    f"a request deletes at most {MAX_RECORDS_PER_BATCH} ACLs, and its filters "
                    "match more: use narrower ones"
                )
    last = yield from _written(deletion.written(), cluster, is_large)
    return Decision(last, deletion.response, is_atomic=True)


def describe_acls(
    cluster: ReadableMetadata, wanted: AclFilter, *, has_authorizer: bool = True
) -> list[AccessControl]:
    """Return the ACLs that a filter matches, in order. Raises SecurityDisabledError and
    InvalidRequestError.
    """
    _check_authorizer(has_authorizer)
    refusal = _filter_refusal(wanted)
    if refusal is not None:
        raise refusal
    acls = cluster.state.acls
    return sorted(acls[id] for id in _matching_ids(acls, wanted))


class _AclCreation:
    """The ACLs to create, and the response for all entries of the request."""

    def __init__(self, cluster: ClusterMetadata, random_uuid: Callable[[], Uuid]) -> None:
        self.created: dict[AccessControl, Uuid] = {}
        self.response: list[KraftError | None] = []
        self._present = cluster.state.acls
        self._metadata_version = cluster.state.metadata_version
        self._random_uuid = random_uuid
        self._drawn: set[Uuid] = set()

    def add(self, acl: AccessControl) -> None:
        refusal = _refusal(acl) or host_refusal(acl.host, self._metadata_version)
        self.response.append(refusal)
        if refusal is None and acl not in self.created and not self._present.ids_of(acl):
            self.created[acl] = self._new_id()

    def _new_id(self) -> Uuid:
        while (id := self._random_uuid()) in self._present or id in self._drawn:
            pass
        self._drawn.add(id)
        return id

    def written(self) -> Iterator[Record]:
        for acl, id in self.created.items():
            yield records.AccessControlEntry(id, *acl)


class _AclDeletion:
    """The ACLs to delete, and the matches of each filter."""

    def __init__(self, present: Acls) -> None:
        self.removed: set[Uuid] = set()
        self.response: list[list[AccessControl] | KraftError] = []
        self._present = present

    def find(self, wanted: AclFilter) -> Iterator[int]:
        """Find the matches of a filter; yields their number after each chunk and at the end."""
        refusal = _filter_refusal(wanted)
        if refusal is not None:
            self.response.append(refusal)
            yield 0
            return
        matching: list[AccessControl] = []
        for id in _matching_ids(self._present, wanted):
            matching.append(self._present[id])
            self.removed.add(id)
            if len(matching) % _ACLS_PER_CHUNK == 0:
                yield _ACLS_PER_CHUNK
        matching.sort()
        self.response.append(matching)
        yield len(matching) % _ACLS_PER_CHUNK

    def written(self) -> Iterator[Record]:
        for id in sorted(self.removed):
            yield records.RemoveAccessControlEntry(id)


def _written(
    written: Iterator[Record], cluster: ClusterMetadata, is_large: bool
) -> Generator[Records, None, Records]:
    level = cluster.state.metadata_version
    if is_large:
        return (yield from in_chunks(written, _ACLS_PER_CHUNK, level))
    return Records.of(written, level)


def _check_authorizer(has_authorizer: bool) -> None:
    if not has_authorizer:
        raise SecurityDisabledError("no authorizer is configured (authorizer.class.name)")


def _refusal(acl: AccessControl) -> KraftError | None:
    """Return the error of an invalid ACL, or None."""
    if not _is_in(acl.resource_type, _RESOURCE_TYPES):
        return _invalid("resource type", ResourceType, acl.resource_type)
    if not _is_in(acl.pattern_type, _PATTERN_TYPES):
        return _invalid("pattern type", PatternType, acl.pattern_type)
    if not _is_in(acl.operation, _OPERATIONS):
        return _invalid("operation", AclOperation, acl.operation)
    if not _is_in(acl.permission_type, _PERMISSION_TYPES):
        return _invalid("permission type", PermissionType, acl.permission_type)
    for what in ("resource_name", "principal", "host"):
        if not is_text(getattr(acl, what)):
            return InvalidRequestError(f"the {what} {getattr(acl, what)!r:.80} is invalid")
    if not acl.resource_name:
        return InvalidRequestError("the name of the resource is empty")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_RESOURCE:
        return InvalidRequestError(
            f"the only resource of the type CLUSTER is {CLUSTER_RESOURCE}, not "
            f"{acl.resource_name!r:.80}"
        )
    if ":" not in acl.principal:
        return InvalidRequestError(
            f"the principal {acl.principal!r:.80} has no colon between type and name"
        )
    return None


def _is_in(number: object, known: range) -> bool:
    return is_integer(number, known.start, known.stop - 1)


def _invalid(
    what: str, kinds: type[ResourceType | PatternType | AclOperation | PermissionType], number: int
) -> InvalidRequestError:
    known = is_integer(number, 0, max(kinds))
    name = kinds(number).name if known else repr(number)[:80]
    return InvalidRequestError(f"an ACL cannot have the {what} {name}")


def _filter_refusal(wanted: AclFilter) -> KraftError | None:
    """Return the error of an invalid filter, or None."""
    for what, number, known in (
        ("resource type", wanted.resource_type, _RESOURCE_TYPES),
        ("pattern type", wanted.pattern_type, _PATTERN_TYPES),
        ("operation", wanted.operation, _OPERATIONS),
        ("permission type", wanted.permission_type, _PERMISSION_TYPES),
    ):
        if not is_integer(number, _ANY, known.stop - 1):
            return InvalidRequestError(f"the filter has the unknown {what} {number!r:.80}")
    return None


def _matching_ids(acls: Acls, wanted: AclFilter) -> Iterator[Uuid]:
    """Yield each matching id once. Scans the smallest index that the filter's name and principal
    allow.
    """
    names = _names(wanted)
    candidates: list[Collection[Uuid]] | None = None
    if names is not None:
        candidates = [acls.ids_with_name(name) for name in names]
    if wanted.principal is not None:
        of_principal = acls.ids_with_principal(wanted.principal)
        if candidates is None or len(of_principal) < sum(map(len, candidates)):
            candidates = [of_principal]
    if candidates is None:
        candidates = [acls.ids_where(_conditions(wanted))]
    for ids in candidates:
        for id in ids:
            if wanted.matches(acls[id]):
                yield id


def _conditions(wanted: AclFilter) -> Iterator[tuple[int, object]]:
    """Yield (index, value) of the fields that a match must have, without name and principal."""
    for place, value in enumerate(wanted):
        if place in (_NAME, _PRINCIPAL) or value is None or value == _ANY:
            continue
        if place != _PATTERN_TYPE or value != _MATCH:
            yield place, value


def _names(wanted: AclFilter) -> Collection[str] | None:
    """Return the names that a match may have, each once; None if any name may match."""
    name = wanted.resource_name
    if name is None:
        return None
    if wanted.pattern_type != _MATCH:
        return (name,)
    if len(name) > _MAX_PREFIXES:
        return None
    prefixes = (name[:length] for length in range(1, len(name) + 1))
    return dict.fromkeys((*prefixes, WILDCARD_RESOURCE))
