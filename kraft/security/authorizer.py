"""The authorizer: may this principal at this host do this to this resource?

Decides as Kafka's ``StandardAuthorizer``, by the ACLs of the image, which it follows by deltas
(`Authorizer.on_metadata_update`). The rules, in this order:

1. A super user may do everything, also before the ACLs are loaded.
2. Before the ACLs are loaded, every other principal gets AuthorizerNotReadyError.
3. A matching DENY decides, whatever else allows the operation.
4. A matching ALLOW decides; READ, WRITE, DELETE and ALTER allow DESCRIBE too, and ALTER_CONFIGS
   allows DESCRIBE_CONFIGS. DENY implies nothing.
5. If no ACL at all, of any principal, matches the resource, ``allow.everyone.if.no.acl.found``
   decides; else the operation is denied.

Kafka's check never ends, or raises, for a resource whose name begins with one of the characters
before ``*`` in ASCII (``!"#$%&'()`` and space) if an ACL's name begins likewise; here the rules
above hold for these names too.

The audit log has Kafka's lines. Called by ``kraft.server`` for each request; reads
``kraft.image``. Sources: ``StandardAuthorizer``, ``StandardAuthorizerData``, ``Authorizer``,
``AclPublisher`` (4.3.1); KIP-801, KIP-290.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kraft.errors import AuthorizerNotReadyError, InvalidRequestError
from kraft.image.security import (
    AccessControl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.records import Uuid
from kraft.records.versions import MetadataVersion
from kraft.security import audit
from kraft.security.acl_index import DENIED_SHIFT, WILDCARD, AclIndex, operations_of
from kraft.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta

# Checks by type of resource first check this name, as in Kafka, so that super users pass.
_ANY_RESOURCE = "hardcode"
# ACLs that are loaded at once: about a millisecond.
_ACLS_PER_SLICE = 100


class AuthorizerSettings(NamedTuple):
    """``super.users`` as ``Type:name``, and ``allow.everyone.if.no.acl.found``."""

    super_users: frozenset[str] = frozenset()
    is_allowed_without_acls: bool = False


class RequestContext(NamedTuple):
    """Who sends a request: principal, host as `hosts.java_host`, and Kafka's name of the API."""

    principal: KafkaPrincipal
    host: str
    api_name: str


class Action(NamedTuple):
    """An operation on a resource that a request needs.

    ``log_if_allowed``: access is granted if allowed, so log it. ``log_if_denied``: the caller asked
    for this resource, so log it; false if the check only filters a list.
    """

    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    reference_count: int = 1
    log_if_allowed: bool = True
    log_if_denied: bool = True


class Authorizer:
    """The ACLs of a cluster and the decisions by them; a publisher of images.

    Audit lines go to ``audit_log``: allowed at DEBUG, denied at INFO, other checks at TRACE.
    ``is_current`` returns whether an image at an offset is recent enough to decide by: the ACLs of
    an old snapshot are not, and Kafka too waits for the high watermark.
    """

    name = "Authorizer"

    def __init__(
        self,
        settings: AuthorizerSettings | None = None,
        audit_log: logging.Logger = audit.AUDIT_LOG,
        is_current: Callable[[int], bool] = lambda offset: True,
    ) -> None:
        self._settings = settings or AuthorizerSettings()
        self._audit_log = audit_log
        self._is_current = is_current
        self._has_current_image = False
        self._acls: dict[Uuid, AccessControl] = {}
        self._index = AclIndex()
        self._loading: _Loading | None = None
        #: Whether the ACLs are loaded.
        self.is_ready = False

    # -- the ACLs

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow a published image; the first current one makes the authorizer ready.

        Many ACLs at once are loaded by `work`, in slices: an ACL takes about 10 us. Until then the
        ACLs before them decide, or, before the first load, only super users pass.
        """
        level = MetadataVersion.from_level(image.state.metadata_version)
        self._index.is_cidr_supported = level.is_cidr_acl_supported
        if not self._has_current_image:
            self._has_current_image = self._is_current(image.offset)
        if delta.is_full:
            self._loading = None
            if len(image.state.acls) > _ACLS_PER_SLICE:
                self._loading = _Loading(image.state.acls)
                return
            self.load(image.state.acls)
        else:
            for id, change in delta.changes.get("acl", {}).items():
                assert isinstance(id, Uuid)
                if self._loading is None:
                    self.set_acl(id, change.after)
                else:
                    self._loading.add(id, change.after)
        if self._loading is None and self._has_current_image:
            self.is_ready = True

    @property
    def has_work(self) -> bool:
        """Whether `work` has ACLs to load."""
        return self._loading is not None

    def work(self) -> None:
        """Load the next slice of the ACLs: about a millisecond."""
        loading = self._loading
        assert loading is not None
        if loading.work():
            return
        loading.index.is_cidr_supported = self._index.is_cidr_supported
        self._acls, self._index = loading.acls, loading.index
        self._loading = None
        self.is_ready = self.is_ready or self._has_current_image

    def load(self, acls: Mapping[Uuid, AccessControl]) -> None:
        """Replace all ACLs at once. Does not make the authorizer ready."""
        loading = _Loading(acls)
        while loading.work():
            pass
        loading.index.is_cidr_supported = self._index.is_cidr_supported
        self._acls, self._index = loading.acls, loading.index

    def set_acl(self, id: Uuid, acl: AccessControl | None) -> None:
        """Add or replace the ACL of an id; None removes it, if it exists."""
        _set_acl(self._acls, self._index, id, acl)

    @property
    def acl_count(self) -> int:
        return len(self._acls)

    # -- decisions

    def check_ready(self, principal: KafkaPrincipal) -> None:
        """Raise AuthorizerNotReadyError before the ACLs are loaded, except for super users."""
        if not self.is_ready and str(principal) not in self._settings.super_users:
            raise AuthorizerNotReadyError("the ACLs are not loaded yet")

    def authorize(self, context: RequestContext, action: Action) -> bool:
        """Return whether the action is allowed, and log it.

        Raises AuthorizerNotReadyError before the ACLs are loaded, except for super users.
        """
        principal = str(context.principal)
        if principal in self._settings.super_users:
            self._audit(context, action, True, lambda: audit.SUPER_USER)
            return True
        if not self.is_ready:
            raise AuthorizerNotReadyError("the ACLs are not loaded yet")
        _, host, _ = context
        operation, resource_type, name, *_ = action
        # No ACL can name a principal whose type contains a colon: its text would be that of another
        # principal.
        key = principal if ":" not in context.principal.type else ""
        decided = self._index.decided(key, host, resource_type, name)
        denied = decided >> DENIED_SHIFT >> operation & 1
        if denied or decided >> operation & 1:
            is_allowed = not denied
            self._audit(context, action, is_allowed, lambda: self._rule(key, context, action))
            return is_allowed
        is_allowed = self._settings.is_allowed_without_acls and not self._index.has_acls(
            resource_type, name
        )
        rule = audit.DEFAULT_ALLOW if is_allowed else audit.DEFAULT_DENY
        self._audit(context, action, is_allowed, lambda: rule)
        return is_allowed

    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether the principal may do this to at least one resource of the type.

        Operations imply no others here, as in Kafka. Raises InvalidRequestError for operations and
        types of filters (ANY, UNKNOWN, and ALL), AuthorizerNotReadyError as `authorize`.
        """
        if operation <= AclOperation.ALL or resource_type <= ResourceType.ANY:
            raise InvalidRequestError(
                f"{operation.name} on {resource_type.name} is a filter, not an operation to check"
            )
        action = Action(operation, resource_type, _ANY_RESOURCE, 0, log_if_denied=False)
        if self.authorize(context, action):
            return True
        allowed, denied = _NamesByPattern(), _NamesByPattern()
        for acl in self._index.acls_of(str(context.principal), context.host, resource_type):
            if acl.operation not in (operation, AclOperation.ALL):
                continue
            if acl.permission_type == PermissionType.DENY:
                denied.add(acl)
            elif acl.permission_type == PermissionType.ALLOW:
                allowed.add(acl)
        if WILDCARD in denied.literals:
            return False
        if WILDCARD in allowed.literals:
            return True
        return any(
            name not in denied.literals and not denied.has_prefix_of(name)
            for name in allowed.literals
        ) or any(not denied.has_prefix_of(name) for name in allowed.prefixes)

    # -- the audit log

    def _audit(
        self, context: RequestContext, action: Action, is_allowed: bool, rule: Callable[[], str]
    ) -> None:
        """Log a decision; ``rule`` is called only if the log has the level."""
        level = audit.level_of(
            is_allowed, log_if_allowed=action.log_if_allowed, log_if_denied=action.log_if_denied
        )
        if not self._audit_log.isEnabledFor(level):
            return
        self._audit_log.log(
            level,
            "%s",
            audit.line(
                principal=context.principal,
                is_allowed=is_allowed,
                operation=action.operation,
                host=context.host,
                resource_type=action.resource_type,
                resource_name=action.resource_name,
                api_name=context.api_name,
                reference_count=action.reference_count,
                rule=rule(),
            ),
        )

    def _rule(self, principal: str, context: RequestContext, action: Action) -> str:
        """Return the text of the ACL that decided: the first DENY in Kafka's order, or the last
        ALLOW.
        """
        bit = 1 << action.operation
        found = sorted(
            (
                acl
                for acl in self._index.acls_on(
                    principal, context.host, action.resource_type, action.resource_name
                )
                if operations_of(acl) & (bit | bit << DENIED_SHIFT)
            ),
            key=lambda acl: audit.order_of(acl, action.resource_name),
        )
        denying = [acl for acl in found if operations_of(acl) >> DENIED_SHIFT & bit]
        return audit.matching_acl(denying[0] if denying else found[-1])


class _Loading:
    """A load of many ACLs, and the changes that arrived meanwhile."""

    def __init__(self, acls: Mapping[Uuid, AccessControl]) -> None:
        self._source = acls
        # Copy the ids: the image's mapping must not be iterated over while its state changes.
        self._ids = list(acls)
        self._later: deque[tuple[Uuid, AccessControl | None]] = deque()
        self._position = 0
        self.acls: dict[Uuid, AccessControl] = {}
        self.index = AclIndex()

    def add(self, id: Uuid, acl: AccessControl | None) -> None:
        """Note a change that is newer than the loaded ACLs; None removes the ACL."""
        self._later.append((id, acl))

    def work(self) -> bool:
        """Load the next slice; return whether another one is left."""
        start, self._position = self._position, self._position + _ACLS_PER_SLICE
        for id in self._ids[start : self._position]:
            _set_acl(self.acls, self.index, id, self._source[id])
        if self._position >= len(self._ids):
            for _ in range(min(len(self._later), _ACLS_PER_SLICE)):
                _set_acl(self.acls, self.index, *self._later.popleft())
        return self._position < len(self._ids) or bool(self._later)


def _set_acl(
    acls: dict[Uuid, AccessControl], index: AclIndex, id: Uuid, acl: AccessControl | None
) -> None:
    old = acls.pop(id, None)
    if old is not None:
        index.remove(old)
    if acl is not None:
        acls[id] = acl
        index.add(acl)


class _NamesByPattern:
    """The names of literal patterns, and those of prefixes."""

    def __init__(self) -> None:
        self.literals: set[str] = set()
        self.prefixes: set[str] = set()

    def add(self, acl: AccessControl) -> None:
        if acl.pattern_type == PatternType.LITERAL:
            self.literals.add(acl.resource_name)
        elif acl.pattern_type == PatternType.PREFIXED:
            self.prefixes.add(acl.resource_name)

    def has_prefix_of(self, name: str) -> bool:
        return any(name[:end] in self.prefixes for end in range(1, len(name) + 1))
