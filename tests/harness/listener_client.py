"""Send requests of any API and version to a node's listener."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.protocol.envelope import (
    ENVELOPE,
    EnvelopeRequestData,
    EnvelopeResponseData,
)
from kraft.protocol.headers import Api, read_response_header, request_frame
from kraft.security.principals import ANONYMOUS, KafkaPrincipal, encode_principal
from kraft.server.process import QuorumNode

CORRELATION = 7
FRAME_SIZE = 4
LOCAL_ADDRESS = b"\x7f\0\0\1"
Answer = TypeVar("Answer", bound=Message)


async def ask_bytes(node: QuorumNode, frame: bytes, listener: str = "CONTROLLER") -> bytes:
    """Send a frame; return the response without its size, or b"" if the node closes."""
    endpoint = next(each for each in node.transport.endpoints if each.name == listener)
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(frame)
        size = await reader.read(FRAME_SIZE)
        return await reader.readexactly(int.from_bytes(size, "big")) if size else b""
    finally:
        writer.close()


async def ask(
    node: QuorumNode,
    api: Api,
    version: int,
    request: Message,
    answer: type[Answer],
    listener: str = "CONTROLLER",
) -> Answer:
    """Send a request to the node and return its response."""
    frame = request_frame(api, version, CORRELATION, "test", request.encode(version))
    return _decoded(await ask_bytes(node, frame, listener), api, version, answer)


async def forward(
    node: QuorumNode,
    api: Api,
    version: int,
    request: Message,
    answer: type[Answer],
    principal: KafkaPrincipal | bytes = ANONYMOUS,
    listener: str = "CONTROLLER",
) -> Answer | int:
    """Send a request in an envelope; return its response, or the error of the envelope.

    The bytes of a principal are sent as they are.
    """
    inner = request_frame(api, version, CORRELATION, "test", request.encode(version))
    envelope = EnvelopeRequestData(
        inner[FRAME_SIZE:],
        principal if isinstance(principal, bytes) else encode_principal(principal),
        LOCAL_ADDRESS,
    )
    response = await ask(node, ENVELOPE, 0, envelope, EnvelopeResponseData, listener)
    if response.error_code:
        assert response.response_data is None
        return response.error_code
    assert response.response_data is not None
    return _decoded(response.response_data, api, version, answer)


def _decoded(frame: bytes, api: Api, version: int, answer: type[Answer]) -> Answer:
    correlation, position = read_response_header(frame, api, version)
    assert correlation == CORRELATION
    return answer.decode(frame, version, position)
