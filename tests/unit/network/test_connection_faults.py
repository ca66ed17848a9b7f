"""A client at the wrong listener, or with the wrong protocol, is told what to change."""

from __future__ import annotations

import asyncio
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kraft.network.controller_connection import Address, ClientSecurity
from kraft.network.listener import Limits
from kraft.network.quorum_client import QuorumClient, QuorumUnreachableError
from kraft.network.tls_context import ClientAuth, TlsSettings, client_context
from kraft.protocol.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponseData
from kraft.protocol.headers import response_header
from kraft.security.sasl.client import ClientCredentials
from tests.harness.certificates import Authority, authority
from tests.unit.network import sasl_peers, tls_peers
from tests.unit.network.listening import Node, play

__all__ = ["play"]

#: The certificate of an authority that issued no key of the listener.
STRANGER_PEM = Authority("another").pem
ALICE = ClientCredentials("PLAIN", "alice", "secret-a")


def failure(address: Address, security: ClientSecurity | None = None) -> str:
    """Return the error of a client's first call."""
    with (
        QuorumClient([address], timeout_s=10, leader_wait_s=1, security=security) as client,
        pytest.raises(QuorumUnreachableError) as refused,
    ):
        client.describe_quorum()
    return str(refused.value)


async def failure_at(node: Node, security: ClientSecurity | None = None) -> str:
    at = node.transport.endpoints[0]
    return await asyncio.to_thread(failure, (at.host, at.port), security)


def test_plain_where_tls_is_spoken(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        said = await failure_at(node)
        assert "the listener speaks TLS: set security.protocol to SSL" in said
        assert f":{node.transport.endpoints[0].port}: " in said

    play(scenario, Limits(), security=tls_peers.secured())


def test_tls_where_plain_is_spoken(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        said = await failure_at(node, ClientSecurity(tls_peers.trusting()))
        assert "the listener does not speak TLS: set security.protocol to PLAINTEXT" in said

    play(scenario, Limits())


def test_an_untrusted_certificate(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        stranger = client_context(TlsSettings(trusted=STRANGER_PEM))
        said = await failure_at(node, ClientSecurity(stranger))
        assert "certificate is not trusted" in said
        assert "ssl.truststore" in said

    play(scenario, Limits(), security=tls_peers.secured())


def test_a_certificate_for_another_host(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        said = await failure_at(node, ClientSecurity(tls_peers.trusting()))
        assert "certificate is for another host" in said
        assert "ssl.endpoint.identification.algorithm" in said

    other = authority().issue("elsewhere", ["elsewhere.example"])
    security = tls_peers.secured(certificates=other.certificate_pem, key=other.key_pem)
    play(scenario, Limits(), security=security)


def test_a_missing_client_certificate(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        said = await failure_at(node, ClientSecurity(tls_peers.trusting()))
        assert "the listener rejected the TLS handshake" in said
        assert "check ssl.keystore.*" in said

    play(scenario, Limits(), security=tls_peers.secured(ClientAuth.REQUIRED))


def test_no_credentials_where_sasl_is_wanted(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        said = await failure_at(node)
        assert "the listener asks for SASL: set security.protocol to SASL_PLAINTEXT" in said
        assert "it has PLAIN, SCRAM-SHA-256" in said

    play(scenario, Limits(), security=sasl_peers.secured())


def test_credentials_where_no_sasl_is_spoken(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        said = await failure_at(node, ClientSecurity(credentials=ALICE))
        assert "the listener does not use SASL: set security.protocol to PLAINTEXT" in said

    play(scenario, Limits())


def test_a_wrong_password_and_an_unknown_mechanism(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            wrong = ClientCredentials(mechanism, "alice", "wrong")
            said = await failure_at(node, ClientSecurity(credentials=wrong))
            assert f"user 'alice' cannot authenticate by {mechanism}" in said
            assert "check the user name and the password in sasl.jaas.config" in said
            assert "wrong" not in said
        other = ClientCredentials("SCRAM-SHA-512", "alice", "secret-a")
        said = await failure_at(node, ClientSecurity(credentials=other))
        assert "does not accept SCRAM-SHA-512: set sasl.mechanism to one of its mechanisms" in said

    play(scenario, Limits(), security=sasl_peers.secured())


def test_an_unknown_host_and_a_port_without_a_process() -> None:
    said = failure(("no-such-host.invalid", 9093))
    assert "the host name 'no-such-host.invalid' cannot be resolved" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = failure(("127.0.0.1", port))
    assert "no process listens there; is the address right" in said


@contextmanager
def broker_listener() -> Iterator[Address]:
    """Listen as a broker does: Produce and Metadata, and nothing of the quorum."""
    served = [ApiVersion(0, 3, 13), ApiVersion(3, 0, 13), ApiVersion(18, 0, 4)]
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                frame = client.recv(1 << 16)
                correlation = int.from_bytes(frame[8:12], "big")
                body = ApiVersionsResponseData(api_keys=served).encode(4)
                client.sendall(response_header(API_VERSIONS, 4, correlation, len(body)) + body)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[:2]
    finally:
        listener.close()


def test_the_port_of_a_broker() -> None:
    with broker_listener() as address:
        said = failure(address)
    assert "this is a broker's listener: give the address of a controller" in said


def test_a_server_of_another_kind() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            said = failure(server.server_address[:2])  # type: ignore[arg-type]
        finally:
            server.shutdown()
            thread.join()
    assert "127.0.0.1:" in said
