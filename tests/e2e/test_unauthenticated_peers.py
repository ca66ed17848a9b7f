"""A controller with SASL_SSL under peers that never authenticate: the memory that each may take.

Issue 13's bound: an unauthenticated peer makes the node allocate at most 512 KiB.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.network.authentication import MAX_UNAUTHENTICATED_SIZE
from kraft.protocol.api_versions import API_VERSIONS
from kraft.protocol.headers import request_frame
from kraft.protocol.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequestData
from kraft.protocol.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequestData
from kraft.server.local_quorum import LOOPBACK
from tests.e2e.node_limits import resident_mib
from tests.e2e.quorum_intruder import ELSEWHERE
from tests.harness.certificates import authority
from tests.harness.commands import PATIENCE_S
from tests.harness.nodes import Controller, Controllers
from tests.harness.plain_users import jaas_config

pytestmark = pytest.mark.nodes

PEERS = 30
MOST_KIB = 512
SETTINGS = {
    "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": jaas_config(["broker"], "broker"),
    "listener.name.controller.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Controller]:
    key, trust = tmp_path / "key.pem", tmp_path / "trust.pem"
    key.write_text(authority().issue("controller-1").pem)
    trust.write_text(authority().pem)
    files = {"ssl.keystore.location": str(key), "ssl.truststore.location": str(trust)}
    with Controllers(tmp_path, 1, SETTINGS | files) as nodes:
        nodes.form(nodes.all)
        yield nodes.all[0]
        assert nodes.all[0].stop(signal.SIGTERM) == 0


def handshake(mechanism: str) -> bytes:
    body = SaslHandshakeRequestData(mechanism).encode(1)
    return request_frame(SASL_HANDSHAKE, 1, 1, "x", body)


def token(content: bytes) -> bytes:
    body = SaslAuthenticateRequestData(content).encode(2)
    return request_frame(SASL_AUTHENTICATE, 2, 2, "x", body)


#: ApiVersions in an unknown version may be repeated, and its answer need not be read.
VERSIONS = request_frame(API_VERSIONS, 99, 1, "x", b"")
BEGUN = (MAX_UNAUTHENTICATED_SIZE).to_bytes(4, "big") + bytes(MAX_UNAUTHENTICATED_SIZE - 1)
NONCE = b"n,,n=user,r=" + b"x" * 15_000
AFTER_TLS = {
    "versions": VERSIONS * 3000,
    "a large frame": BEGUN,
    "a large handshake": handshake("x" * 30_000)[:-1],
    "an invalid token": handshake("PLAIN") + token(b"\0u\0" + b"\xff" * 60_000),
    "a large name": handshake("SCRAM-SHA-256") + token(b"n,,n=" + b"u" * 60_000 + b",r=x"),
    "a large nonce and frame": handshake("SCRAM-SHA-256") + token(NONCE) + BEGUN,
    "handshakes": handshake("PLAIN") * 1000,
}
BEFORE_TLS = {
    "nothing": b"",
    "a begun hello": b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(16_000),
}


def test_each_peer_takes_little_memory(node: Controller) -> None:
    running = node.running
    assert running is not None
    pid = running.process.pid
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def plain() -> socket.socket:
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        own.settimeout(PATIENCE_S)
        own.bind((ELSEWHERE, 0))
        own.connect((LOOPBACK, node.port))
        return own

    def encrypted() -> socket.socket:
        return context.wrap_socket(plain())

    with encrypted() as first:
        first.sendall(VERSIONS)
        assert first.recv(4)
    before = resident_mib(pid)
    taken: dict[str, float] = {}
    kinds: list[tuple[Callable[[], socket.socket], dict[str, bytes]]] = [
        (plain, BEFORE_TLS),
        (encrypted, AFTER_TLS),
    ]
    for connect, streams in kinds:
        for name, stream in streams.items():
            with contextlib.ExitStack() as stack:
                for _ in range(PEERS):
                    peer = stack.enter_context(connect())
                    peer.settimeout(0.02)
                    with contextlib.suppress(OSError):
                        peer.sendall(stream)
                # One more peer is served: the node has read what the others sent before.
                with encrypted() as last:
                    last.sendall(VERSIONS)
                    assert last.recv(4)
                # Memory that earlier peers left behind counts too.
                taken[name] = (resident_mib(pid) - before) * 1024 / PEERS
    assert max(taken.values()) < MOST_KIB, taken
    assert "Traceback" not in running.text
