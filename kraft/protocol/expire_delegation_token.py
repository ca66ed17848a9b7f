"""ExpireDelegationToken: set the expiry of a token, or delete it (KIP-48)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

EXPIRE_DELEGATION_TOKEN = Api(40, "ExpireDelegationToken", 1, 2, 2)


class ExpireDelegationTokenRequestData(Message, versions=(1, 2), flexible_since=2):
    hmac: bytes = field("bytes")
    # A negative period deletes the token at once.
    expiry_time_period_ms: int = field("int64")


class ExpireDelegationTokenResponseData(Message, versions=(1, 2), flexible_since=2):
    error_code: int = field("int16")
    expiry_timestamp_ms: int = field("int64")
    throttle_time_ms: int = field("int32")
