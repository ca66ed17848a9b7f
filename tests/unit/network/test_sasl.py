"""SASL at a listener: requests allowed before authentication, and the principal after it."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import time
from collections.abc import Callable

import pytest

from kraft import errors
from kraft.network.authentication import MAX_UNAUTHENTICATED_SIZE
from kraft.network.listener import Limits
from kraft.protocol.api_versions import (
    API_VERSIONS,
    decode_api_versions_response,
    encode_api_versions_request,
)
from kraft.protocol.headers import request_frame
from kraft.protocol.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequestData,
)
from kraft.security.principal_builders import AuthenticationContext
from kraft.security.principals import KafkaPrincipal
from kraft.security.protocols import SecurityProtocol
from kraft.security.sasl.plain import PlainServer, plain_message
from kraft.security.sasl.scram import ScramClient
from tests.unit.network.listening import Node, play, shorten, until
from tests.unit.network.sasl_peers import authenticate, authenticated, handshake, secured
from tests.unit.network.users import SCRAM, TOKEN_KEY

__all__ = ["play"]


def test_a_client_authenticates_by_plain(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.send(
            request_frame(API_VERSIONS, 3, 6, "x", encode_api_versions_request(3, "1.0"))
        )
        said = decode_api_versions_response(3, await client.frame(), 4)
        assert (said.ranges[17], said.ranges[36]) == ((0, 1), (0, 2))
        chosen = await handshake(client)
        assert (chosen.error_code, chosen.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
        response = await authenticate(client, plain_message("alice", "secret-a"))
        assert (response.error_code, response.session_lifetime_ms) == (0, 0)
        await client.echo()
        await client.vote()
        assert (await client.answer())[0] == 1
        assert str(node.senders[0].principal) == "User:alice"
        assert node.senders[0].protocol is SecurityProtocol.SASL_PLAINTEXT

    play(scenario, security=secured())


class ByMechanism:
    """A principal builder that rejects bob and adds the mechanism to other users."""

    def __init__(self) -> None:
        self.seen: list[AuthenticationContext] = []

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        self.seen.append(context)
        if context.sasl_user == "bob":
            raise RuntimeError("secret reason")
        return KafkaPrincipal("Robot", f"{context.sasl_user} by {context.sasl_mechanism}")


def test_a_builder_decides_the_principal_of_a_sasl_user(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        client = await authenticated(node)
        await client.echo()
        assert str(node.senders[0].principal) == "Robot:alice by PLAIN"
        client = await node.client()
        await handshake(client)
        response = await authenticate(client, plain_message("bob", "secret-b"))
        assert response.error_code == errors.SaslAuthenticationError.kafka_code
        assert response.error_message == "Authentication failed: the principal cannot be built"
        assert await client.is_closed()

    security = secured()
    security.builder = builder = ByMechanism()
    assert security.sasl is not None
    users = {"alice": "secret-a", "bob": "secret-b"}
    security.sasl = security.sasl._replace(servers={"PLAIN": lambda: PlainServer(users.get)})
    with caplog.at_level(logging.WARNING):
        play(scenario, security=security)
    assert "principal.builder.class raised RuntimeError('secret reason')" in caplog.text
    assert {(each.protocol, each.address, each.subject) for each in builder.seen} == {
        (SecurityProtocol.SASL_PLAINTEXT, "127.0.0.1", None)
    }


def test_a_wrong_password_is_rejected(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        for user in ("alice", "nobody"):
            client = await node.client()
            await handshake(client)
            response = await authenticate(client, plain_message(user, "wrong"))
            assert response.error_code == errors.SaslAuthenticationError.kafka_code
            assert response.error_message == "Authentication failed: Invalid username or password"
            assert await client.is_closed()

    with caplog.at_level(logging.WARNING):
        play(scenario, security=secured())
    assert "the SASL authentication of 127.0.0.1 failed" in caplog.text
    assert "wrong" not in caplog.text


def test_many_wrong_passwords_are_few_log_lines(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """The log counts the failures of a second and names the step; the peer learns nothing."""

    async def scenario(node: Node) -> None:
        said = set()
        for number in range(100):
            client = await node.client()
            await handshake(client)
            response = await authenticate(client, plain_message(f"user-{number}", f"word-{number}"))
            said.add((response.error_code, response.error_message))
            assert await client.is_closed()
        assert len(said) == 1

    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        play(scenario, security=secured())
    lines = [record.getMessage() for record in caplog.records]
    assert 2 <= len(lines) <= 3 + time.monotonic() - began
    assert all("the SASL authentication of 127.0.0.1 failed" in line for line in lines)
    assert "word-" not in caplog.text


def test_a_failure_is_answered_late(play: Callable[..., None]) -> None:
    """The listener reads nothing before the response, which slows down password guessing."""

    async def scenario(node: Node) -> None:
        client = await node.client()
        await handshake(client)
        body = SaslAuthenticateRequestData(plain_message("alice", "wrong")).encode(2)
        await client.send(request_frame(SASL_AUTHENTICATE, 2, 4, "x", body))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.frame()

    play(scenario, security=secured(failure_delay_ms=60_000))


def test_a_client_authenticates_by_scram(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await handshake(client, SCRAM.name)
        ours = ScramClient(SCRAM, "bob", "secret-b", "client-nonce")
        response = await authenticate(client, ours.first_message())
        final = ours.respond(response.auth_bytes)
        assert final is not None
        assert ours.respond((await authenticate(client, final)).auth_bytes) is None
        await client.echo()
        assert str(node.senders[0].principal) == "User:bob"
        assert not node.senders[0].principal.token_authenticated

    play(scenario, security=secured())


def test_a_client_authenticates_by_a_delegation_token(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await handshake(client, SCRAM.name)
        password = base64.b64encode(hmac.digest(TOKEN_KEY, b"token-1", "sha512")).decode()
        ours = ScramClient(SCRAM, "token-1", password, "client-nonce", is_token=True)
        response = await authenticate(client, ours.first_message())
        final = ours.respond(response.auth_bytes)
        assert final is not None
        response = await authenticate(client, final)
        assert ours.respond(response.auth_bytes) is None
        assert response.session_lifetime_ms > 0
        await client.echo()
        assert str(node.senders[0].principal) == "User:carol"
        assert node.senders[0].principal.token_authenticated

    play(scenario, security=secured())


def test_a_mechanism_that_is_not_enabled_is_rejected(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        chosen = await handshake(client, "GSSAPI")
        assert chosen.error_code == errors.UnsupportedSaslMechanismError.kafka_code
        assert chosen.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        assert await client.is_closed()

    play(scenario, security=secured())


@pytest.mark.parametrize("is_after_handshake", [False, True])
def test_other_requests_close_an_unauthenticated_connection(
    play: Callable[..., None], is_after_handshake: bool
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        if is_after_handshake:
            await handshake(client)
        await client.vote()
        assert await client.is_closed()
        assert not node.received

    play(scenario, security=secured())


def test_an_unauthenticated_frame_is_small(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.send((MAX_UNAUTHENTICATED_SIZE + 1).to_bytes(4, "big"))
        assert await client.is_closed()
        client = await authenticated(node)
        await client.echo(bytes(MAX_UNAUTHENTICATED_SIZE))

    play(scenario, security=secured())


def test_unauthenticated_frames_leave_memory_to_others(play: Callable[..., None]) -> None:
    """Peers without a password once took the memory of all large requests with begun tokens."""

    async def scenario(node: Node) -> None:
        known = await authenticated(node)
        begun = []
        listener = node.transport.listener
        for _ in range(10):
            begun.append(await node.client())
            await begun[-1].send((60_000).to_bytes(4, "big") + bytes(50_000))
        await until(lambda: len(listener.connections) == 5)
        assert listener.request_memory <= 300_000
        await known.echo(bytes(250_000))

    play(scenario, Limits(max_request_memory=600_000), security=secured())


def test_tokens_without_request_headers_are_accepted(play: Callable[..., None]) -> None:
    """Clients older than Kafka 1.0 send tokens like this after SaslHandshake version 0."""

    async def scenario(node: Node) -> None:
        client = await node.client()
        assert (await handshake(client, version=0)).error_code == 0
        token = plain_message("alice", "secret-a")
        await client.send(len(token).to_bytes(4, "big") + token)
        assert await client.frame() == b""
        await client.echo()
        assert str(node.senders[0].principal) == "User:alice"
        wrong = await node.client()
        await handshake(wrong, version=0)
        await wrong.send(b"\0\0\0\3abc")
        assert await wrong.is_closed()

    play(scenario, security=secured())


def test_a_silent_peer_is_disconnected(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await handshake(client)
        shorten(node, first_request_timeout_ms=50)
        assert await client.is_closed()

    play(scenario, security=secured())
    assert "no complete SASL authentication within 50 ms" in caplog.text


def test_a_connection_is_closed_after_its_session_has_expired(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client, other = await authenticated(node), await authenticated(node)
        end_ns = time.time_ns() + 30_000_000
        while time.time_ns() <= end_ns:
            await asyncio.sleep(0.005)
        # Another authentication prolongs the session, even after its end.
        assert (await handshake(client)).error_code == 0
        response = await authenticate(client, plain_message("alice", "secret-a"))
        assert (response.error_code, response.session_lifetime_ms) == (0, 20)
        await other.vote()
        assert await other.is_closed()
        assert not node.received

    play(scenario, security=secured(max_reauth_ms=20))


def test_a_peer_keeps_its_principal(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await authenticated(node)
        assert (await handshake(client, SCRAM.name)).error_code == 0
        response = await authenticate(client, b"n,,n=bob,r=abc")
        assert response.error_code == errors.SaslAuthenticationError.kafka_code
        assert await client.is_closed()

    play(scenario, security=secured())


def test_sasl_requests_on_a_listener_without_sasl_are_rejected(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        illegal = errors.IllegalSaslStateError.kafka_code
        assert (await handshake(client)).error_code == illegal
        assert (await authenticate(client, b"x")).error_code == illegal
        await client.echo()

    play(scenario)
