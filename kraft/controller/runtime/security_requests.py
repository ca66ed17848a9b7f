"""Operations of the security APIs: ACLs, SCRAM credentials and delegation tokens.

Like `requests`, for `acls`, `scram` and `delegation_tokens`. The listener authorizes the requester
before it submits the operation (`delegation_tokens.check_token_request`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.controller.runtime.operations import DecisionContext, Operation, OperationResult
from kraft.controller.security import acls as acl_control
from kraft.controller.security import delegation_tokens, scram
from kraft.controller.security.acls import AclFilter
from kraft.controller.security.delegation_tokens import TokenSettings
from kraft.controller.security.scram import ScramDeletion, ScramUpsertion
from kraft.image import AccessControl
from kraft.security.principals import KafkaPrincipal

#: Larger requests take longer than a few milliseconds and are decided in chunks.
_ACLS_AT_ONCE = 1_000
_CREDENTIALS_AT_ONCE = 400


def create_acls(acls: Sequence[AccessControl], *, has_authorizer: bool = True) -> Operation:
    """Return the operation of CreateAcls."""

    def decide(context: DecisionContext) -> OperationResult:
        return acl_control.create_acls(
            context.cluster,
            acls,
            random_uuid=context.random_uuid,
            has_authorizer=has_authorizer,
            at_once=context.at_once(_ACLS_AT_ONCE),
        )

    return Operation("create acls", decide)


def delete_acls(filters: Sequence[AclFilter], *, has_authorizer: bool = True) -> Operation:
    """Return the operation of DeleteAcls."""

    def decide(context: DecisionContext) -> OperationResult:
        return acl_control.delete_acls(
            context.cluster,
            filters,
            has_authorizer=has_authorizer,
            at_once=context.at_once(_ACLS_AT_ONCE),
        )

    return Operation("delete acls", decide)


def alter_user_scram_credentials(
    deletions: Sequence[ScramDeletion] = (), upsertions: Sequence[ScramUpsertion] = ()
) -> Operation:
    """Return the operation of AlterUserScramCredentials."""

    def decide(context: DecisionContext) -> OperationResult:
        return scram.alter_user_scram_credentials(
            context.cluster,
            deletions=deletions,
            upsertions=upsertions,
            at_once=context.at_once(_CREDENTIALS_AT_ONCE),
        )

    return Operation("alter user scram credentials", decide)


def create_delegation_token(
    requester: KafkaPrincipal,
    settings: TokenSettings,
    *,
    owner: KafkaPrincipal | None = None,
    renewers: Sequence[KafkaPrincipal] = (),
    max_lifetime_ms: int = -1,
) -> Operation:
    """Return the operation of CreateDelegationToken; the response is an `IssuedToken`."""

    def decide(context: DecisionContext) -> OperationResult:
        return delegation_tokens.create_delegation_token(
            context.cluster,
            requester,
            settings,
            now_ms=int(context.now_ms),
            token_id=context.random_uuid(),
            owner=owner,
            renewers=renewers,
            max_lifetime_ms=max_lifetime_ms,
        )

    return Operation("create delegation token", decide)


def renew_delegation_token(
    requester: KafkaPrincipal, hmac: bytes, settings: TokenSettings, renew_period_ms: int = -1
) -> Operation:
    """Return the operation of RenewDelegationToken; the response is the new expiry time."""

    def decide(context: DecisionContext) -> OperationResult:
        return delegation_tokens.renew_delegation_token(
            context.cluster,
            requester,
            hmac,
            settings,
            now_ms=int(context.now_ms),
            renew_period_ms=renew_period_ms,
        )

    return Operation("renew delegation token", decide)


def expire_delegation_token(
    requester: KafkaPrincipal, hmac: bytes, settings: TokenSettings, expiry_period_ms: int
) -> Operation:
    """Return the operation of ExpireDelegationToken; the response is the new expiry time."""

    def decide(context: DecisionContext) -> OperationResult:
        return delegation_tokens.expire_delegation_token(
            context.cluster,
            requester,
            hmac,
            settings,
            now_ms=int(context.now_ms),
            expiry_period_ms=expiry_period_ms,
        )

    return Operation("expire delegation token", decide)
