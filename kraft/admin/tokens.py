"""Create, describe, renew and expire delegation tokens (KIP-48, KIP-373).

The calls that change tokens need an authenticated connection: SASL, or SSL with a client
certificate. Principals are texts of the form ``User:name``; times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kraft.admin.calls import ControllerCalls
from kraft.controller.security.delegation_tokens import IssuedToken
from kraft.errors import (
    DELEGATION_TOKEN_AUTH_DISABLED,
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    InvalidArgumentError,
)
from kraft.image.security import Token
from kraft.metadata.quorum_reader import read_metadata
from kraft.network.quorum_client import QuorumRefusedError
from kraft.protocol.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequestData,
    CreateDelegationTokenResponseData,
    TokenPrincipal,
)
from kraft.protocol.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequestData,
    ExpireDelegationTokenResponseData,
)
from kraft.protocol.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequestData,
    RenewDelegationTokenResponseData,
)

_REMEDIES = {
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "tokens need an authenticated connection: set security.protocol to SASL_PLAINTEXT or "
        "SASL_SSL with a user, not a token, or to SSL with a client certificate"
    ),
    DELEGATION_TOKEN_AUTH_DISABLED: (
        "set delegation.token.secret.key, the same for all controllers and brokers"
    ),
}


def create_delegation_token(
    calls: ControllerCalls,
    *,
    owner: str | None = None,
    renewers: Iterable[str] = (),
    max_lifetime_ms: int = -1,
) -> IssuedToken:
    """Create a token and return it with its secret, the HMAC.

    The default ``owner`` is the principal of the connection; -1 is the controller's longest
    lifetime. Raises QuorumRefusedError (DELEGATION_TOKEN_AUTH_DISABLED without a secret key,
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on an unauthenticated connection), QuorumUnreachableError,
    InvalidArgumentError for a malformed principal.
    """
    renewing = [_principal(each) for each in renewers]
    owning = None if owner is None else _principal(owner)
    request = CreateDelegationTokenRequestData(
        None if owning is None else owning.principal_type,
        None if owning is None else owning.principal_name,
        renewing,
        max_lifetime_ms,
    )
    with _explained():
        response = calls.call_whole(
            CREATE_DELEGATION_TOKEN,
            request,
            CreateDelegationTokenResponseData,
            "creating a delegation token",
        ).response
    created = f"{response.principal_type}:{response.principal_name}"
    requester = created
    if response.token_requester_principal_name:
        requester = (
            f"{response.token_requester_principal_type}:{response.token_requester_principal_name}"
        )
    token = Token(
        created,
        requester,
        tuple(f"{each.principal_type}:{each.principal_name}" for each in renewing),
        response.issue_timestamp_ms,
        response.max_timestamp_ms,
        response.expiry_timestamp_ms,
    )
    return IssuedToken(response.token_id, response.hmac, token)


def describe_delegation_token(
    calls: ControllerCalls, owners: Iterable[str] | None = None
) -> dict[str, Token]:
    """Return the tokens of these owners by token id, by default of all owners; without HMACs.

    As at a broker, a token is also of its requester and of its renewers
    (``TokenInformation.ownerOrRenewer``). A controller has no API for it (a broker has,
    DescribeDelegationToken): the client reads the metadata from the active controller, which does
    not contain the HMACs. Where an authorizer is configured, this needs CLUSTER_ACTION on the
    cluster. Raises QuorumRefusedError, QuorumUnreachableError, InvalidArgumentError for a malformed
    principal.
    """
    wanted = None if owners is None else list(owners)
    for owner in wanted or ():
        _principal(owner)
    tokens = read_metadata(calls.client).delegation_tokens
    return {
        token_id: token
        for token_id, token in tokens.items()
        if wanted is None or not {token.owner, token.requester, *token.renewers}.isdisjoint(wanted)
    }


def renew_delegation_token(calls: ControllerCalls, hmac: bytes, renew_period_ms: int = -1) -> int:
    """Renew a token; return when it expires then. -1 is the controller's renewal period.

    Raises QuorumRefusedError (DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED,
    DELEGATION_TOKEN_OWNER_MISMATCH), QuorumUnreachableError.
    """
    with _explained():
        return calls.call_whole(
            RENEW_DELEGATION_TOKEN,
            RenewDelegationTokenRequestData(hmac, renew_period_ms),
            RenewDelegationTokenResponseData,
            "renewing a delegation token",
        ).response.expiry_timestamp_ms


def expire_delegation_token(
    calls: ControllerCalls, hmac: bytes, expiry_time_period_ms: int = -1
) -> int:
    """Let a token expire after a period, -1: now; return when it expires.

    Raises as `renew_delegation_token`.
    """
    with _explained():
        return calls.call_whole(
            EXPIRE_DELEGATION_TOKEN,
            ExpireDelegationTokenRequestData(hmac, expiry_time_period_ms),
            ExpireDelegationTokenResponseData,
            "expiring a delegation token",
        ).response.expiry_timestamp_ms


@contextmanager
def _explained() -> Iterator[None]:
    """Add to an error of the connection or the configuration what to change."""
    try:
        yield
    except QuorumRefusedError as error:
        if error.kafka_code in _REMEDIES:
            error.add_note(_REMEDIES[error.kafka_code])
        raise


def _principal(text: str) -> TokenPrincipal:
    kind, colon, name = text.partition(":")
    if not kind or not colon:
        raise InvalidArgumentError(
            f"{text!r:.100} is not a principal: expected its type and name, as User:alice"
        )
    return TokenPrincipal(kind, name)
