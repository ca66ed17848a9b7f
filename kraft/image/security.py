"""ACLs, SCRAM credentials and delegation tokens.

Holds the rules of AccessControlEntry, UserScramCredential, DelegationToken and the records that
remove them. Called by ``kraft.image.cluster``. Sources: Kafka's ``AclControlManager``,
``ScramControlManager``, ``DelegationTokenDelta``, ``AclsDelta``, ``ScramDelta`` (4.3.1).

Invariants: no repr shows a salt or a key; the indexes of `Acls` always agree with its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from kraft import records
from kraft.errors import ReplayError
from kraft.image.journal import ABSENT, Journal, JournaledMap
from kraft.records import Record, Uuid
from kraft.records.versions import record_version

if TYPE_CHECKING:
    from kraft.image.overlays import PastEntries

# ScramMechanism.
SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2

_Key = TypeVar("_Key", bound=Hashable)


class ResourceType(IntEnum):
    """The type of an ACL's resource; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL's resource name matches. ANY and MATCH are for filters only (KIP-290).

    ANY finds ACLs with exactly this name, MATCH all ACLs that apply to a resource of this name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operation that an ACL allows or denies; ALL covers all, ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(IntEnum):
    """Kafka's AclPermissionType; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AccessControl(NamedTuple):
    """One ACL; the numbers are those of `ResourceType`, `PatternType`, `AclOperation` and
    `PermissionType`, or unknown ones of a newer Kafka.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A SCRAM credential of a user: verifies a password without storing it (RFC 5802)."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token without its secret; principals are ``Type:name``, times milliseconds
    since 1970.
    """

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


class Acls(JournaledMap[Uuid, AccessControl]):
    """The ACLs by id, with indexes by content, by resource name and by principal."""

    __slots__ = ("_by_name", "_by_principal", "_ids", "_past")
    kind: ClassVar[str] = "acl"

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        # Dictionaries in the place of sets, because they keep the order of their keys.
        self._by_name: dict[str, dict[Uuid, None]] = {}
        self._by_principal: dict[str, dict[Uuid, None]] = {}
        self._ids: dict[AccessControl, dict[Uuid, None]] = {}
        self._past: PastEntries | None = None

    def ids_of(self, entry: AccessControl) -> Collection[Uuid]:
        """Return the ids of the ACLs equal to ``entry``.

        Mostly one or none; Kafka before 4.1 could write the same ACL twice.
        """
        return self._then(self._ids.get(entry, ()), lambda then: then == entry)

    def ids_with_name(self, resource_name: str) -> Collection[Uuid]:
        """Return the ids of the ACLs with exactly this resource name, of any resource type."""
        now = self._by_name.get(resource_name, ())
        return self._then(now, lambda then: then.resource_name == resource_name)

    def ids_with_principal(self, principal: str) -> Collection[Uuid]:
        now = self._by_principal.get(principal, ())
        return self._then(now, lambda then: then.principal == principal)

    def ids_where(self, conditions: Iterable[tuple[int, object]]) -> Collection[Uuid]:
        """Return the ids of the ACLs with these values at these indexes of an `AccessControl`.

        Scans every ACL: for conditions without an index.
        """
        found: Iterable[tuple[Uuid, AccessControl]] = self._entries.items()
        for place, value in conditions:
            found = [item for item in found if item[1][place] == value]
        return [id for id, _ in found]

    def show(self, past: PastEntries) -> None:
        super().show(past)
        self._past = past
        source = past.source
        assert isinstance(source, Acls)
        # The present indexes, whose results `_then` corrects.
        self._ids, self._by_name = source._ids, source._by_name
        self._by_principal = source._by_principal

    def _then(
        self, now: Collection[Uuid], is_meant: Callable[[AccessControl], bool]
    ) -> Collection[Uuid]:
        """Correct the ids found in a present index to those of the image's offset."""
        if self._past is None or not (olds := self._past.olds()):
            return now
        unchanged = [key for key in now if key not in olds]
        return unchanged + [key for key, old in olds.items() if old is not ABSENT and is_meant(old)]

    def replay(self, record: records.AccessControlEntry, offset: int) -> None:
        entry = AccessControl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self._put(record.id, entry, offset)

    def replay_remove(self, record: records.RemoveAccessControlEntry, offset: int) -> None:
        if record.id not in self._entries:
            raise ReplayError(f"{record} names an ACL that does not exist")
        self._drop(record.id, offset)

    def snapshot_records(self) -> Iterator[records.AccessControlEntry]:
        """Return one AccessControlEntry for each ACL, by id."""
        return self.snapshot_records_in_order(0)

    def snapshot_records_of(self, key: Uuid, metadata_version: int) -> Iterator[Record]:
        entry = self._entries.get(key)
        if entry is not None:
            yield records.AccessControlEntry(key, *entry, version=0)

    def _put(self, key: Uuid, value: AccessControl, offset: int) -> None:
        self._unlink(key)
        super()._put(key, value, offset)
        self._link(key)

    def _drop(self, key: Uuid, offset: int) -> None:
        self._unlink(key)
        super()._drop(key, offset)

    def _restore(self, key: Any, old: Any) -> None:
        self._unlink(key)
        super()._restore(key, old)
        self._link(key)

    def _copy_entries(self, source: JournaledMap[Uuid, AccessControl]) -> None:
        for key in list(self._entries):
            self._unlink(key)
        super()._copy_entries(source)
        for key in self._entries:
            self._link(key)

    def _link(self, key: Uuid) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            self._ids.setdefault(entry, {})[key] = None
            self._by_name.setdefault(entry.resource_name, {})[key] = None
            self._by_principal.setdefault(entry.principal, {})[key] = None

    def _unlink(self, key: Uuid) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            _discard(self._ids, entry, key)
            _discard(self._by_name, entry.resource_name, key)
            _discard(self._by_principal, entry.principal, key)


def _discard(index: dict[_Key, dict[Uuid, None]], at: _Key, key: Uuid) -> None:
    ids = index[at]
    del ids[key]
    if not ids:
        del index[at]


class ScramCredentials(JournaledMap[tuple[int, str], ScramCredential]):
    """The SCRAM credentials by (mechanism, user)."""

    __slots__ = ()
    kind: ClassVar[str] = "scram_credential"

    def user(self, name: str) -> Mapping[int, ScramCredential]:
        """Return the credentials of one user by mechanism."""
        return {
            mechanism: credential
            for (mechanism, user), credential in self._entries.items()
            if user == name
        }

    def replay(self, record: records.UserScramCredential, offset: int) -> None:
        credential = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        self._put((record.mechanism, record.name), credential, offset)

    def replay_remove(self, record: records.RemoveUserScramCredential, offset: int) -> None:
        key = (record.mechanism, record.name)
        if key not in self._entries:
            raise ReplayError(f"{record} names a credential that does not exist")
        self._drop(key, offset)

    def snapshot_records(self, metadata_version: int) -> Iterator[records.UserScramCredential]:
        """Return one UserScramCredential for each credential, by mechanism and user."""
        return self.snapshot_records_in_order(metadata_version)

    def snapshot_records_of(self, key: tuple[int, str], metadata_version: int) -> Iterator[Record]:
        credential = self._entries.get(key)
        if credential is not None:
            yield records.UserScramCredential(
                name=key[1],
                mechanism=key[0],
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
                version=record_version(records.UserScramCredential, metadata_version),
            )


class DelegationTokens(JournaledMap[str, Token]):
    """The delegation tokens by token id."""

    __slots__ = ("derived",)
    kind: ClassVar[str] = "delegation_token"

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        #: Data that the controller derives from the tokens and updates by `watch`.
        self.derived: Any = None

    def replay(self, record: records.DelegationToken, offset: int) -> None:
        for principal in (record.owner, record.requester, *record.renewers):
            if ":" not in principal:
                raise ReplayError(f"a delegation token names {principal!r}, which is not Type:name")
        token = Token(
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )
        self._put(record.token_id, token, offset)

    def replay_remove(self, record: records.RemoveDelegationToken, offset: int) -> None:
        """Remove a token. An absent token is not an error: a sweep may have removed it."""
        self._drop(record.token_id, offset)

    def snapshot_records(self, metadata_version: int) -> Iterator[records.DelegationToken]:
        """Return one DelegationToken for each token, by token id."""
        return self.snapshot_records_in_order(metadata_version)

    def snapshot_records_of(self, key: str, metadata_version: int) -> Iterator[Record]:
        token = self._entries.get(key)
        if token is not None:
            yield records.DelegationToken(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_timestamp_ms,
                max_timestamp=token.max_timestamp_ms,
                expiration_timestamp=token.expiration_timestamp_ms,
                token_id=key,
                version=record_version(records.DelegationToken, metadata_version),
            )
