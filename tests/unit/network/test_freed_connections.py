"""Closed connections are freed without the garbage collector.

A node never collects its oldest generation (`kraft.server.process.GC_THRESHOLDS`): a connection
that lived for a while and is part of a reference cycle would never be freed.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable

import pytest

from kraft.network.authentication import ListenerSecurity
from kraft.protocol.headers import request_frame
from kraft.security.sasl.plain import plain_message
from tests.unit.network import sasl_peers, tls_peers
from tests.unit.network.listening import CREATE_TOPICS, Client, Node, play, until

__all__ = ["play"]

SECURITY = {
    "plain": lambda: ListenerSecurity(),
    "TLS": tls_peers.secured,
    "SASL": sasl_peers.secured,
}


async def request(client: Client) -> None:
    await client.echo()


async def nothing(client: Client) -> None:
    """A peer that connects and leaves."""


async def garbage(client: Client) -> None:
    await client.send(b"garbage" * 10)
    assert await client.is_closed()


async def disconnect(client: Client) -> None:
    """The request is in progress when the peer leaves."""
    await client.send(request_frame(CREATE_TOPICS, 2, 8, "x", b"abc") * 3)


async def wrong_password(client: Client) -> None:
    await sasl_peers.handshake(client)
    await sasl_peers.authenticate(client, plain_message("alice", "wrong"))
    assert await client.is_closed()


BEHAVIOURS = {
    "plain": (request, nothing, garbage, disconnect),
    "TLS": (request, nothing, garbage, disconnect),
    "SASL": (request, nothing, garbage, wrong_password),
}


@pytest.mark.parametrize(
    ("kind", "behave"),
    [
        pytest.param(kind, behave, id=f"{kind}-{behave.__name__}")
        for kind, behaviours in BEHAVIOURS.items()
        for behave in behaviours
    ],
)
def test_a_closed_connection_is_freed(
    play: Callable[..., None], kind: str, behave: Callable[[Client], object]
) -> None:
    async def scenario(node: Node) -> None:
        listener = node.transport.listener
        context = tls_peers.trusting() if kind == "TLS" else None
        if kind == "SASL" and behave is request:
            client = await sasl_peers.authenticated(node)
        else:
            client = await node.client(context)
        await until(lambda: listener.connections)
        (found,) = listener.connections
        connection = weakref.ref(found)
        transport = weakref.ref(found.transport) if kind == "TLS" else lambda: None  # type: ignore[attr-defined]
        del found
        with contextlib.suppress(ConnectionError):
            await behave(client)  # type: ignore[misc]
        client.writer.transport.abort()
        await until(lambda: not listener.connections)
        # Callbacks of the loop, and the thread of a data loop, still refer to the connection.
        await until(lambda: connection() is None and transport() is None)

    gc.collect()
    gc.disable()
    try:
        play(scenario, security=SECURITY[kind]())
    finally:
        gc.enable()
