"""Authenticate the peers of a listener: TLS and SASL around the requests of a connection.

`ListenerSecurity` holds a listener's TLS contexts, SASL settings and credentials. The node replaces
them when keys, trusted certificates or users change; existing connections keep the old ones.
`SaslGate` handles the frames of a SASL connection that are not ordinary requests, and
`ServerConnection` writes its answers.

An error message to a peer reveals no more than Kafka's message does. This node's log has the reason
of a failure. Sources: Kafka's ``SaslServerAuthenticator``, ``SocketServer``,
``DefaultKafkaPrincipalBuilder`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kraft.errors import NONE, IllegalSaslStateError
from kraft.network.framing import Buffer
from kraft.protocol.headers import Body, RequestHeader, response_header
from kraft.protocol.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequestData,
    SaslAuthenticateResponseData,
)
from kraft.protocol.sasl_handshake import (
    SASL_HANDSHAKE,
    SaslHandshakeRequestData,
    SaslHandshakeResponseData,
)
from kraft.security.principal_builders import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    PrincipalBuilder,
    build_principal,
)
from kraft.security.principals import KafkaPrincipal
from kraft.security.protocols import PeerIdentity, SecurityProtocol
from kraft.security.sasl.client import ClientCredentials
from kraft.security.sasl.connection import (
    AuthenticateAnswer,
    SaslConnection,
    SaslListenerSettings,
    SaslState,
)
from kraft.security.sasl.mechanism import Authenticated
from kraft.security.ssl_principals import SslPrincipalMapper

if TYPE_CHECKING:
    from kraft.network.tls_context import TlsContexts

#: The longest frame of a peer that is not authenticated, in bytes, below Kafka's default of
#: sasl.server.max.receive.size (512 KiB). Reading a token takes several copies of it; together they
#: stay below 512 KiB. The longest useful token has two texts of 1 KiB.
MAX_UNAUTHENTICATED_SIZE = 64 * 1024
#: The requests of an exchange.
SASL_APIS = {api.key: api for api in (SASL_HANDSHAKE, SASL_AUTHENTICATE)}
# A client that authenticates by a delegation token sends this extension. Deriving the keys of a
# token takes milliseconds.
_TOKEN_MARK = b"tokenauth="


@dataclass
class ListenerSecurity:
    """How a listener authenticates its peers, and how this node connects to other controllers.

    ``tls`` and ``sasl`` are set where the protocol has them. ``credentials`` are those of this node
    for its connections by SASL. ``failure_delay_ms`` is
    ``connection.failed.authentication.delay.ms``. ``builder`` is the plugin of
    ``principal.builder.class``; None: Kafka's default rules, with ``mapper``.
    """

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsContexts | None = None
    sasl: SaslListenerSettings | None = None
    credentials: ClientCredentials | None = None
    mapper: SslPrincipalMapper = field(default_factory=SslPrincipalMapper)
    failure_delay_ms: int = 100
    builder: PrincipalBuilder | None = None

    def identity(
        self,
        address: str,
        listener: str,
        certificate: bytes | None,
        warn: Callable[[str, str], None],
    ) -> PeerIdentity:
        """Return the peer of a connection without SASL; ``certificate`` is its verified DER.

        ``warn`` logs faults of the builder. Raises SaslAuthenticationError for a malformed
        certificate, if no rule of ssl.principal.mapping.rules matches its subject, and where the
        builder fails.
        """
        context = AuthenticationContext(listener, self.protocol, address, certificate)
        principal = build_principal(self._principals, context, warn)
        return PeerIdentity(address, principal, self.protocol, listener)

    def sasl_principal(
        self,
        address: str,
        listener: str,
        certificate: bytes | None,
        mechanism: str,
        peer: Authenticated,
        warn: Callable[[str, str], None],
    ) -> KafkaPrincipal:
        """Return the principal of a peer that authenticated by SASL; as `identity`."""
        context = AuthenticationContext(
            *(listener, self.protocol, address, certificate),
            *(mechanism, peer.user, peer.is_token),
        )
        return build_principal(self._principals, context, warn)

    @property
    def _principals(self) -> PrincipalBuilder:
        return self.builder or DefaultPrincipalBuilder(self.mapper)


class GateAnswer(NamedTuple):
    """The buffers to write; ``is_final``: authentication failed, close the connection after them.

    ``failure`` is the reason for the log of this node.
    """

    pieces: list[Buffer]
    is_final: bool = False
    failure: str = ""


class SaslGate:
    """The SASL exchange of one connection, with its requests and responses as bytes."""

    def __init__(
        self,
        settings: SaslListenerSettings,
        build_principal: Callable[[str, Authenticated], KafkaPrincipal],
    ) -> None:
        self._connection = SaslConnection(settings, build_principal)

    @property
    def principal(self) -> KafkaPrincipal | None:
        """The authenticated peer; None before."""
        return self._connection.principal

    @property
    def size_limit(self) -> int | None:
        """The most bytes of the next frame; None: the listener's limit applies."""
        limit = self._connection.max_receive_size
        return None if limit is None else min(limit, MAX_UNAUTHENTICATED_SIZE)

    @property
    def takes_bare_tokens(self) -> bool:
        """Whether the next frame is a token without a header, as after SaslHandshake 0."""
        state = self._connection
        return state.state is SaslState.AUTHENTICATE and not state.has_headers

    def takes(self, header: RequestHeader) -> bool:
        """Return whether this request belongs to the exchange.

        Raises IllegalSaslStateError for any other after the end of the session.
        """
        state, now_ms = self._connection, _now_ms()
        if not state.is_complete:
            return True
        if header.api is SASL_HANDSHAKE and state.may_reauthenticate(now_ms):
            return True
        if state.is_expired(now_ms):
            raise IllegalSaslStateError(
                f"{header.api.name}: the SASL session has expired; authenticate again"
            )
        return False

    def note_versions(self, *, is_answered: bool) -> None:
        """Note an ApiVersions request before the handshake. Raises IllegalSaslStateError."""
        self._connection.on_api_versions(is_answered=is_answered)

    def answer_handshake(self, header: RequestHeader, frame: Body, body_at: int) -> GateAnswer:
        """Choose the mechanism. Raises IllegalSaslStateError, CorruptRecordError."""
        request = SaslHandshakeRequestData.decode(frame, header.version, body_at)
        answer = self._connection.on_handshake(header.version, request.mechanism, _now_ms())
        body = SaslHandshakeResponseData(answer.error_code, list(answer.mechanisms))
        failure = ""
        if answer.is_final:
            failure = f"the mechanism {request.mechanism!r:.40} is not enabled"
        return GateAnswer(_response(header, body.encode(header.version)), answer.is_final, failure)

    async def answer_token(
        self,
        header: RequestHeader | None,
        frame: Body,
        body_at: int,
        executor: Callable[[], Executor],
    ) -> GateAnswer:
        """Answer a token: of SaslAuthenticate, or without ``header`` a bare one.

        Raises IllegalSaslStateError, CorruptRecordError.
        """
        token = bytes(frame)
        if header is not None:
            if header.api is not SASL_AUTHENTICATE:
                raise IllegalSaslStateError(
                    f"{header.api.name} was sent before the peer was authenticated"
                )
            token = SaslAuthenticateRequestData.decode(frame, header.version, body_at).auth_bytes
        if _TOKEN_MARK in token:
            answer = await asyncio.get_running_loop().run_in_executor(
                executor(), self._connection.on_authenticate, token, _now_ms()
            )
        else:
            answer = self._connection.on_authenticate(token, _now_ms())
        failure = f"{answer.error_message}" if answer.is_final else ""
        return GateAnswer(_token_response(header, answer), answer.is_final, failure)


def illegal_state(header: RequestHeader) -> list[Buffer]:
    """Return the response to a SASL request on a connection that expects none."""
    code = IllegalSaslStateError.kafka_code
    if header.api is SASL_HANDSHAKE:
        return _response(header, SaslHandshakeResponseData(code).encode(header.version))
    said = "SaslAuthenticate request received after successful authentication"
    body = SaslAuthenticateResponseData(code, said)
    return _response(header, body.encode(header.version))


def _token_response(header: RequestHeader | None, answer: AuthenticateAnswer) -> list[Buffer]:
    if header is None:
        if answer.error_code != NONE:
            return []
        return [len(answer.auth_bytes).to_bytes(4, "big"), answer.auth_bytes]
    body = SaslAuthenticateResponseData(
        answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime_ms
    )
    return _response(header, body.encode(header.version))


def _response(header: RequestHeader, body: bytes) -> list[Buffer]:
    return [response_header(header.api, header.version, header.correlation, len(body)), body]


def _now_ms() -> int:
    # Tokens expire by the wall clock.
    return time.time_ns() // 1_000_000
