"""ACLs, SCRAM credentials and delegation tokens.

Owns the rules by which AccessControlEntry, UserScramCredential, DelegationToken and the records
that remove them change who may do what. Fed by ``kraft.image.cluster``. Sources: Kafka's
``AclControlManager``, ``ScramControlManager``, ``DelegationTokenDelta``, ``AclsDelta``,
``ScramDelta`` (4.3.1).

Invariants: no salt and no key is shown by a repr; the indexes of `Acls` hold what its entries say.
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
    from kraft.image.past import PastEntries

# ScramMechanism.
SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2

_Key = TypeVar("_Key", bound=Hashable)


class ResourceType(IntEnum):
    """What an ACL is about; a filter may say ANY, an ACL may not."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL is meant. ANY and MATCH are for filters only (KIP-290): ANY takes the
    name as it is written, MATCH finds what takes effect on a resource of that name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What an ACL allows or denies; ALL is all of them, ANY is for filters only."""

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
    `PermissionType`, or what a newer Kafka has written.
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
    """What lets a user prove a password without the password being kept (RFC 5802)."""

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
    """The ACLs by their id, found by content, by the name of the resource and by principal too."""

    __slots__ = ("_by_name", "_by_principal", "_ids", "_past")
    kind: ClassVar[str] = "acl"

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        # The values of a dictionary without values are kept in their order, those of a set are not.
        self._by_name: dict[str, dict[Uuid, None]] = {}
        self._by_principal: dict[str, dict[Uuid, None]] = {}
        self._ids: dict[AccessControl, dict[Uuid, None]] = {}
        self._past: PastEntries | None = None

    def ids_of(self, entry: AccessControl) -> Collection[Uuid]:
        """The ids of the ACLs that say just this: mostly one or none, as Kafka before 4.1 could
        write the same one twice.
        """
        return self._then(self._ids.get(entry, ()), lambda then: then == entry)

    def ids_with_name(self, resource_name: str) -> Collection[Uuid]:
        """The ids of the ACLs for this name, as it is written, of any resource type."""
        now = self._by_name.get(resource_name, ())
        return self._then(now, lambda then: then.resource_name == resource_name)

    def ids_with_principal(self, principal: str) -> Collection[Uuid]:
        now = self._by_principal.get(principal, ())
        return self._then(now, lambda then: then.principal == principal)

    def ids_where(self, conditions: Iterable[tuple[int, object]]) -> Collection[Uuid]:
        """The ids of the ACLs that have these values at these places of an `AccessControl`.

        Looks at every ACL, so it is for what no index finds.
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
        # Those of the tip, over which `_then` puts what was.
        self._ids, self._by_name = source._ids, source._by_name
        self._by_principal = source._by_principal

    def _then(
        self, now: Collection[Uuid], is_meant: Callable[[AccessControl], bool]
    ) -> Collection[Uuid]:
        """Of an image: which ids were found then, where these are found now."""
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
            raise ReplayError(f"{record} names an ACL that is not there")
        self._drop(record.id, offset)

    def snapshot_records(self) -> Iterator[records.AccessControlEntry]:
        """One AccessControlEntry for each ACL, by id."""
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
        """The credentials of one user by mechanism."""
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
            raise ReplayError(f"{record} names a credential that is not there")
        self._drop(key, offset)

    def snapshot_records(self, metadata_version: int) -> Iterator[records.UserScramCredential]:
        """One UserScramCredential for each credential, by mechanism and user."""
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
        #: What whoever decides keeps beside the tokens, and brings up to date by `watch`.
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
        """Removes a token; Kafka does not mind when it is not there, as an expired one is
        removed by a sweep.
        """
        self._drop(record.token_id, offset)

    def snapshot_records(self, metadata_version: int) -> Iterator[records.DelegationToken]:
        """One DelegationToken for each token, by token id."""
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
