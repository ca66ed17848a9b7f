"""Connections that arrive together, faster than the event loop accepts them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.unit.network.listening import Node, play, until

__all__ = ["play"]

_BURST = 400
_ESTABLISHED = 1


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the state of a socket is Linux's")
def test_connections_that_arrive_together_find_room_in_the_backlog(
    play: Callable[..., None],
) -> None:
    """One without room is tried again by its system after a second, then after two more."""

    async def scenario(node: Node) -> None:
        at = node.transport.endpoints[0]
        with ExitStack() as stack:
            # No pause: the event loop accepts none of them before all are made.
            made = [stack.enter_context(socket.socket()) for _ in range(_BURST)]
            for each in made:
                each.setblocking(False)
                each.connect_ex((at.host, at.port))
            states = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] for each in made]
            assert states.count(_ESTABLISHED) == _BURST
            await until(lambda: len(node.transport.listener.connections) == _BURST)
            await node.still_serves()

    play(scenario)


def test_a_loop_that_is_busy_accepts_many_connections_at_a_time(play: Callable[..., None]) -> None:
    """libuv accepts one a turn: a controller with a thousand brokers took a hundred a second."""

    async def scenario(node: Node) -> None:
        at = node.transport.endpoints[0]
        with ExitStack() as stack:
            for _ in range(_BURST):
                stack.enter_context(socket.create_connection((at.host, at.port)))
            turns = 0
            while len(node.transport.listener.connections) < _BURST:
                turns += 1
                await asyncio.sleep(0)
            assert turns < _BURST / 4

    play(scenario)
