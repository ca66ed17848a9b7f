"""Kafka's principals: their text, their form in an Envelope request, and the list of super users.

Sources: Kafka's ``KafkaPrincipal``, ``DefaultKafkaPrincipalBuilder``, ``SecurityUtils``,
``StandardAuthorizer`` (4.3.1); KIP-590.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from kraft._core.codec.message_schema import field as schema_field
from kraft._core.codec.metadata_codec import Message
from kraft.errors import InvalidConfigError, UnsupportedVersionError

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: The type of all principals that Kafka itself creates.
USER_TYPE: Final = "User"

# The version of the principal in an Envelope, before its data.
_VERSION_SIZE = 2


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """The identity of an authenticated peer.

    ``token_authenticated``: the peer authenticated by a delegation token. Principals of the same
    type and name are equal, whatever the peer authenticated with.
    """

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


#: The principal of a peer without authentication.
ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")


class DefaultPrincipalData(Message, versions=(0, 0)):
    """Kafka's message of the same name."""

    type: str = schema_field("string")
    name: str = schema_field("string")
    token_authenticated: bool = schema_field("bool")


def parse_principal(text: str) -> KafkaPrincipal:
    """Return the principal that Kafka writes as ``Type:name``; the name may contain colons.

    Raises InvalidConfigError for a text without a colon.
    """
    type_name, colon, name = text.partition(":")
    if not colon:
        raise InvalidConfigError(
            f"{text!r:.80} is not a principal: write type, colon and name, as in User:alice"
        )
    return KafkaPrincipal(type_name, name)


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of ``super.users``, which semicolons separate, as ``Type:name``.

    Raises InvalidConfigError for a principal without a colon.
    """
    found = [part.strip() for part in text.split(";")]
    return frozenset(str(parse_principal(part)) for part in found if part)


def encode_principal(principal: KafkaPrincipal) -> bytes:
    """Return the bytes of a principal for Envelope: an int16 version and DefaultPrincipalData."""
    schema = DefaultPrincipalData.schema
    data = DefaultPrincipalData(principal.type, principal.name, principal.token_authenticated)
    version = schema.highest_version
    return version.to_bytes(_VERSION_SIZE, "big") + schema.encode(data, version)


def decode_principal(buffer: Buffer) -> KafkaPrincipal:
    """Return the principal of an Envelope.

    Raises UnsupportedVersionError for another version than 0, CorruptRecordError for malformed
    bytes and for bytes after the principal, which Kafka ignores.
    """
    encoded = bytes(buffer)
    if len(encoded) < _VERSION_SIZE:
        raise UnsupportedVersionError("the principal of an Envelope has no version")
    version = int.from_bytes(encoded[:_VERSION_SIZE], "big", signed=True)
    schema = DefaultPrincipalData.schema
    schema.check_version(version)
    data = cast(DefaultPrincipalData, schema.decode(encoded, version, _VERSION_SIZE))
    return KafkaPrincipal(data.type, data.name, data.token_authenticated)
