"""Build the principal of an authenticated peer (``principal.builder.class``).

`DefaultPrincipalBuilder` decides as Kafka's ``DefaultKafkaPrincipalBuilder``: the user of SASL, the
mapped subject of the client's certificate, else User:ANONYMOUS. A plugin, see
``kraft.server.plugins``, may decide by listener, protocol and address instead, and may have its own
form of principals in envelopes.

Called by ``kraft.network.authentication``. Sources: Kafka's ``KafkaPrincipalBuilder``,
``KafkaPrincipalSerde``, ``AuthenticationContext``, ``SaslServerAuthenticator`` (4.3.1); KIP-189,
KIP-590.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from kraft.errors import InvalidRequestError, SaslAuthenticationError, UnknownServerError
from kraft.security.distinguished_names import subject_of
from kraft.security.principals import (
    ANONYMOUS,
    USER_TYPE,
    KafkaPrincipal,
    decode_principal,
    encode_principal,
)
from kraft.security.protocols import SecurityProtocol
from kraft.security.ssl_principals import SslPrincipalMapper


@dataclass(frozen=True)
class AuthenticationContext:
    """What a listener knows about a peer when it builds the principal.

    ``address`` is the peer's IP address. ``certificate`` is the peer's verified certificate (DER);
    None without TLS, and where ``ssl.client.auth`` does not ask for it. ``sasl_user`` is the
    authenticated user, for a delegation token its owner; None without SASL.
    """

    listener: str
    protocol: SecurityProtocol
    address: str
    certificate: bytes | None = None
    sasl_mechanism: str | None = None
    sasl_user: str | None = None
    is_token: bool = False

    @cached_property
    def subject(self) -> str | None:
        """The subject of the certificate, as RFC 2253 writes it; None without a certificate.

        Raises SaslAuthenticationError for a malformed certificate.
        """
        return None if self.certificate is None else subject_of(self.certificate)


class PrincipalBuilder(Protocol):
    """Builds principals (``principal.builder.class``).

    A builder may also have the methods ``serialize(principal: KafkaPrincipal) -> bytes``, with
    which a broker writes the principal of a client into an Envelope, and
    ``deserialize(data: bytes) -> KafkaPrincipal``, with which a controller reads it. Without them
    the principal has Kafka's default form.
    """

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """Return the principal of a peer; an exception closes the connection."""


class DefaultPrincipalBuilder:
    """Kafka's default rules; ``mapper`` has the rules of ``ssl.principal.mapping.rules``."""

    def __init__(self, mapper: SslPrincipalMapper) -> None:
        self._mapper = mapper

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """Return the principal. Raises SaslAuthenticationError if no rule matches the subject."""
        if context.sasl_user is not None:
            return KafkaPrincipal(USER_TYPE, context.sasl_user)
        if context.subject is not None:
            return KafkaPrincipal(USER_TYPE, self._mapper.name(context.subject))
        return ANONYMOUS


def build_principal(
    builder: PrincipalBuilder,
    context: AuthenticationContext,
    warn: Callable[[str, str], None],
) -> KafkaPrincipal:
    """Return the principal of a peer.

    Raises SaslAuthenticationError where the builder raises it. Any other exception, and a result
    that is not a KafkaPrincipal, is a fault of the builder: ``warn`` receives the kind and the text
    of a log line, and the peer receives a SaslAuthenticationError that does not say more.
    """
    try:
        principal = builder.build(context)
    except SaslAuthenticationError:
        raise
    except Exception as error:
        problem = f"raised {error!r}"
    else:
        if isinstance(principal, KafkaPrincipal):
            return replace(principal, token_authenticated=context.is_token)
        problem = f"returned {principal!r:.80}, which is not a KafkaPrincipal"
    warn(
        "principals could not be built",
        f"principal.builder.class {problem} for {context.address} on {context.listener}",
    )
    raise SaslAuthenticationError("Authentication failed: the principal cannot be built")


def encode_envelope_principal(builder: PrincipalBuilder | None, principal: KafkaPrincipal) -> bytes:
    """Return the bytes of a client's principal for an Envelope, by the builder of its listener.

    Raises UnknownServerError if the builder fails.
    """
    serialize = getattr(builder, "serialize", None) or encode_principal
    try:
        return bytes(serialize(principal))
    except Exception as error:
        raise UnknownServerError(
            f"principal.builder.class cannot write {principal} for an Envelope: {error!r}"
        ) from error


def envelope_principal(builder: PrincipalBuilder | None, data: bytes) -> KafkaPrincipal:
    """Return the principal in an Envelope, by the builder of the listener that received it.

    Raises InvalidRequestError for a principal that cannot be read.
    """
    deserialize = getattr(builder, "deserialize", None) or decode_principal
    try:
        principal = deserialize(data)
    except Exception as error:
        raise InvalidRequestError(
            f"the principal of an Envelope cannot be read: {error!r}"
        ) from error
    if not isinstance(principal, KafkaPrincipal):
        raise InvalidRequestError(
            f"principal.builder.class read {principal!r:.80} from an Envelope, which is not a "
            "KafkaPrincipal"
        )
    return principal
