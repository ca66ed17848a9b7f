"""DescribeAcls, DescribeClientQuotas, DescribeUserScramCredentials, DescribeDelegationToken.

A broker answers them from its last image, as in Kafka: what a client has just changed may not be in
it yet. Called by a broker's node. Sources: Kafka's ``KafkaApis``, ``AclApis``,
``ClientQuotasImage.describe``, ``ScramImage.describe``, ``DelegationTokenManager`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kraft.controller.configs.client_quotas import QuotaFilter, describe_client_quotas
from kraft.controller.security.delegation_tokens import (
    IssuedToken,
    TokenSettings,
    describe_delegation_tokens,
)
from kraft.controller.security.scram import ScramDescription, describe_user_scram_credentials
from kraft.controller.state import ReadableMetadata
from kraft.errors import InvalidRequestError, KraftError, UnsupportedVersionError
from kraft.image.quotas import CLIENT_ID, IP, USER
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.alter_client_quotas import QuotaEntity
from kraft.protocol.create_delegation_token import TokenPrincipal
from kraft.protocol.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequestData,
    DescribeClientQuotasResponseData,
    DescribedQuotas,
    QuotaComponent,
    QuotaValue,
)
from kraft.protocol.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribeDelegationTokenRequestData,
    DescribeDelegationTokenResponseData,
    DescribedToken,
)
from kraft.protocol.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequestData,
    DescribeUserScramCredentialsResponseData,
    ScramCredentialInfo,
    ScramUserResult,
)
from kraft.security.principals import KafkaPrincipal, parse_principal
from kraft.server.apis.acls import describe_acls_api
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.credentials import token_requester

#: The types of the parts of an entity.
_ENTITY_TYPES = frozenset((USER, CLIENT_ID, IP))
# The match types of a component of DescribeClientQuotas.
_EXACT, _DEFAULT, _SPECIFIED = range(3)
#: The first version of DescribeDelegationToken whose response names the requester (KIP-373).
_FIRST_WITH_REQUESTER = 3


def description_apis(
    metadata: Callable[[], ReadableMetadata], tokens: TokenSettings
) -> Iterator[AnyApi]:
    """Yield the APIs; ``metadata`` returns the last image, ``tokens`` are the node's settings."""
    yield describe_acls_api(metadata)
    yield _describe_client_quotas(metadata)
    yield _describe_user_scram_credentials(metadata)
    yield _describe_delegation_token(metadata, tokens)


def _describe_client_quotas(metadata: Callable[[], ReadableMetadata]) -> AnyApi:
    async def answer(
        data: DescribeClientQuotasRequestData, context: CallContext
    ) -> DescribeClientQuotasResponseData:
        filters = _quota_filters(data.components)
        found = describe_client_quotas(metadata(), filters, is_strict=data.strict)
        return DescribeClientQuotasResponseData(
            entries=[
                DescribedQuotas(
                    [QuotaEntity(*part) for part in entity],
                    [QuotaValue(*each) for each in values.items()],
                )
                for entity, values in found.items()
            ]
        )

    return ListenerApi(
        DESCRIBE_CLIENT_QUOTAS,
        DescribeClientQuotasRequestData.decode,
        answer,
        lambda _, error: DescribeClientQuotasResponseData(
            error_code=error.kafka_code, error_message=str(error)
        ),
    )


def _quota_filters(components: Sequence[QuotaComponent]) -> list[QuotaFilter]:
    """Return the filters of the components.

    Raises InvalidRequestError and UnsupportedVersionError, in Kafka's order.
    """
    filters: dict[str, QuotaFilter] = {}
    for component in components:
        entity_type = component.entity_type
        if not entity_type or entity_type in filters:
            raise InvalidRequestError(
                f"a filter names each entity type once; {entity_type!r:.80} is empty or named twice"
            )
        if entity_type not in _ENTITY_TYPES:
            raise UnsupportedVersionError(f"unknown type of an entity: {entity_type!r:.80}")
        filters[entity_type] = _quota_filter(component)
    return list(filters.values())


def _quota_filter(component: QuotaComponent) -> QuotaFilter:
    """Return the filter of a component. Raises InvalidRequestError."""
    kind, name = component.match_type, component.match
    if kind not in (_EXACT, _DEFAULT, _SPECIFIED):
        raise InvalidRequestError(
            f"unknown match type {kind} of {component.entity_type!r:.80}; 0 is a name, 1 the "
            "default entity, 2 any entity"
        )
    if kind == _EXACT and name is None:
        raise InvalidRequestError(f"the name of {component.entity_type!r:.80} to match is missing")
    if kind != _EXACT and name is not None:
        raise InvalidRequestError(
            f"match type {kind} of {component.entity_type!r:.80} has no name, not {name!r:.80}"
        )
    return QuotaFilter(component.entity_type, name, is_any=kind == _SPECIFIED)


def _describe_user_scram_credentials(metadata: Callable[[], ReadableMetadata]) -> AnyApi:
    async def answer(
        data: DescribeUserScramCredentialsRequestData, context: CallContext
    ) -> DescribeUserScramCredentialsResponseData:
        users = [user.name for user in data.users or ()]
        found = describe_user_scram_credentials(metadata(), users)
        return DescribeUserScramCredentialsResponseData(
            results=[_scram_user(user, one) for user, one in found.items()]
        )

    return ListenerApi(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequestData.decode,
        answer,
        _failed_scram,
    )


def _failed_scram(
    data: DescribeUserScramCredentialsRequestData, error: KraftError
) -> DescribeUserScramCredentialsResponseData:
    code, message = error.kafka_code, str(error)
    # As Kafka, one result without a name for each user.
    results = [ScramUserResult("", code, message) for _ in data.users or ()]
    return DescribeUserScramCredentialsResponseData(
        error_code=code, error_message=message, results=results
    )


def _scram_user(user: str, described: ScramDescription | KraftError) -> ScramUserResult:
    if isinstance(described, KraftError):
        return ScramUserResult(user, described.kafka_code, str(described))
    infos = [ScramCredentialInfo(*each) for each in described.iterations.items()]
    return ScramUserResult(user, credential_infos=infos)


def _describe_delegation_token(
    metadata: Callable[[], ReadableMetadata], settings: TokenSettings
) -> AnyApi:
    async def answer(
        data: DescribeDelegationTokenRequestData, context: CallContext
    ) -> DescribeDelegationTokenResponseData:
        owners = None
        if data.owners is not None:
            owners = [KafkaPrincipal(one.principal_type, one.principal_name) for one in data.owners]

        def is_authorized(token_id: str, owner: str) -> bool:
            return context.allows(
                AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id
            ) or context.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, owner)

        found = describe_delegation_tokens(
            metadata(),
            token_requester(context),
            settings,
            owners=owners,
            is_authorized=is_authorized,
        )
        return DescribeDelegationTokenResponseData(
            tokens=[_token(one, context.version) for one in found]
        )

    return ListenerApi(
        DESCRIBE_DELEGATION_TOKEN,
        DescribeDelegationTokenRequestData.decode,
        answer,
        lambda _, error: DescribeDelegationTokenResponseData(error_code=error.kafka_code),
    )


def _token(issued: IssuedToken, version: int) -> DescribedToken:
    token = issued.token
    owner = parse_principal(token.owner)
    described = DescribedToken(
        owner.type,
        owner.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=issued.token_id,
        hmac=issued.hmac,
        renewers=[
            TokenPrincipal(one.type, one.name) for one in map(parse_principal, token.renewers)
        ],
    )
    if version >= _FIRST_WITH_REQUESTER:
        requester = parse_principal(token.requester)
        described.token_requester_principal_type = requester.type
        described.token_requester_principal_name = requester.name
    return described
