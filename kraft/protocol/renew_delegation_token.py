"""RenewDelegationToken: extend the expiry of a token (KIP-48)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

RENEW_DELEGATION_TOKEN = Api(39, "RenewDelegationToken", 1, 2, 2)


class RenewDelegationTokenRequestData(Message, versions=(1, 2), flexible_since=2):
    hmac: bytes = field("bytes")
    renew_period_ms: int = field("int64")


class RenewDelegationTokenResponseData(Message, versions=(1, 2), flexible_since=2):
    error_code: int = field("int16")
    expiry_timestamp_ms: int = field("int64")
    throttle_time_ms: int = field("int32")
