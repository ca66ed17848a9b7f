"""CreateDelegationToken: issue a token for a principal (KIP-48, 373)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

CREATE_DELEGATION_TOKEN = Api(38, "CreateDelegationToken", 1, 3, 2)


class TokenPrincipal(Struct):
    """A principal that owns, requested or may renew a token."""

    principal_type: str = field("string")
    principal_name: str = field("string")


class CreateDelegationTokenRequestData(Message, versions=(1, 3), flexible_since=2):
    # Null makes the principal of the connection the owner.
    owner_principal_type: str | None = field("string", None, since=3, nullable=True)
    owner_principal_name: str | None = field("string", None, since=3, nullable=True)
    renewers: list[TokenPrincipal] = field("[]struct", of=TokenPrincipal)
    # -1 is the controller's limit, ``delegation.token.max.lifetime.ms``.
    max_lifetime_ms: int = field("int64")


class CreateDelegationTokenResponseData(Message, versions=(1, 3), flexible_since=2):
    error_code: int = field("int16")
    principal_type: str = field("string")
    principal_name: str = field("string")
    token_requester_principal_type: str = field("string", since=3)
    token_requester_principal_name: str = field("string", since=3)
    issue_timestamp_ms: int = field("int64")
    expiry_timestamp_ms: int = field("int64")
    max_timestamp_ms: int = field("int64")
    token_id: str = field("string")
    hmac: bytes = field("bytes")
    throttle_time_ms: int = field("int32")
