"""Envelope: a broker forwards a client's request to the controller (KIP-590, 591).

The request travels with its header, and the response comes back with its header. The principal is
an int16 version, 0, and a `PrincipalData` (``DefaultKafkaPrincipalBuilder``).
"""

from __future__ import annotations

from kraft._core.bytes.wire import Reader
from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.errors import UnsupportedVersionError
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


class PrincipalData(Message, versions=(0, 0)):
    """The client that a broker authenticated, as a forwarded request names it."""

    type: str = field("string")
    name: str = field("string")
    token_authenticated: bool = field("bool")


def encode_principal(principal: PrincipalData) -> bytes:
    """Return the principal with its version, as `EnvelopeRequestData` has it."""
    return b"\0\0" + principal.encode(0)


def decode_principal(data: bytes) -> PrincipalData:
    """Return the principal of an `EnvelopeRequestData`.

    Raises CorruptRecordError, and UnsupportedVersionError for another version than 0.
    """
    reader = Reader(data)
    version = reader.read_int16()
    if version != 0:
        raise UnsupportedVersionError(f"an envelope's principal has version {version}, not 0")
    return PrincipalData.decode(data, version, reader.position)
