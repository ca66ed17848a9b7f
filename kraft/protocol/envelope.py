"""Envelope: a broker forwards a client's request to the controller (KIP-590, 591).

The request travels with its header, and the response comes back with its header. The principal is
that of `kraft.security.principals.encode_principal`.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

ENVELOPE = Api(58, "Envelope", 0, 0, 0)


class EnvelopeRequestData(Message, versions=(0, 0)):
    # The forwarded request, from its header on.
    request_data: bytes = field("bytes")
    request_principal: bytes | None = field("bytes", None, nullable=True)
    # The client's address, 4 or 16 bytes.
    client_host_address: bytes = field("bytes")


class EnvelopeResponseData(Message, versions=(0, 0)):
    response_data: bytes | None = field("bytes", None, nullable=True)
    error_code: int = field("int16")
