"""DescribeDelegationToken: list tokens by their owners (KIP-48, 373).

Kafka's controllers list it in ApiVersions but have no handler for it; brokers serve it.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.create_delegation_token import TokenPrincipal
from kraft.protocol.headers import Api

DESCRIBE_DELEGATION_TOKEN = Api(41, "DescribeDelegationToken", 1, 3, 2)


class DescribeDelegationTokenRequestData(Message, versions=(1, 3), flexible_since=2):
    # Null asks for the tokens of all owners.
    owners: list[TokenPrincipal] | None = field("[]struct", None, nullable=True, of=TokenPrincipal)


class DescribedToken(Struct):
    principal_type: str = field("string")
    principal_name: str = field("string")
    token_requester_principal_type: str = field("string", since=3)
    token_requester_principal_name: str = field("string", since=3)
    issue_timestamp: int = field("int64")
    expiry_timestamp: int = field("int64")
    max_timestamp: int = field("int64")
    token_id: str = field("string")
    hmac: bytes = field("bytes")
    renewers: list[TokenPrincipal] = field("[]struct", of=TokenPrincipal)


class DescribeDelegationTokenResponseData(Message, versions=(1, 3), flexible_since=2):
    error_code: int = field("int16")
    tokens: list[DescribedToken] = field("[]struct", of=DescribedToken)
    throttle_time_ms: int = field("int32")
