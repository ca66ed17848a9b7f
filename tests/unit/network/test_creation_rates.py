"""Limits of new connections per second: for a node, for a listener, for an address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kraft.network.creation_rates import CreationRates, Delay, RateLimits, parsed_address
from tests.unit.network.listening import Node, play

__all__ = ["play"]

AT_ONCE = Delay(0.0)


def test_without_limits_no_connection_waits() -> None:
    rates = CreationRates(RateLimits())
    assert all(rates.accept("A", "10.0.0.1", 0.0) == AT_ONCE for _ in range(1000))


def test_connections_above_the_rate_wait_one_after_the_other() -> None:
    # With two windows of 1 s, the measured time is at least 1 s: two connections pass at once.
    rates = CreationRates(RateLimits(2, window_count=2))
    assert [rates.accept("A", "10.0.0.1", 5000.0) for _ in range(2)] == [AT_ONCE, AT_ONCE]
    assert rates.accept("A", "10.0.0.1", 5000.0) == Delay(500)
    later = rates.accept("A", "10.0.0.1", 5000.0)
    assert later.wait_ms > 500
    assert rates.accept("A", "10.0.0.1", 60_000.0) == AT_ONCE


def test_a_listener_may_have_a_lower_rate() -> None:
    rates = CreationRates(RateLimits(100, {"A": 1}, window_count=2))
    assert rates.accept("A", "10.0.0.1", 0.0) == AT_ONCE
    assert rates.accept("A", "10.0.0.1", 0.0) == Delay(1000)
    assert rates.accept("B", "10.0.0.1", 0.0) == AT_ONCE


def test_an_address_above_its_quota_is_rejected_and_does_not_count() -> None:
    rates = CreationRates(RateLimits(window_count=2))
    rates.limit_address("10.1", 1.9)
    assert rates.accept("A", "10.0.0.1", 0.0) == AT_ONCE
    for _ in range(3):
        assert rates.accept("A", "10.0.0.1", 0.0) == Delay(1000, is_rejected=True)
    assert rates.accept("A", "10.0.0.2", 0.0) == AT_ONCE
    rates.limit_address(None, 1.0)
    assert rates.accept("A", "10.0.0.2", 0.0) == AT_ONCE
    assert rates.accept("A", "10.0.0.2", 0.0).is_rejected
    rates.limit_address(None, None)
    assert rates.accept("A", "10.0.0.2", 0.0) == AT_ONCE
    rates.limit_address("unknown.example", 1.0)
    assert rates.accept("A", "10.0.0.3", 0.0) == AT_ONCE


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.1", "127.0.0.1"),
        ("10.1.515", "10.1.2.3"),
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("7", "0.0.0.7"),
    ],
)
def test_addresses_are_parsed_as_in_java(text: str, address: str) -> None:
    assert parsed_address(text) == address


class SimultaneousRates(CreationRates):
    """Rates of connections that all arrive at the same time.

    By the real clock, a standstill of the machine between two connections lowers the rate.
    """

    def accept(self, listener_name: str, address: str, now_ms: float) -> Delay:
        return super().accept(listener_name, address, 5000.0)


def test_a_listener_delays_and_rejects_connections(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        listener = node.transport.listener
        listener.rates = SimultaneousRates(RateLimits(2, window_count=2))
        for _ in range(2):
            await node.still_serves()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await node.still_serves()
        # uvloop's clock counts whole milliseconds.
        assert round(1000 * (loop.time() - begin)) >= 500 - 1
        listener.rates = SimultaneousRates(RateLimits(window_count=2))
        listener.rates.limit_address("127.0.0.1", 1.0)
        await node.client()
        rejected = await node.client()
        await rejected.vote()
        assert await rejected.is_closed()

    play(scenario)
