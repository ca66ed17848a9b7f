"""APIs of credentials: AlterUserScramCredentials, and delegation tokens.

As in Kafka, DescribeUserScramCredentials and DescribeDelegationToken are answered by brokers only.
Sources: ``ControllerApis``, ``DelegationTokenManager`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.controller.runtime import security_requests
from kraft.controller.security.delegation_tokens import (
    IssuedToken,
    TokenSettings,
    check_token_request,
)
from kraft.controller.security.scram import ScramDeletion, ScramUpsertion
from kraft.errors import DelegationTokenAuthorizationError
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequestData,
    AlterUserScramCredentialsResponseData,
)
from kraft.protocol.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequestData,
    CreateDelegationTokenResponseData,
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
from kraft.security.principals import KafkaPrincipal
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.error_responses import (
    altered_credential,
    reject_alter_user_scram_credentials,
    reject_create_delegation_token,
    reject_expire_delegation_token,
    reject_renew_delegation_token,
)
from kraft.server.controller import ControllerRunner

#: The first version of CreateDelegationToken whose response names the requester (KIP-373).
_FIRST_WITH_REQUESTER = 3


def credential_apis(runner: ControllerRunner, tokens: TokenSettings) -> Iterator[AnyApi]:
    """Yield the APIs of credentials; ``tokens`` are the settings of delegation tokens."""
    yield _alter_user_scram_credentials(runner)
    yield _create_delegation_token(runner, tokens)
    yield _renew_delegation_token(runner, tokens)
    yield _expire_delegation_token(runner, tokens)


def _alter_user_scram_credentials(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: AlterUserScramCredentialsRequestData, context: CallContext
    ) -> AlterUserScramCredentialsResponseData:
        operation = security_requests.alter_user_scram_credentials(
            [ScramDeletion(each.name, each.mechanism) for each in data.deletions],
            [
                ScramUpsertion(
                    each.name, each.mechanism, each.iterations, each.salt, each.salted_password
                )
                for each in data.upsertions
            ],
        )
        results = await runner.submit(operation)
        return AlterUserScramCredentialsResponseData(
            results=[altered_credential(user, error) for user, error in results.items()]
        )

    return ListenerApi(
        ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsRequestData.decode,
        answer,
        reject_alter_user_scram_credentials,
    )


def _create_delegation_token(runner: ControllerRunner, settings: TokenSettings) -> AnyApi:
    async def answer(
        data: CreateDelegationTokenRequestData, context: CallContext
    ) -> CreateDelegationTokenResponseData:
        requester = context.principal
        owner = token_owner(data, context)
        operation = security_requests.create_delegation_token(
            requester,
            settings,
            owner=owner,
            renewers=[
                KafkaPrincipal(each.principal_type, each.principal_name) for each in data.renewers
            ],
            max_lifetime_ms=data.max_lifetime_ms,
        )
        issued: IssuedToken = await runner.submit(operation)
        token = issued.token
        response = CreateDelegationTokenResponseData(
            principal_type=owner.type,
            principal_name=owner.name,
            issue_timestamp_ms=token.issue_timestamp_ms,
            expiry_timestamp_ms=token.expiration_timestamp_ms,
            max_timestamp_ms=token.max_timestamp_ms,
            token_id=issued.token_id,
            hmac=issued.hmac,
        )
        if context.version >= _FIRST_WITH_REQUESTER:
            response.token_requester_principal_type = requester.type
            response.token_requester_principal_name = requester.name
        return response

    return ListenerApi(
        CREATE_DELEGATION_TOKEN,
        CreateDelegationTokenRequestData.decode,
        answer,
        reject_create_delegation_token,
    )


def _renew_delegation_token(runner: ControllerRunner, settings: TokenSettings) -> AnyApi:
    async def answer(
        data: RenewDelegationTokenRequestData, context: CallContext
    ) -> RenewDelegationTokenResponseData:
        operation = security_requests.renew_delegation_token(
            token_requester(context), data.hmac, settings, data.renew_period_ms
        )
        expiry_ms: int = await runner.submit(operation)
        return RenewDelegationTokenResponseData(expiry_timestamp_ms=expiry_ms)

    return ListenerApi(
        RENEW_DELEGATION_TOKEN,
        RenewDelegationTokenRequestData.decode,
        answer,
        reject_renew_delegation_token,
    )


def _expire_delegation_token(runner: ControllerRunner, settings: TokenSettings) -> AnyApi:
    async def answer(
        data: ExpireDelegationTokenRequestData, context: CallContext
    ) -> ExpireDelegationTokenResponseData:
        operation = security_requests.expire_delegation_token(
            token_requester(context), data.hmac, settings, data.expiry_time_period_ms
        )
        expiry_ms: int = await runner.submit(operation)
        return ExpireDelegationTokenResponseData(expiry_timestamp_ms=expiry_ms)

    return ListenerApi(
        EXPIRE_DELEGATION_TOKEN,
        ExpireDelegationTokenRequestData.decode,
        answer,
        reject_expire_delegation_token,
    )


def token_owner(data: CreateDelegationTokenRequestData, context: CallContext) -> KafkaPrincipal:
    """Return the owner of the token that a client wants to create.

    Raises DelegationTokenRequestNotAllowedError if the client may not ask for tokens,
    DelegationTokenAuthorizationError if it may not create tokens of this owner.
    """
    requester = owner = token_requester(context)
    if data.owner_principal_name:
        owner = KafkaPrincipal(data.owner_principal_type or "", data.owner_principal_name)
    # Every client may create tokens that it owns itself.
    if owner != requester and not context.allows(
        AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        raise DelegationTokenAuthorizationError(f"{requester} may not create tokens of {owner}")
    return owner


def token_requester(context: CallContext) -> KafkaPrincipal:
    """Return the client.

    Raises DelegationTokenRequestNotAllowedError if it may not ask for tokens.
    """
    check_token_request(
        context.principal, security_protocol=context.protocol, is_forwarded=context.is_forwarded
    )
    return context.principal
