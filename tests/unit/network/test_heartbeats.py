"""Requests that keep brokers alive: answered while their bytes are read, if they need no wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from kraft.network import listener
from kraft.protocol.headers import request_frame
from tests.unit.network.listening import (
    BROKER_HEARTBEAT,
    CREATE_TOPICS,
    Node,
    play,
    settle,
    tasks_of_requests,
    until,
)

__all__ = ["play"]

#: One of so many tries is without a standstill of another thread.
TRIES = 20


def beat(body: bytes, correlation: int = 1) -> bytes:
    return request_frame(BROKER_HEARTBEAT, 2, correlation, "broker", body)


async def answered(node: Node, sent: bytes, body: bytes = b"beat") -> None:
    client = await node.client()
    await client.send(sent)
    frame = await client.frame()
    assert frame == (1).to_bytes(4, "big") + b"\0" + body


def test_a_heartbeat_without_a_wait_needs_no_task(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tasks_of_requests(monkeypatch)

    async def scenario(node: Node) -> None:
        await answered(node, beat(b"beat"))
        assert started == [None]

    play(scenario)


def test_a_heartbeat_that_waits_is_answered_after_its_wait(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        node.may_beat = asyncio.Event()
        answer = asyncio.create_task(answered(node, beat(b"beat")))
        await until(lambda: node.beats)
        await node.still_serves()
        assert not answer.done()
        node.may_beat.set()
        await answer

    play(scenario)


def test_a_waiting_heartbeat_is_cancelled_with_its_connection(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        node.may_beat = asyncio.Event()
        client = await node.client()
        await client.send(beat(b"beat"))
        await until(lambda: node.beats)
        await client.close()
        await until(lambda: node.cancelled_beats)
        await until(lambda: not node.transport.listener.connections)

    play(scenario)


@pytest.mark.parametrize("waits", [False, True])
def test_a_fault_of_a_heartbeat_closes_its_connection_only(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    async def scenario(node: Node) -> None:
        node.may_beat = asyncio.Event() if waits else None
        client = await node.client()
        await client.send(beat(b"fault"))
        await until(lambda: node.beats)
        if node.may_beat is not None:
            node.may_beat.set()
        assert await client.is_closed()
        await node.still_serves()

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert "BrokerHeartbeat failed; the connection is closed" in caplog.text


@pytest.mark.parametrize(("size", "count", "most_before"), [(5, 5, 1), (20_000, 100, 50)])
def test_heartbeats_of_others_go_between_those_that_one_peer_sends_at_once(
    play: Callable[..., None], size: int, count: int, most_before: int
) -> None:
    """Large ones arrive one by one, so that it depends on the system's pace how many are before."""

    async def scenario(node: Node) -> None:
        eager, other = await node.client(), await node.client()
        before = count
        # The thread of a data loop may stand still before it has read what the other one sent.
        for _ in range(TRIES):
            node.beats.clear()
            # Neither client's bytes are handled before both were written.
            eager.writer.write(b"".join(beat(b"e" * size) for _ in range(count)))
            other.writer.write(beat(b"other"))
            for client, expected in ((eager, count), (other, 1)):
                for _ in range(expected):
                    await client.frame()
            assert len(node.beats) == count + 1
            before = node.beats.index(b"other")
            if before <= most_before:
                break
        assert before <= most_before

    play(scenario)


def test_an_idle_node_handles_the_heartbeats_of_several_brokers_together(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "GATHER_S", 0.2)

    async def scenario(node: Node) -> None:
        clients = [await node.client() for _ in range(3)]
        for number, client in enumerate(clients):
            await client.send(beat(b"%d" % number))
            await settle()
            assert not node.beats
        await until(lambda: node.beats)
        assert sorted(node.beats) == [b"0", b"1", b"2"]
        for client in clients:
            await client.frame()
        await answered(node, beat(b"beat"))

    play(scenario, gathers_beats=True)


def test_during_another_request_a_heartbeat_is_answered_on_arrival(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "GATHER_S", 3600.0)

    async def scenario(node: Node) -> None:
        creating = await node.client()
        await creating.send(request_frame(CREATE_TOPICS, 7, 1, "a", b"topics"))
        await until(lambda: node.transport.listener.request_count)
        await answered(node, beat(b"beat"))

    play(scenario, is_quick=False, gathers_beats=True)


def test_a_gathered_heartbeat_of_a_closed_connection_is_dropped(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "GATHER_S", 0.2)

    async def scenario(node: Node) -> None:
        gone, other = await node.client(), await node.client()
        await gone.send(beat(b"gone"))
        await other.send(beat(b"other"))
        await settle()
        await gone.close()
        await other.frame()
        assert node.beats == [b"other"]

    play(scenario, gathers_beats=True)
