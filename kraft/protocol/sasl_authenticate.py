"""SaslAuthenticate: one step of a SASL exchange (KIP-152, 368)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2, 2)


class SaslAuthenticateRequestData(Message, versions=(0, 2), flexible_since=2):
    auth_bytes: bytes = field("bytes")


class SaslAuthenticateResponseData(Message, versions=(0, 2), flexible_since=2):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    auth_bytes: bytes = field("bytes")
    # The client must authenticate again within this time; 0 for no limit.
    session_lifetime_ms: int = field("int64", since=1, ignorable=True)
