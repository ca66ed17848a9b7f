"""Delegation tokens: created, renewed, expired, described (KIP-48).

Owns who may do what with a token, how long it lives, and how it is found. A token is named by its
id; whoever holds it shows its HMAC, which is that of the id under the secret key of the cluster and
is in no record. So tokens are found by HMAC and by deadline in indexes, kept with the state, which
read what changed in slices: a decision that comes before an index is complete is partial, and asked
again (``Decision.is_partial``).

Invariant: no HMAC and no secret key is in a repr, an error or a log. Sources: Kafka's
``DelegationTokenControlManager``, ``DelegationTokenManager``, ``ControllerApis`` (4.3.1).
"""

from __future__ import annotations

import hmac as hmac_algorithm
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

from kraft import records
from kraft.controller.arguments import MAX_INT64, check_integer
from kraft.controller.decision import Decision, Records
from kraft.controller.state import Cluster
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

#: The most tokens that one `expire_tokens` removes.
MAX_RECORDS_PER_EXPIRATION = 1000
#: The only type of principal that can renew tokens.
USER_TYPE = "User"

# How many tokens an index reads in one decision, so that it takes no longer than 5 ms.
_HMACS_A_SLICE = 600
_DEADLINES_A_SLICE = 2000
_LAST_TIMESTAMP_MS = (1 << 63) - 1

# SecurityProtocol.
_PLAINTEXT = 0
_SSL = 1


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """``delegation.token.secret.key`` as bytes, ``.max.lifetime.ms`` and ``.expiry.time.ms``.

    Without a secret key there are no tokens.
    """

    secret_key: bytes | None = field(default=None, repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000


class Principal(NamedTuple):
    """Who asks, or is named (KafkaPrincipal)."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its secret, for its holder; times in milliseconds since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    token: Token


def check_token_request(
    requester: Principal,
    *,
    security_protocol: int,
    is_token_authenticated: bool,
    is_forwarded: bool,
) -> None:
    """Raises DelegationTokenRequestNotAllowedError for a connection that may not ask for tokens.

    That is one without proof of who asks, and one that a token has opened. A broker has checked
    what it forwards. ``security_protocol`` as SecurityProtocol numbers them.
    """
    if is_token_authenticated:
        raise DelegationTokenRequestNotAllowedError("who comes with a token gets no other")
    is_unproven = security_protocol == _PLAINTEXT or (
        security_protocol == _SSL and requester == ANONYMOUS
    )
    if is_unproven and not is_forwarded:
        raise DelegationTokenRequestNotAllowedError(
            "tokens need a connection that proves who asks: SASL, or SSL with client certificates"
        )


def create_token(
    cluster: Cluster,
    requester: Principal,
    settings: TokenSettings,
    *,
    now_ms: int,
    token_id: Uuid,
    owner: Principal | None = None,
    renewers: Sequence[Principal] = (),
    max_lifetime_ms: int = -1,
) -> Decision[IssuedToken]:
    """A new token of ``requester``, or of ``owner`` where that has a name.

    It lives ``max_lifetime_ms`` from now if that is positive and less than the settings', and until
    then has to be renewed. ``token_id`` is random. Raises DelegationTokenAuthDisabledError,
    UnsupportedVersionError below metadata.version 3.6-IV2, InvalidPrincipalTypeError for a renewer
    that is no User.
    """
    secret_key = _secret_key(cluster, settings)
    _check_period("the lifetime of a token", max_lifetime_ms)
    for renewer in renewers:
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


def renew_token(
    cluster: Cluster,
    requester: Principal,
    hmac: bytes,
    settings: TokenSettings,
    *,
    now_ms: int,
    renew_period_ms: int = -1,
) -> Decision[int]:
    """The token expires later (or earlier): the response is when, in milliseconds since 1970.

    That is ``renew_period_ms`` from now if that is positive and less than the settings', never
    after the end of the token's life. Raises DelegationTokenAuthDisabledError,
    UnsupportedVersionError, DelegationTokenNotFoundError, DelegationTokenExpiredError,
    DelegationTokenOwnerMismatchError for who is neither its owner nor a renewer.
    """
    secret_key = _secret_key(cluster, settings)
    hmacs = _indexes(cluster).hmacs(secret_key)
    if not hmacs.read_on():
        return _to_be_asked_again(cluster)
    token_id, token = hmacs.find(hmac)
    if _deadline_ms(token) < now_ms:
        raise _expired(token_id)
    _check_may_renew(token_id, token, requester)
    _check_period("the period of a renewal", renew_period_ms)
    period_ms = settings.expiry_time_ms
    if renew_period_ms > 0:
        period_ms = min(period_ms, renew_period_ms)
    return _decision_to_expire_at(cluster, token_id, token, _sum(now_ms, period_ms))


def expire_token(
    cluster: Cluster,
    requester: Principal,
    hmac: bytes,
    settings: TokenSettings,
    *,
    now_ms: int,
    expiry_period_ms: int,
) -> Decision[int]:
    """The token expires ``expiry_period_ms`` from now, or for a negative one it is removed.

    Response and errors are those of `renew_token`; an expired token can be removed.
    """
    secret_key = _secret_key(cluster, settings)
    hmacs = _indexes(cluster).hmacs(secret_key)
    if not hmacs.read_on():
        return _to_be_asked_again(cluster)
    token_id, token = hmacs.find(hmac)
    _check_may_renew(token_id, token, requester)
    _check_period("the period of an expiry", expiry_period_ms)
    if expiry_period_ms < 0:
        removal = records.RemoveDelegationToken(token_id=token_id)
        return Decision(_written(cluster, removal), now_ms, is_atomic=True)
    if _deadline_ms(token) < now_ms:
        raise _expired(token_id)
    return _decision_to_expire_at(cluster, token_id, token, _sum(now_ms, expiry_period_ms))


def expire_tokens(cluster: Cluster, now_ms: int) -> Decision[bool]:
    """Removes tokens whose time is over, the oldest first, at most 1000 of them.

    The response says whether there may be more. Nothing happens below metadata.version 3.6-IV2.
    """
    level = cluster.state.metadata_version
    if not MetadataVersion.from_level(level).is_delegation_token_supported:
        return Decision(Records.of((), level), False)
    deadlines = _indexes(cluster).deadlines
    if not deadlines.read_on():
        return Decision(Records.of((), level), True)
    token_ids, is_more = deadlines.before(now_ms)
    removals = (records.RemoveDelegationToken(token_id=token_id) for token_id in token_ids)
    return Decision(Records.of(removals, level), is_more)


def describe_tokens(
    cluster: Cluster,
    requester: Principal,
    settings: TokenSettings,
    *,
    owners: Sequence[Principal] | None = None,
    is_authorized: Callable[[str, str], bool] = lambda token_id, owner: False,
) -> list[IssuedToken]:
    """The tokens that ``requester`` may see, with their secrets, by id; expired ones too.

    Those are the ones that it owns, asked for or may renew, and those for which ``is_authorized``
    (token id, owner) says so. ``owners`` restricts them to tokens that one of these owns, asked for
    or may renew. Looks at every token. Raises DelegationTokenAuthDisabledError.
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


def _secret_key(cluster: Cluster, settings: TokenSettings) -> bytes:
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


def _check_may_renew(token_id: str, token: Token, requester: Principal) -> None:
    principal = str(requester)
    if principal != token.owner and principal not in token.renewers:
        raise DelegationTokenOwnerMismatchError(
            f"{principal!r:.80} is neither the owner nor a renewer of token {token_id}"
        )


def _expired(token_id: str) -> DelegationTokenExpiredError:
    return DelegationTokenExpiredError(f"token {token_id} has expired")


def _deadline_ms(token: Token) -> int:
    """The last millisecond at which the token is good."""
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


def _written(cluster: Cluster, record: Record) -> Records:
    return Records.of([record], cluster.state.metadata_version)


def _decision_to_expire_at(
    cluster: Cluster, token_id: str, token: Token, timestamp_ms: int
) -> Decision[int]:
    timestamp_ms = min(token.max_timestamp_ms, timestamp_ms)
    record = _record(token_id, replace(token, expiration_timestamp_ms=timestamp_ms))
    return Decision(_written(cluster, record), timestamp_ms, is_atomic=True)


def _to_be_asked_again(cluster: Cluster) -> Decision[int]:
    return Decision(Records.of((), cluster.state.metadata_version), -1, is_partial=True)


class _Index(ABC):
    """Something that tokens are found by; it is behind them by what it has not read yet."""

    def __init__(self, tokens: DelegationTokens, slice_size: int) -> None:
        self._tokens = tokens
        self._slice_size = slice_size
        self._unread = deque(tokens)
        self._touched = tokens.watch()

    def read_on(self) -> bool:
        """Reads a slice of what changed; whether nothing is left to be read."""
        unread = self._unread
        unread.extend(self._touched)
        self._touched.clear()
        for _ in range(min(len(unread), self._slice_size)):
            self._read(unread.popleft())
        return not unread

    @abstractmethod
    def _read(self, token_id: str) -> None:
        """Takes over a token as it is now, which may be: not there any more."""


class _Hmacs(_Index):
    def __init__(self, tokens: DelegationTokens, secret_key: bytes) -> None:
        super().__init__(tokens, _HMACS_A_SLICE)
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


class _Deadlines(_Index):
    """A heap with one entry for each token: its deadline, or an earlier moment."""

    def __init__(self, tokens: DelegationTokens) -> None:
        super().__init__(tokens, _DEADLINES_A_SLICE)
        self._heap: list[tuple[int, str]] = []
        self._entries: dict[str, int] = {}

    def _read(self, token_id: str) -> None:
        token = self._tokens.get(token_id)
        # Without a token its entry is dropped when its time has come.
        if token is not None:
            deadline_ms = _deadline_ms(token)
            if deadline_ms < self._entries.get(token_id, _LAST_TIMESTAMP_MS + 1):
                self._push(deadline_ms, token_id)

    def _push(self, deadline_ms: int, token_id: str) -> None:
        self._entries[token_id] = deadline_ms
        heappush(self._heap, (deadline_ms, token_id))

    def before(self, now_ms: int) -> tuple[list[str], bool]:
        """Tokens whose deadline is over, in its order; whether to ask again for more of them."""
        found: list[tuple[int, str]] = []
        heap, looked_at = self._heap, 0
        while heap and heap[0][0] < now_ms:
            if len(found) == MAX_RECORDS_PER_EXPIRATION or looked_at == self._slice_size:
                break
            looked_at += 1
            moment_ms, token_id = heappop(heap)
            if self._entries.get(token_id) != moment_ms:
                # An earlier one has taken its place.
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
        # They are there until the records are applied, which may never happen.
        for deadline_ms, token_id in found:
            self._push(deadline_ms, token_id)
        return [token_id for _, token_id in found], is_more


class _Indexes:
    """The indexes of one cluster's tokens, each made when it is first asked for."""

    def __init__(self, tokens: DelegationTokens) -> None:
        self._tokens = tokens
        self._deadlines: _Deadlines | None = None
        self._hmacs: _Hmacs | None = None

    @property
    def deadlines(self) -> _Deadlines:
        if self._deadlines is None:
            self._deadlines = _Deadlines(self._tokens)
        return self._deadlines

    def hmacs(self, secret_key: bytes) -> _Hmacs:
        if self._hmacs is None or self._hmacs.secret_key != secret_key:
            self._hmacs = _Hmacs(self._tokens, secret_key)
        return self._hmacs


def _indexes(cluster: Cluster) -> _Indexes:
    tokens = cluster.state.delegation_tokens
    if tokens.derived is None:
        tokens.derived = _Indexes(tokens)
    indexes: _Indexes = tokens.derived
    return indexes
