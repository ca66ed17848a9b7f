"""TLS at a listener: handshakes, certificates as principals, large responses, failures."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import replace

import pytest

from kraft.network import tls_transport
from kraft.network.listener import Limits
from kraft.network.tls_context import ClientAuth, tls_contexts
from kraft.network.tls_transport import HandshakeQueue
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import request_frame
from kraft.protocol.raft_rpcs import encode_request
from kraft.raft import rpc as m
from kraft.raft.voters import ReplicaKey
from kraft.security.principal_builders import AuthenticationContext
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from kraft.security.protocols import SecurityProtocol
from kraft.security.ssl_principals import SslPrincipalMapper
from tests.harness.certificates import authority
from tests.unit.network.listening import Node, play, settle, shorten
from tests.unit.network.tls_peers import (
    AS_ALICE,
    SETTINGS,
    STRANGER,
    secured,
    trusting,
)

__all__ = ["play"]


def test_requests_are_answered(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting())
        for correlation in range(3):
            await client.vote(correlation)
            assert (await client.answer())[0] == correlation
        await client.echo()
        assert node.senders[0].principal == ANONYMOUS
        assert node.senders[0].protocol is SecurityProtocol.SSL
        # Two requests in one TLS record.
        await client.send(b"".join(request_frame(FETCH, 18, at, "x", FETCH_BODY) for at in (4, 5)))
        assert [(await client.answer(FETCH, 18))[0] for _ in range(2)] == [4, 5]

    play(scenario, security=secured())


FETCH_BODY = encode_request(m.FetchRequest(None, ReplicaKey(3), 5, 0, 0), 18)


def test_a_large_answer_arrives_whole(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting())
        await client.send(request_frame(FETCH, 18, 1, "x", FETCH_BODY) * 2)
        for _ in range(2):
            await settle()
            _, response = await client.answer(FETCH, 18)
            assert isinstance(response, m.FetchResponse)
            assert bytes(response.records) == b"\x2a" * node.fetch_size

    play(scenario, fetch_size=5_000_000, security=secured())


def test_a_large_request_arrives_whole(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting())
        await client.echo(bytes(range(256)) * 8000)
        await client.vote(2)
        assert (await client.answer())[0] == 2

    play(scenario, security=secured())


def test_a_held_connection_resumes(play: Callable[..., None]) -> None:
    """While a request waits for its response, the TLS buffers hold further complete frames."""

    async def scenario(node: Node) -> None:
        client = await node.client(trusting())
        for correlation in range(300):
            await client.send(request_frame(FETCH, 18, correlation, "x" * 900, FETCH_BODY))
        while not node.received:
            await asyncio.sleep(0)
        for correlation in range(300):
            while len(node.received) <= correlation:
                await asyncio.sleep(0)
            node.answer(node.received[correlation])
            assert (await client.answer(FETCH, 18))[0] == correlation

    play(scenario, is_quick=False, security=secured())


def test_a_certificate_is_a_principal(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting(**AS_ALICE))
        await client.echo()
        assert node.senders[0].principal == KafkaPrincipal("User", "ALICE")

    security = secured(ClientAuth.REQUIRED)
    security.mapper = SslPrincipalMapper("RULE:^CN=(.*)$/$1/U")
    play(scenario, security=security)


class BySubject:
    """A principal builder that takes the common name of a certificate."""

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        assert context.subject is not None
        return KafkaPrincipal("Host", context.subject.removeprefix("CN="))


def test_a_builder_sees_the_subject_of_a_certificate(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting(**AS_ALICE))
        await client.echo()
        assert str(node.senders[0].principal) == "Host:alice"

    security = secured(ClientAuth.REQUIRED)
    security.builder = BySubject()
    play(scenario, security=security)


def test_a_requested_certificate_may_be_missing(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        anonymous = await node.client(trusting())
        await anonymous.echo()
        alice = await node.client(trusting(**AS_ALICE))
        await alice.echo()
        names = [sender.principal.name for sender in node.senders]
        assert names == ["ANONYMOUS", "CN=alice"]

    play(scenario, security=secured(ClientAuth.REQUESTED))


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        ({}, "peer did not return a certificate"),
        (
            {"certificates": STRANGER.certificate_pem, "key": STRANGER.key_pem},
            "the certificate is rejected",
        ),
    ],
    ids=["none", "another authority"],
)
def test_without_a_trusted_certificate_no_request_is_read(
    play: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    identity: dict[str, str],
    reason: str,
) -> None:
    async def scenario(node: Node) -> None:
        # In TLS 1.3 the client's handshake ends before the server has checked its certificate.
        client = await node.client(trusting(**identity))
        await client.vote()
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await client.answer()
        assert not node.received
        await (await node.client(trusting(**AS_ALICE))).echo()

    with caplog.at_level(logging.WARNING):
        play(scenario, security=secured(ClientAuth.REQUIRED))
    assert "the TLS handshake with 127.0.0.1 failed" in caplog.text
    assert reason in caplog.text


def test_a_certificate_that_no_rule_maps_is_rejected(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting(**AS_ALICE))
        await client.vote()
        assert await client.is_closed()
        assert not node.received

    security = secured(ClientAuth.REQUIRED)
    security.mapper = SslPrincipalMapper("RULE:^CN=bob$/bob/")
    play(scenario, security=security)
    assert "no rule of ssl.principal.mapping.rules matches" in caplog.text


def test_a_peer_without_tls_is_disconnected(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.vote()
        # The peer gets a TLS alert at most.
        assert len(await client.reader.read()) <= 7
        assert not node.received

    play(scenario, security=secured())
    assert "the TLS handshake with 127.0.0.1 failed" in caplog.text


def test_a_silent_peer_is_disconnected(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        silent = await node.client()
        begun = await node.client()
        await begun.send(b"\x16\x03\x01\x02\x00\x01\x00")
        shorten(node, first_request_timeout_ms=50)
        assert await silent.is_closed()
        assert await begun.is_closed()

    play(scenario, security=secured())
    assert "no complete TLS handshake within 50 ms" in caplog.text


def test_a_peer_that_does_not_read_its_responses_is_disconnected(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        slow = await node.client(trusting())
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await slow.send(request_frame(FETCH, 18, 1, "slow", FETCH_BODY) * 4)
        while not node.received:
            await asyncio.sleep(0)
        while node.transport.listener.connections:
            await asyncio.sleep(0.01)
        assert len(node.received) == 1
        await (await node.client(trusting())).echo()

    play(scenario, Limits(response_write_timeout_ms=60), fetch_size=32 << 20, security=secured())


def test_a_response_written_just_before_closing_arrives(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting())
        await client.vote()
        while not node.received:
            await asyncio.sleep(0)
        node.answer(node.received[0])
        await node.transport.close()
        assert (await client.answer())[0] == 1
        assert await client.is_closed()

    play(scenario, is_quick=False, security=secured())


def test_new_connections_use_replaced_keys(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        before = await node.client(trusting())
        await before.echo()
        renewed = authority().issue("controller-1")
        node.security.tls = tls_contexts(
            replace(SETTINGS, certificates=renewed.certificate_pem, key=renewed.key_pem)
        )
        after = await node.client(trusting())
        await after.echo()
        await before.echo()
        shown = after.writer.get_extra_info("ssl_object").getpeercert(True)
        assert shown == renewed.certificate_der

    play(scenario, security=secured())


def test_versions_are_limited(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await node.client(trusting(versions=("TLSv1.3",)))
        client = await node.client(trusting())
        assert client.writer.get_extra_info("ssl_object").version() == "TLSv1.2"
        assert client.writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
        await client.echo()

    suites = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)
    play(scenario, security=secured(cipher_suites=suites))


def test_handshakes_are_done_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake step takes more than 1 ms here: after two steps the loop runs other tasks."""
    clock = 0.0
    order: list[str] = []

    class Handshake:
        has_begun = False

        def shake_hands(self) -> None:
            nonlocal clock
            clock += 0.0011
            order.append("handshake")

    monkeypatch.setattr(tls_transport.time, "perf_counter", lambda: clock)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        queue = HandshakeQueue(loop)
        for _ in range(6):
            queue.add(Handshake())  # type: ignore[arg-type]
        while order.count("handshake") < 6:
            await asyncio.sleep(0)
            order.append("other")

    asyncio.run(run())
    turns = "".join("h" if each == "handshake" else "." for each in order).strip(".").split(".")
    assert [turn for turn in turns if turn] == ["hh", "hh", "hh"]


def test_handshakes_that_have_begun_go_before_new_ones_but_for_every_fourth_step() -> None:
    order: list[str] = []

    class Handshake:
        def __init__(self, name: str) -> None:
            self.name = name
            self.has_begun = name.isupper()

        def shake_hands(self) -> None:
            order.append(self.name)

    async def run() -> None:
        queue = HandshakeQueue(asyncio.get_running_loop())
        for name in "abcABCDEF":
            queue.add(Handshake(name))  # type: ignore[arg-type]
        while len(order) < 9:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert "".join(order) == "ABCaDEFbc"
