"""Requests about who may do what, as operations: ACLs, SCRAM credentials, delegation tokens.

As `requests`, for the managers of `acls`, `scram` and `tokens`. Who may ask is for the listener to
say (`tokens.check_token_request`, authorization).
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.controller.acls import (
    AclFilter,
    create_acls,
    create_acls_in_pieces,
    delete_acls,
    delete_acls_in_pieces,
)
from kraft.controller.operations import InPieces, Operation, Outcome, Tip
from kraft.controller.requests import has_transactions
from kraft.controller.scram import (
    ScramDeletion,
    ScramUpsertion,
    alter_scram_credentials,
    alter_scram_credentials_in_pieces,
)
from kraft.controller.tokens import (
    Principal,
    TokenSettings,
    create_token,
    expire_token,
    renew_token,
)
from kraft.image import AccessControl

#: What takes longer than a few milliseconds at once goes in pieces.
_ACLS_AT_ONCE = 1_000
_CREDENTIALS_AT_ONCE = 400


def allow_or_deny(acls: Sequence[AccessControl], *, has_authorizer: bool = True) -> Operation:
    """CreateAcls."""

    def decide(tip: Tip) -> Outcome:
        if len(acls) > _ACLS_AT_ONCE and has_transactions(tip):
            pieces = create_acls_in_pieces(
                tip.cluster, acls, random_uuid=tip.random_uuid, has_authorizer=has_authorizer
            )
            return InPieces("create acls", pieces)
        return create_acls(
            tip.cluster, acls, random_uuid=tip.random_uuid, has_authorizer=has_authorizer
        )

    return Operation("create acls", decide)


def remove_acls(filters: Sequence[AclFilter], *, has_authorizer: bool = True) -> Operation:
    """DeleteAcls; a filter may match any number, so that many ACLs always go in pieces."""

    def decide(tip: Tip) -> Outcome:
        if len(tip.cluster.state.acls) > _ACLS_AT_ONCE and has_transactions(tip):
            pieces = delete_acls_in_pieces(tip.cluster, filters, has_authorizer=has_authorizer)
            return InPieces("delete acls", pieces)
        return delete_acls(tip.cluster, filters, has_authorizer=has_authorizer)

    return Operation("delete acls", decide)


def change_credentials(
    deletions: Sequence[ScramDeletion] = (), upsertions: Sequence[ScramUpsertion] = ()
) -> Operation:
    """AlterUserScramCredentials."""

    def decide(tip: Tip) -> Outcome:
        large = len(deletions) + len(upsertions) > _CREDENTIALS_AT_ONCE
        if large and has_transactions(tip):
            pieces = alter_scram_credentials_in_pieces(
                tip.cluster, deletions=deletions, upsertions=upsertions
            )
            return InPieces("alter user scram credentials", pieces)
        return alter_scram_credentials(tip.cluster, deletions=deletions, upsertions=upsertions)

    return Operation("alter user scram credentials", decide)


def issue_token(
    requester: Principal,
    settings: TokenSettings,
    *,
    owner: Principal | None = None,
    renewers: Sequence[Principal] = (),
    max_lifetime_ms: int = -1,
) -> Operation:
    """CreateDelegationToken; the response is an `IssuedToken`."""

    def decide(tip: Tip) -> Outcome:
        return create_token(
            tip.cluster,
            requester,
            settings,
            now_ms=int(tip.now_ms),
            token_id=tip.random_uuid(),
            owner=owner,
            renewers=renewers,
            max_lifetime_ms=max_lifetime_ms,
        )

    return Operation("create delegation token", decide)


def prolong_token(
    requester: Principal, hmac: bytes, settings: TokenSettings, renew_period_ms: int = -1
) -> Operation:
    """RenewDelegationToken; the response is when it expires now."""

    def decide(tip: Tip) -> Outcome:
        return renew_token(
            tip.cluster,
            requester,
            hmac,
            settings,
            now_ms=int(tip.now_ms),
            renew_period_ms=renew_period_ms,
        )

    return Operation("renew delegation token", decide)


def end_token(
    requester: Principal, hmac: bytes, settings: TokenSettings, expiry_period_ms: int
) -> Operation:
    """ExpireDelegationToken."""

    def decide(tip: Tip) -> Outcome:
        return expire_token(
            tip.cluster,
            requester,
            hmac,
            settings,
            now_ms=int(tip.now_ms),
            expiry_period_ms=expiry_period_ms,
        )

    return Operation("expire delegation token", decide)
