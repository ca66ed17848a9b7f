"""A node's TLS and SASL connections to other nodes, and the log lines about failed ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from kraft.network import authentication, connections
from kraft.network.authentication import ListenerSecurity
from kraft.network.tls_context import ClientAuth, TlsContexts, TlsSettings, tls_contexts
from kraft.network.transport import Transport, TransportConfig
from kraft.raft import rpc as m
from kraft.raft.interface import (
    Event,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SendRequest,
    SendResponse,
)
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.security.protocols import PeerIdentity, SecurityProtocol
from kraft.security.sasl.client import ClientCredentials
from kraft.security.sasl.connection import SaslListenerSettings
from tests.harness.certificates import Authority, KeyPair, authority
from tests.unit.network.listening import LISTENER, LOOPS
from tests.unit.network.users import SCRAM, sasl_servers

GRANTED = m.VoteResponse(0, 5, is_granted=True)
VOTE_REQUEST = m.VoteRequest("cluster", 5, ReplicaKey(2), ReplicaKey(1), 4, 100)
PLAIN = ClientCredentials("PLAIN", "alice", "secret-a")


def tls(keys: KeyPair, trusted: Authority) -> TlsContexts:
    required = ClientAuth.REQUIRED
    return tls_contexts(
        TlsSettings(keys.certificate_pem, keys.key_pem, trusted=trusted.pem, client_auth=required)
    )


def secured(
    protocol: SecurityProtocol,
    credentials: ClientCredentials = PLAIN,
    keys: KeyPair | None = None,
    trusted: Authority | None = None,
    max_reauth_ms: int = 0,
) -> ListenerSecurity:
    security = ListenerSecurity(protocol, failure_delay_ms=1)
    if protocol.has_tls:
        settings = keys or authority().issue("controller")
        security.tls = tls(settings, trusted or authority())
    if protocol.has_sasl:
        servers = sasl_servers()
        security.sasl = SaslListenerSettings(servers, dict.fromkeys(servers, max_reauth_ms))
        security.credentials = credentials
    return security


@dataclass
class Pair:
    """A node with a listener, and a node that sends requests to it."""

    server: ListenerSecurity
    client: ListenerSecurity
    host: str = "127.0.0.1"
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    senders: list[PeerIdentity] = field(default_factory=list)
    listening: Transport = field(init=False)
    sending: Transport = field(init=False)

    def received(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self.listening.send(SendResponse(event.reply_to, GRANTED))

    def denial_of(self, api: object, peer: PeerIdentity) -> int:
        self.senders.append(peer)
        return 0

    async def request(self) -> Event:
        at = self.listening.endpoints[0]._replace(host=self.host)
        self.sending.send(SendRequest(1, at, VOTE_REQUEST, 7))
        return await self.events.get()

    async def run(self, scenario: Callable[[Pair], Awaitable[None]]) -> None:
        at = (Endpoint(LISTENER, "127.0.0.1", 0),)
        config = TransportConfig(1, at, security={LISTENER: self.server})
        self.listening = Transport(config, self.received, memoryview, denial_of=self.denial_of)  # type: ignore[arg-type]
        config = TransportConfig(2, security={LISTENER: self.client}, client_listener=LISTENER)
        self.sending = Transport(config, self.events.put_nowait, memoryview)  # type: ignore[arg-type]
        await self.listening.start()
        await self.sending.start()
        try:
            async with asyncio.timeout(20):
                await scenario(self)
        finally:
            await self.sending.close()
            await self.listening.close()


def play(loop: str, pair: Pair, scenario: Callable[[Pair], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(pair.run(scenario))


WORKING = [
    (SecurityProtocol.SSL, PLAIN, "User:CN=controller"),
    (SecurityProtocol.SASL_PLAINTEXT, PLAIN, "User:alice"),
    (SecurityProtocol.SASL_SSL, PLAIN, "User:alice"),
    (SecurityProtocol.SASL_SSL, ClientCredentials(SCRAM.name, "bob", "secret-b"), "User:bob"),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("protocol", "credentials", "principal"), WORKING)
def test_a_node_authenticates_to_another(
    loop: str, protocol: SecurityProtocol, credentials: ClientCredentials, principal: str
) -> None:
    async def scenario(pair: Pair) -> None:
        for _ in range(2):
            event = await pair.request()
            assert isinstance(event, ResponseReceived)
            assert event.response == GRANTED
        assert [str(each.principal) for each in pair.senders] == [principal] * 2

    server = secured(protocol, credentials)
    play(loop, Pair(server, secured(protocol, credentials)), scenario)


STRANGER = Authority("another")
FAILING = [
    (
        {"credentials": ClientCredentials("PLAIN", "alice", "wrong")},
        "Authentication failed: Invalid username or password",
    ),
    (
        {"credentials": ClientCredentials(SCRAM.name, "bob", "wrong")},
        "invalid credentials with SASL mechanism SCRAM-SHA-256",
    ),
    (
        {"credentials": ClientCredentials("SCRAM-SHA-512", "bob", "wrong")},
        "does not accept the SASL mechanism; it has PLAIN, SCRAM-SHA-256",
    ),
    ({"keys": STRANGER.issue("controller")}, "cannot authenticate each other"),
    ({"trusted": STRANGER}, "the certificate is rejected"),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("changes", "reason"), FAILING)
def test_a_failure_is_logged_and_not_repeated_at_once(
    loop: str,
    changes: dict[str, object],
    reason: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "AUTHENTICATION_BACKOFF_S", 0.05)

    async def scenario(pair: Pair) -> None:
        for _ in range(2):
            assert isinstance(await pair.request(), RequestFailed)
        assert pair.senders == []
        # With the right credentials the next request succeeds.
        good = secured(SecurityProtocol.SASL_SSL)
        pair.client.tls, pair.client.credentials = good.tls, good.credentials
        assert isinstance(await pair.request(), ResponseReceived)

    server = secured(SecurityProtocol.SASL_SSL)
    client = secured(SecurityProtocol.SASL_SSL, **changes)  # type: ignore[arg-type]
    play(loop, Pair(server, client), scenario)
    assert reason in caplog.text
    assert "wrong" not in caplog.text


def test_the_certificate_must_name_the_host(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(pair: Pair) -> None:
        assert isinstance(await pair.request(), RequestFailed)

    elsewhere = authority().issue("controller", hosts=["elsewhere.example"])
    server = secured(SecurityProtocol.SSL, keys=elsewhere)
    play("asyncio", Pair(server, secured(SecurityProtocol.SSL)), scenario)
    assert "IP address mismatch" in caplog.text

    async def unchecked(pair: Pair) -> None:
        assert isinstance(await pair.request(), ResponseReceived)

    keys = authority().issue("controller")
    settings = TlsSettings(keys.certificate_pem, keys.key_pem, trusted=authority().pem)
    client = secured(SecurityProtocol.SSL)
    client.tls = tls_contexts(replace(settings, checks_host=False))
    play("asyncio", Pair(server, client), unchecked)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_authenticates_again_before_its_session_ends(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clocks are moved by hand: on a busy machine a short session could end in between."""
    session_s = 3600.0
    passed_s = 0.0
    monkeypatch.setattr(
        authentication, "_now_ms", lambda: time.time_ns() // 1_000_000 + int(1000 * passed_s)
    )

    async def scenario(pair: Pair) -> None:
        nonlocal passed_s
        assert isinstance(await pair.request(), ResponseReceived)
        (first,) = pair.listening.listener.connections
        (peer,) = pair.sending._peers.values()
        client = peer._connection
        assert client is not None
        for step in range(1, 10):
            ends = client._session_ends
            # The client authenticates again between 85 and 95 % of the session: at every third
            # request. Without that, the listener would reject the one after it.
            passed_s += 0.32 * session_s
            client._session_ends -= 0.32 * session_s
            assert isinstance(await pair.request(), ResponseReceived)
            assert (client._session_ends > ends) == (step % 3 == 0)
        assert pair.listening.listener.connections == {first}

    server = secured(SecurityProtocol.SASL_PLAINTEXT, max_reauth_ms=int(1000 * session_s))
    play(loop, Pair(server, secured(SecurityProtocol.SASL_PLAINTEXT)), scenario)
