"""The server's SASL state of one connection, from the first request to re-authentication.

::

    ApiVersions (any number that fail, one that succeeds)   optional
    SaslHandshake                                            chooses the mechanism
    SaslAuthenticate, or bare tokens after SaslHandshake v0  until the mechanism is done
    other requests
    SaslHandshake, SaslAuthenticate …                        re-authentication, at any time

The listener passes the content of each frame to the method for the frame's API. The method returns
the answer, or raises IllegalSaslStateError. The listener then closes the connection without an
answer, as Kafka does. An answer with ``is_final`` is sent before the connection is closed.

A session ends if ``connections.max.reauth.ms`` is set or the peer authenticated by a delegation
token: after that time or when the token expires, whichever is earlier. The client learns how much
time is left and re-authenticates before the end, by the same mechanism and as the same principal
(KIP-368). A request after the end closes the connection.

Invariants: before the peer is authenticated, a frame has at most `MAX_RECEIVE_SIZE` bytes. Time
comes as an argument; monotonic and wall clock are the same number here.

Sources: Kafka's ``SaslServerAuthenticator``, ``KafkaChannel``, ``SocketServer`` (4.3.1); KIP-43,
KIP-152, KIP-255, KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from kraft.errors import (
    NONE,
    IllegalSaslStateError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kraft.security.principals import USER_TYPE, KafkaPrincipal
from kraft.security.sasl.mechanism import Authenticated, SaslServer

#: The default of ``sasl.server.max.receive.size``, in bytes.
MAX_RECEIVE_SIZE: Final = 524_288
#: A peer may begin to re-authenticate once in this time.
MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
# More messages than any mechanism needs; without a limit a peer could continue an exchange forever.
_MAX_MESSAGES = 16


class SaslState(Enum):
    """How far a connection is."""

    #: ApiVersions or SaslHandshake.
    VERSIONS_OR_HANDSHAKE = "versions_or_handshake"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


class HandshakeAnswer(NamedTuple):
    """The response to SaslHandshake."""

    error_code: int
    mechanisms: tuple[str, ...]
    is_final: bool = False


class AuthenticateAnswer(NamedTuple):
    """The response to SaslAuthenticate.

    After SaslHandshake v0 the listener sends only ``auth_bytes``, and nothing if ``is_final``.
    """

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int = 0
    is_final: bool = False


class SaslListenerSettings(NamedTuple):
    """The mechanisms of a listener.

    ``servers`` creates the server's side of an exchange, by mechanism. ``max_reauth_ms`` is
    ``connections.max.reauth.ms`` by mechanism; 0 or absent: no limit. ``max_receive_size`` is in
    bytes.
    """

    servers: Mapping[str, Callable[[], SaslServer]]
    max_reauth_ms: Mapping[str, int] = MappingProxyType({})
    max_receive_size: int = MAX_RECEIVE_SIZE


def user_principal(mechanism: str, peer: Authenticated) -> KafkaPrincipal:
    """Return the principal of the user that a mechanism authenticated."""
    return KafkaPrincipal(USER_TYPE, peer.user, peer.is_token)


class SaslConnection:
    """The SASL state of one connection on the server's side.

    ``build_principal`` returns the principal for the mechanism and the authenticated user; it may
    raise SaslAuthenticationError.

    ``principal`` is the authenticated peer; None before. ``expires_at_ms`` is the end of the
    session; None without one.
    """

    def __init__(
        self,
        settings: SaslListenerSettings,
        build_principal: Callable[[str, Authenticated], KafkaPrincipal] = user_principal,
    ) -> None:
        self._settings = settings
        self._build_principal = build_principal
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._message_count = 0
        self._reauthentication_began_ms: int | None = None
        self.state = SaslState.VERSIONS_OR_HANDSHAKE
        #: Whether tokens come in SaslAuthenticate requests, not as bare frames.
        self.has_headers = False
        self.principal: KafkaPrincipal | None = None
        self.expires_at_ms: int | None = None

    @property
    def max_receive_size(self) -> int | None:
        """The most bytes of the peer's next frame; None: that of the listener."""
        return self._settings.max_receive_size if self.principal is None else None

    @property
    def is_complete(self) -> bool:
        return self.state is SaslState.COMPLETE

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the session is over: any request but SaslHandshake then closes it."""
        return self.expires_at_ms is not None and now_ms > self.expires_at_ms

    def may_reauthenticate(self, now_ms: int) -> bool:
        """Return whether a SaslHandshake begins a re-authentication now.

        If not, it is an ordinary request, whose answer is ILLEGAL_SASL_STATE.
        """
        began_ms = self._reauthentication_began_ms
        return self.is_complete and (
            began_ms is None or now_ms - began_ms >= MIN_REAUTHENTICATION_INTERVAL_MS
        )

    def on_api_versions(self, *, is_answered: bool) -> None:
        """Note an ApiVersions request before the handshake; ``is_answered``: without an error.

        Raises IllegalSaslStateError after one that was answered, and in the middle of an exchange.
        """
        if self.state is not SaslState.VERSIONS_OR_HANDSHAKE:
            raise self._illegal("ApiVersions")
        if is_answered:
            self.state = SaslState.HANDSHAKE

    def on_handshake(self, version: int, mechanism: str, now_ms: int) -> HandshakeAnswer:
        """Choose the mechanism, for the first time or to re-authenticate.

        Raises IllegalSaslStateError in the middle of an exchange, and for a re-authentication that
        `may_reauthenticate` does not allow.
        """
        mechanisms = tuple(self._settings.servers)
        is_first = self.state in (SaslState.VERSIONS_OR_HANDSHAKE, SaslState.HANDSHAKE)
        if not is_first and not self.may_reauthenticate(now_ms):
            raise self._illegal("SaslHandshake")
        create = self._settings.servers.get(mechanism)
        if create is None:
            self.state = SaslState.FAILED
            return HandshakeAnswer(UnsupportedSaslMechanismError.kafka_code, mechanisms, True)
        self.has_headers = self.has_headers or version >= 1
        if not is_first:
            self._reauthentication_began_ms = now_ms
        if is_first or mechanism == self._mechanism:
            self._mechanism = mechanism
            self._server = create()
        else:
            # Kafka too answers the handshake, and fails the first token.
            self._server = None
        self._message_count = 0
        self.state = SaslState.AUTHENTICATE
        return HandshakeAnswer(NONE, mechanisms)

    def on_authenticate(self, message: bytes, now_ms: int) -> AuthenticateAnswer:
        """Pass a token of the peer to the mechanism.

        Raises IllegalSaslStateError before the handshake and after the end of the exchange.
        """
        if self.state is not SaslState.AUTHENTICATE:
            raise self._illegal("SaslAuthenticate")
        try:
            return self._answer(message, now_ms)
        except SaslAuthenticationError as failure:
            self.state = SaslState.FAILED
            self._server = None
            return AuthenticateAnswer(failure.kafka_code, self._text(failure), b"", is_final=True)

    def _answer(self, message: bytes, now_ms: int) -> AuthenticateAnswer:
        self._message_count += 1
        if self._server is None or self._message_count > _MAX_MESSAGES:
            raise SaslAuthenticationError(
                f"a connection re-authenticates by {self._mechanism}, as it authenticated"
            )
        answer = self._server.respond(message, now_ms=now_ms)
        if not isinstance(answer, Authenticated):
            return AuthenticateAnswer(NONE, None, answer.message)
        principal = self._build_principal(self._mechanism, answer)
        if self.principal is not None and self.principal != principal:
            raise SaslAuthenticationError(
                f"Cannot change principals during re-authentication from {self.principal}: "
                f"{principal}"
            )
        lifetime_ms = self._lifetime_ms(answer, now_ms)
        self.principal = principal
        self.expires_at_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self._server = None
        self.state = SaslState.COMPLETE
        return AuthenticateAnswer(NONE, None, answer.message, lifetime_ms or 0)

    def _lifetime_ms(self, answer: Authenticated, now_ms: int) -> int | None:
        """Return how long the session lasts from now on; None without an end."""
        limits = []
        max_reauth_ms = self._settings.max_reauth_ms.get(self._mechanism, 0)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        if answer.expires_at_ms is not None:
            limits.append(answer.expires_at_ms - now_ms)
        return max(0, min(limits)) if limits else None

    def _text(self, failure: SaslAuthenticationError) -> str:
        text = str(failure)
        if self.principal is None:
            return text
        return text.replace("during authentication", "during re-authentication")

    def _illegal(self, api_name: str) -> IllegalSaslStateError:
        state = self.state.value
        self.state = SaslState.FAILED
        return IllegalSaslStateError(f"{api_name} in the SASL state {state}")
