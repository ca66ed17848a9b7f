"""SaslHandshake: choose the SASL mechanism of a connection (KIP-43)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

SASL_HANDSHAKE = Api(17, "SaslHandshake", 0, 1, 2)


class SaslHandshakeRequestData(Message, versions=(0, 1), flexible_since=2):
    mechanism: str = field("string")


class SaslHandshakeResponseData(Message, versions=(0, 1), flexible_since=2):
    error_code: int = field("int16")
    # The mechanisms of the listener, also if it does not support the one in the request.
    mechanisms: list[str] = field("[]string")
