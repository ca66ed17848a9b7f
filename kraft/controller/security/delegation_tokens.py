"""Delegation tokens: create, renew, expire and describe (KIP-48).

Checks who may use a token, and computes its lifetime. A record names a token by its id. The holder
presents the token's HMAC: the HMAC of the id under the cluster's secret key, which no record
contains. Two indexes, kept with the state, find tokens by HMAC and by deadline. They read changes
in slices: a decision before an index is complete is partial, and the controller asks again
(``Decision.is_partial``).

Invariant: no repr, error or log contains an HMAC or a secret key. Sources: Kafka's
``DelegationTokenControlManager``, ``DelegationTokenManager``, ``ControllerApis`` (4.3.1).
"""

from __future__ import annotations

import hmac as hmac_algorithm
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from kraft import records
from kraft.controller.arguments import MAX_INT64, check_integer
from kraft.controller.decision import Decision, Records
from kraft.controller.state import ClusterMetadata, ReadableMetadata
from kraft.errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    InvalidPrincipalTypeError,
    UnsupportedVersionError,
)
from kraft.image.security import DelegationTokens, Token
from kraft.records import Record, Uuid
from kraft.records.versions import MetadataVersion
from kraft.security.principals import ANONYMOUS, USER_TYPE, KafkaPrincipal

#: The most tokens that one `sweep_expired_delegation_tokens` removes.
MAX_RECORDS_PER_EXPIRATION = 1000

# Tokens that an index reads in one decision, so that it takes at most 5 ms.
_HMACS_PER_SLICE = 600
_DEADLINES_PER_SLICE = 2000
_LAST_TIMESTAMP_MS = (1 << 63) - 1

# SecurityProtocol.
_PLAINTEXT = 0
_SSL = 1


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """``delegation.token.secret.key`` as bytes, ``.max.lifetime.ms`` and ``.expiry.time.ms``.

    Without a secret key delegation tokens are off.
    """

    secret_key: bytes | None = field(default=None, repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token and its secret, for its holder; times in milliseconds since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    token: Token


def check_token_request(
    requester: KafkaPrincipal,
    *,
    security_protocol: int,
    is_forwarded: bool,
) -> None:
    """Raise DelegationTokenRequestNotAllowedError if this connection may not ask for tokens.

    That is an unauthenticated connection, or one that was authenticated by a token. The broker has
    checked a forwarded request. ``security_protocol`` is the number of a SecurityProtocol.
    """
    if requester.token_authenticated:
        raise DelegationTokenRequestNotAllowedError(
            "a connection authenticated by a token may not request tokens"
        )
    is_unproven = security_protocol == _PLAINTEXT or (
        security_protocol == _SSL and requester == ANONYMOUS
    )
    if is_unproven and not is_forwarded:
        raise DelegationTokenRequestNotAllowedError(
            "token requests need an authenticated connection: SASL, or SSL with client certificates"
        )


def create_delegation_token(
    cluster: ClusterMetadata,
    requester: KafkaPrincipal,
    settings: TokenSettings,
    *,
    now_ms: int,
    token_id: Uuid,
    owner: KafkaPrincipal | None = None,
    renewers: Sequence[KafkaPrincipal] = (),
    max_lifetime_ms: int = -1,
) -> Decision[IssuedToken]:
    """Create a token of ``requester``, or of ``owner`` if that has a name.

    Its lifetime is ``max_lifetime_ms`` if that is positive and less than the configured one; within
    it the token has to be renewed. ``token_id`` is random. Raises DelegationTokenAuthDisabledError,
    UnsupportedVersionError below metadata.version 3.6-IV2, InvalidPrincipalTypeError for a renewer
    that is not a User.
    """
    secret_key = _secret_key(cluster, settings)
    _check_period("the lifetime of a token", max_lifetime_ms)
    for renewer in renewers:
        # Kafka lets no other type renew tokens.
        if renewer.type != USER_TYPE:
            raise InvalidPrincipalTypeError(
                f"only a {USER_TYPE} can renew a token, not a {renewer.type!r:.80}"
            )
    lifetime_ms = settings.max_lifetime_ms
    if max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, max_lifetime_ms)
    max_timestamp_ms = _sum(now_ms, lifetime_ms)
    token = Token(
        owner=str(owner if owner is not None and owner.name else requester),
        requester=str(requester),
        renewers=tuple(map(str, renewers)),
        issue_timestamp_ms=now_ms,
        max_timestamp_ms=max_timestamp_ms,
        expiration_timestamp_ms=min(max_timestamp_ms, _sum(now_ms, settings.expiry_time_ms)),
    )
    issued = IssuedToken(str(token_id), _hmac(secret_key, str(token_id)), token)
    return Decision(_written(cluster, _record(issued.token_id, token)), issued, is_atomic=True)


def renew_delegation_token(
    cluster: ClusterMetadata,
    requester: KafkaPrincipal,
    hmac: bytes,
    settings: TokenSettings,
    *,
    now_ms: int,
    renew_period_ms: int = -1,
) -> Decision[int]:
    """Change the expiry time of a token; the response is the new one, in milliseconds since 1970.

    It is ``renew_period_ms`` from now if that is positive and less than the configured period, but
    never after the end of the token's lifetime. Raises DelegationTokenAuthDisabledError,
    UnsupportedVersionError, DelegationTokenNotFoundError, DelegationTokenExpiredError, and
    DelegationTokenOwnerMismatchError unless the requester is the owner or a renewer.
    """
    secret_key = _secret_key(cluster, settings)
    hmacs = _indexes(cluster).hmacs(secret_key)
    if not hmacs.read_slice():
        return _partial_decision(cluster)
    token_id, token = hmacs.find(hmac)
    if _deadline_ms(token) < now_ms:
        raise _expired(token_id)
    _check_may_renew(token_id, token, requester)
    _check_period("the period of a renewal", renew_period_ms)
    period_ms = settings.expiry_time_ms
    if renew_period_ms > 0:
        period_ms = min(period_ms, renew_period_ms)
    return _decision_to_expire_at(cluster, token_id, token, _sum(now_ms, period_ms))


def expire_delegation_token(
    cluster: ClusterMetadata,
    requester: KafkaPrincipal,
    hmac: bytes,
    settings: TokenSettings,
    *,
    now_ms: int,
    expiry_period_ms: int,
) -> Decision[int]:
    """Let a token expire ``expiry_period_ms`` from now; a negative period removes it.

    Response and errors as in `renew_delegation_token`; an expired token can be removed.
    """
    secret_key = _secret_key(cluster, settings)
    hmacs = _indexes(cluster).hmacs(secret_key)
    if not hmacs.read_slice():
        return _partial_decision(cluster)
    token_id, token = hmacs.find(hmac)
    _check_may_renew(token_id, token, requester)
    _check_period("the period of an expiry", expiry_period_ms)
    if expiry_period_ms < 0:
        removal = records.RemoveDelegationToken(token_id=token_id)
        return Decision(_written(cluster, removal), now_ms, is_atomic=True)
    if _deadline_ms(token) < now_ms:
        raise _expired(token_id)
    return _decision_to_expire_at(cluster, token_id, token, _sum(now_ms, expiry_period_ms))


def sweep_expired_delegation_tokens(cluster: ClusterMetadata, now_ms: int) -> Decision[bool]:
    """Remove expired tokens, the oldest first, at most 1000.

    The response is True if there may be more. Does nothing below metadata.version 3.6-IV2.
    """
    level = cluster.state.metadata_version
    if not MetadataVersion.from_level(level).is_delegation_token_supported:
        return Decision(Records.of((), level), False)
    deadlines = _indexes(cluster).deadlines
    if not deadlines.read_slice():
        return Decision(Records.of((), level), True)
    token_ids, is_more = deadlines.before(now_ms)
    removals = (records.RemoveDelegationToken(token_id=token_id) for token_id in token_ids)
    return Decision(Records.of(removals, level), is_more)


def describe_delegation_tokens(
    cluster: ReadableMetadata,
    requester: KafkaPrincipal,
    settings: TokenSettings,
    *,
    owners: Sequence[KafkaPrincipal] | None = None,
    is_authorized: Callable[[str, str], bool] = lambda token_id, owner: False,
) -> list[IssuedToken]:
    """Return the tokens that ``requester`` may see, with their secrets, by id; expired ones too.

    It may see tokens that it owns, requested or may renew, and those for which ``is_authorized``
    (token id, owner) returns True. ``owners`` restricts the result to tokens that one of these
    principals owns, requested or may renew. Reads every token. Raises
    DelegationTokenAuthDisabledError.
    """
    secret_key = _enabled_secret_key(settings)
    wanted = None if owners is None else set(map(str, owners))
    found = []
    for token_id, token in (
        sorted(cluster.state.delegation_tokens.items()) if wanted != set() else ()
    ):
        parties = {token.owner, token.requester, *token.renewers}
        if wanted is not None and not wanted & parties:
            continue
        if str(requester) in parties or is_authorized(token_id, token.owner):
            found.append(IssuedToken(token_id, _hmac(secret_key, token_id), token))
    return found


def _enabled_secret_key(settings: TokenSettings) -> bytes:
    if not settings.secret_key:
        raise DelegationTokenAuthDisabledError(
            "delegation tokens are off: delegation.token.secret.key is not set"
        )
    return settings.secret_key


def _secret_key(cluster: ClusterMetadata, settings: TokenSettings) -> bytes:
    secret_key = _enabled_secret_key(settings)
    version = MetadataVersion.from_level(cluster.state.metadata_version)
    if not version.is_delegation_token_supported:
        raise UnsupportedVersionError(
            f"delegation tokens need metadata.version {MetadataVersion.IBP_3_6_IV2.text} or later, "
            f"and it is {version.text}"
        )
    return secret_key


def _hmac(secret_key: bytes, token_id: str) -> bytes:
    return hmac_algorithm.digest(secret_key, token_id.encode(), "sha512")


def _check_may_renew(token_id: str, token: Token, requester: KafkaPrincipal) -> None:
    principal = str(requester)
    if principal != token.owner and principal not in token.renewers:
        raise DelegationTokenOwnerMismatchError(
            f"{principal!r:.80} is neither the owner nor a renewer of token {token_id}"
        )


def _expired(token_id: str) -> DelegationTokenExpiredError:
    return DelegationTokenExpiredError(f"token {token_id} has expired")


def _deadline_ms(token: Token) -> int:
    """Return the last millisecond at which the token is valid."""
    return min(token.max_timestamp_ms, token.expiration_timestamp_ms)


def _check_period(what: str, period_ms: int) -> None:
    check_integer(what, period_ms, -MAX_INT64 - 1, MAX_INT64)


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, _LAST_TIMESTAMP_MS)


def _record(token_id: str, token: Token) -> records.DelegationToken:
    return records.DelegationToken(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiration_timestamp_ms,
        token_id=token_id,
    )


def _written(cluster: ClusterMetadata, record: Record) -> Records:
    return Records.of([record], cluster.state.metadata_version)


def _decision_to_expire_at(
    cluster: ClusterMetadata, token_id: str, token: Token, timestamp_ms: int
) -> Decision[int]:
    timestamp_ms = min(token.max_timestamp_ms, timestamp_ms)
    record = _record(token_id, replace(token, expiration_timestamp_ms=timestamp_ms))
    return Decision(_written(cluster, record), timestamp_ms, is_atomic=True)


def _partial_decision(cluster: ClusterMetadata) -> Decision[int]:
    return Decision(Records.of((), cluster.state.metadata_version), -1, is_partial=True)


class _Index(ABC):
    """A lazily updated secondary index of tokens; it lags by the changes it has not read yet."""

    def __init__(self, tokens: DelegationTokens, slice_size: int) -> None:
        self._tokens = tokens
        self._slice_size = slice_size
        self._unread = deque(tokens)
        self._touched = tokens.watch()

    def read_slice(self) -> bool:
        """Read a slice of the changes; return whether the index is complete."""
        unread = self._unread
        unread.extend(self._touched)
        self._touched.clear()
        for _ in range(min(len(unread), self._slice_size)):
            self._read(unread.popleft())
        return not unread

    @abstractmethod
    def _read(self, token_id: str) -> None:
        """Re-index a token; drop it if it was deleted."""


class _HmacIndex(_Index):
    def __init__(self, tokens: DelegationTokens, secret_key: bytes) -> None:
        super().__init__(tokens, _HMACS_PER_SLICE)
        self.secret_key = secret_key
        self._token_ids: dict[bytes, str] = {}

    def _read(self, token_id: str) -> None:
        hmac = _hmac(self.secret_key, token_id)
        if token_id in self._tokens:
            self._token_ids[hmac] = token_id
        else:
            self._token_ids.pop(hmac, None)

    def find(self, hmac: bytes) -> tuple[str, Token]:
        token_id = self._token_ids.get(bytes(hmac))
        if token_id is None:
            raise DelegationTokenNotFoundError("no token has this HMAC")
        return token_id, self._tokens[token_id]


class _DeadlineIndex(_Index):
    """A heap with one entry per token: its deadline, or an earlier time."""

    def __init__(self, tokens: DelegationTokens) -> None:
        super().__init__(tokens, _DEADLINES_PER_SLICE)
        self._heap: list[tuple[int, str]] = []
        self._entries: dict[str, int] = {}

    def _read(self, token_id: str) -> None:
        token = self._tokens.get(token_id)
        # The entry of a removed token is dropped when it comes due.
        if token is not None:
            deadline_ms = _deadline_ms(token)
            if deadline_ms < self._entries.get(token_id, _LAST_TIMESTAMP_MS + 1):
                self._push(deadline_ms, token_id)

    def _push(self, deadline_ms: int, token_id: str) -> None:
        self._entries[token_id] = deadline_ms
        heappush(self._heap, (deadline_ms, token_id))

    def before(self, now_ms: int) -> tuple[list[str], bool]:
        """Return the tokens whose deadline has passed, in order, and whether there may be more."""
        found: list[tuple[int, str]] = []
        heap, read_count = self._heap, 0
        while heap and heap[0][0] < now_ms:
            if len(found) == MAX_RECORDS_PER_EXPIRATION or read_count == self._slice_size:
                break
            read_count += 1
            entry_ms, token_id = heappop(heap)
            if self._entries.get(token_id) != entry_ms:
                # An earlier entry has replaced this one.
                continue
            del self._entries[token_id]
            token = self._tokens.get(token_id)
            if token is None:
                continue
            deadline_ms = _deadline_ms(token)
            if deadline_ms < now_ms:
                found.append((deadline_ms, token_id))
            else:
                self._push(deadline_ms, token_id)
        is_more = bool(heap) and heap[0][0] < now_ms
        # They stay until the records are applied, which may never happen.
        for deadline_ms, token_id in found:
            self._push(deadline_ms, token_id)
        return [token_id for _, token_id in found], is_more


class _TokenIndexes:
    """The indexes of one cluster's tokens, each created on first use."""

    def __init__(self, tokens: DelegationTokens) -> None:
        self._tokens = tokens
        self._deadlines: _DeadlineIndex | None = None
        self._hmacs: _HmacIndex | None = None

    @property
    def deadlines(self) -> _DeadlineIndex:
        if self._deadlines is None:
            self._deadlines = _DeadlineIndex(self._tokens)
        return self._deadlines

    def hmacs(self, secret_key: bytes) -> _HmacIndex:
        if self._hmacs is None or self._hmacs.secret_key != secret_key:
            self._hmacs = _HmacIndex(self._tokens, secret_key)
        return self._hmacs


def _indexes(cluster: ClusterMetadata) -> _TokenIndexes:
    tokens = cluster.state.delegation_tokens
    if tokens.derived is None:
        tokens.derived = _TokenIndexes(tokens)
    indexes: _TokenIndexes = tokens.derived
    return indexes
