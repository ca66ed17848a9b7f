"""The SASL state of a connection: the order of requests, sessions and re-authentication."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft.errors import IllegalSaslStateError
from kraft.security.principals import KafkaPrincipal
from kraft.security.sasl.connection import (
    MAX_RECEIVE_SIZE,
    SaslConnection,
    SaslListenerSettings,
    SaslState,
)
from kraft.security.sasl.mechanism import Authenticated, SaslServer, generic_failure
from kraft.security.sasl.plain import PlainServer, plain_message

USERS = {"alice": "a", "bob": "b"}
UNSUPPORTED_SASL_MECHANISM, SASL_AUTHENTICATION_FAILED = 33, 58


class TokenServer:
    """A server that accepts any message but ``bad`` as a token that expires at 5,000 ms."""

    def respond(self, message: bytes, *, now_ms: int) -> Authenticated:
        if message == b"bad":
            raise generic_failure("TOKEN")
        return Authenticated(b"ok", "alice", is_token=True, expires_at_ms=5_000)


def connection(**max_reauth_ms: int) -> SaslConnection:
    servers: dict[str, Callable[[], SaslServer]] = {
        "PLAIN": lambda: PlainServer(USERS.get),
        "TOKEN": TokenServer,
    }
    return SaslConnection(SaslListenerSettings(servers, max_reauth_ms))


def authenticated(at_ms: int = 0, **max_reauth_ms: int) -> SaslConnection:
    side = connection(**max_reauth_ms)
    side.on_handshake(1, "PLAIN", at_ms)
    assert side.on_authenticate(plain_message("alice", "a"), at_ms).error_code == 0
    return side


def test_a_connection_negotiates_and_authenticates() -> None:
    side = connection()
    assert side.max_receive_size == MAX_RECEIVE_SIZE == 512 * 1024
    side.on_api_versions(is_answered=False)
    side.on_api_versions(is_answered=True)
    assert side.on_handshake(1, "PLAIN", 0) == (0, ("PLAIN", "TOKEN"), False)
    assert side.has_headers
    assert not side.is_complete
    answer = side.on_authenticate(plain_message("alice", "a"), 0)
    assert (answer.error_code, answer.session_lifetime_ms, answer.is_final) == (0, 0, False)
    assert side.is_complete
    assert side.principal == KafkaPrincipal("User", "alice")
    assert side.expires_at_ms is None
    assert side.max_receive_size is None


def test_an_unknown_mechanism_is_answered_with_the_known_ones() -> None:
    side = connection()
    answer = side.on_handshake(1, "GSSAPI", 0)
    assert answer == (UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "TOKEN"), True)
    assert side.state is SaslState.FAILED


def test_a_failure_is_answered_and_ends_the_connection() -> None:
    side = connection()
    side.on_handshake(0, "PLAIN", 0)
    assert not side.has_headers
    answer = side.on_authenticate(plain_message("alice", "b"), 0)
    assert (answer.error_code, answer.is_final) == (SASL_AUTHENTICATION_FAILED, True)
    assert side.principal is None
    with pytest.raises(IllegalSaslStateError):
        side.on_authenticate(plain_message("alice", "a"), 0)


@pytest.mark.parametrize(
    "steps",
    [
        ["authenticate"],
        ["versions", "versions"],
        ["versions", "authenticate"],
        ["handshake", "versions"],
        ["handshake", "handshake"],
        ["handshake", "authenticate", "authenticate"],
        ["handshake", "authenticate", "versions"],
    ],
)
def test_a_step_out_of_order_is_rejected(steps: list[str]) -> None:
    side = connection()

    def take(step: str) -> None:
        if step == "versions":
            side.on_api_versions(is_answered=True)
        elif step == "handshake":
            side.on_handshake(1, "PLAIN", 0)
        else:
            side.on_authenticate(plain_message("alice", "a"), 0)

    for step in steps[:-1]:
        take(step)
    with pytest.raises(IllegalSaslStateError):
        take(steps[-1])


def test_a_session_ends_at_the_earlier_of_limit_and_token() -> None:
    for limits, lifetime_ms in (({}, 4_000), ({"TOKEN": 1_000}, 1_000), ({"TOKEN": 9_000}, 4_000)):
        side = connection(**limits)
        side.on_handshake(1, "TOKEN", 1_000)
        assert side.on_authenticate(b"", 1_000).session_lifetime_ms == lifetime_ms
        assert not side.is_expired(1_000 + lifetime_ms)
        assert side.is_expired(1_001 + lifetime_ms)
        assert side.principal is not None
        assert side.principal.token_authenticated


def test_a_peer_authenticates_again_as_the_same_principal() -> None:
    side = authenticated(PLAIN=60_000)
    assert side.expires_at_ms == 60_000
    side.on_handshake(1, "PLAIN", 50_000)
    assert side.on_authenticate(plain_message("alice", "a"), 50_000).session_lifetime_ms == 60_000
    assert side.expires_at_ms == 110_000
    assert not side.may_reauthenticate(50_999)
    with pytest.raises(IllegalSaslStateError):
        side.on_handshake(1, "PLAIN", 50_999)


def test_another_principal_or_mechanism_ends_the_connection() -> None:
    side = authenticated()
    side.on_handshake(1, "PLAIN", 5_000)
    answer = side.on_authenticate(plain_message("bob", "b"), 5_000)
    assert (answer.error_code, answer.is_final) == (SASL_AUTHENTICATION_FAILED, True)
    assert answer.error_message is not None
    assert "Cannot change principals" in answer.error_message
    assert side.principal == KafkaPrincipal("User", "alice")
    side = authenticated()
    assert side.on_handshake(1, "TOKEN", 5_000).error_code == 0
    assert side.on_authenticate(b"", 5_000).is_final


def test_a_failure_says_whether_the_peer_was_authenticated_before() -> None:
    side = connection()
    for at_ms, message, expected in ((0, b"ok", None), (5_000, b"bad", "re-authentication")):
        side.on_handshake(1, "TOKEN", at_ms)
        text = side.on_authenticate(message, at_ms).error_message
        assert text == expected or (text and expected and f"during {expected} due to" in text)
