"""ACLs, SCRAM credentials and delegation tokens.

Owns the rules by which AccessControlEntry, UserScramCredential, DelegationToken and the records
that remove them change who may do what. Fed by ``kraft.image.cluster``. Sources: Kafka's
``AclControlManager``, ``ScramControlManager``, ``DelegationTokenDelta``, ``AclsDelta``,
``ScramDelta`` (4.3.1).

Invariants: no salt and no key is shown by a repr.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from kraft import records
from kraft.errors import ReplayError
from kraft.image.journal import JournaledMap
from kraft.records import Uuid
from kraft.records.versions import record_version

# ScramMechanism.
SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2


class AccessControl(NamedTuple):
    """One ACL; the numbers are those of Kafka's ResourceType, PatternType, AclOperation,
    AclPermissionType.
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
    """The ACLs by their id."""

    __slots__ = ()
    kind: ClassVar[str] = "acl"

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
        for acl_id, entry in sorted(self._entries.items()):
            yield records.AccessControlEntry(acl_id, *entry, version=0)


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
        for (mechanism, user), credential in sorted(self.items(), key=lambda item: item[0]):
            yield records.UserScramCredential(
                name=user,
                mechanism=mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
                version=record_version(records.UserScramCredential, metadata_version),
            )


class DelegationTokens(JournaledMap[str, Token]):
    """The delegation tokens by token id."""

    __slots__ = ()
    kind: ClassVar[str] = "delegation_token"

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
        for token_id, token in sorted(self.items(), key=lambda item: item[0]):
            yield records.DelegationToken(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_timestamp_ms,
                max_timestamp=token.max_timestamp_ms,
                expiration_timestamp=token.expiration_timestamp_ms,
                token_id=token_id,
                version=record_version(records.DelegationToken, metadata_version),
            )
