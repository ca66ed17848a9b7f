"""A listener with SASL in tests, and the steps of its clients."""

from __future__ import annotations

from kraft.network.authentication import ListenerSecurity
from kraft.protocol.headers import read_response_header, request_frame
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
from kraft.security.protocols import SecurityProtocol
from kraft.security.sasl.connection import SaslListenerSettings
from kraft.security.sasl.plain import plain_message
from tests.unit.network.listening import Client, Node
from tests.unit.network.users import sasl_servers


def secured(max_reauth_ms: int = 0, failure_delay_ms: int = 1) -> ListenerSecurity:
    servers = sasl_servers()
    limits = dict.fromkeys(servers, max_reauth_ms)
    return ListenerSecurity(
        SecurityProtocol.SASL_PLAINTEXT,
        sasl=SaslListenerSettings(servers, limits),
        failure_delay_ms=failure_delay_ms,
    )


async def handshake(
    client: Client, mechanism: str = "PLAIN", version: int = 1
) -> SaslHandshakeResponseData:
    body = SaslHandshakeRequestData(mechanism).encode(version)
    await client.send(request_frame(SASL_HANDSHAKE, version, 3, "x", body))
    frame = await client.frame()
    _, at = read_response_header(frame, SASL_HANDSHAKE, version)
    return SaslHandshakeResponseData.decode(frame, version, at)


async def authenticate(client: Client, token: bytes) -> SaslAuthenticateResponseData:
    body = SaslAuthenticateRequestData(token).encode(2)
    await client.send(request_frame(SASL_AUTHENTICATE, 2, 4, "x", body))
    frame = await client.frame()
    _, at = read_response_header(frame, SASL_AUTHENTICATE, 2)
    return SaslAuthenticateResponseData.decode(frame, 2, at)


async def authenticated(node: Node) -> Client:
    client = await node.client()
    assert (await handshake(client)).error_code == 0
    assert (await authenticate(client, plain_message("alice", "secret-a"))).error_code == 0
    return client
