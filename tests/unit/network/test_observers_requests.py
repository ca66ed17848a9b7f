"""Requests of observers that arrive in one turn of the event loop reach the raft node together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraft.network.server_connection import ServerConnection
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import request_frame
from kraft.protocol.raft_rpcs import encode_request
from kraft.raft import rpc as m
from kraft.raft.interface import RequestReceived, SendResponse
from kraft.raft.voters import Endpoint, ReplicaKey
from tests.unit.network.listening import (
    FETCH_FRAME,
    LISTENER,
    VOTE_REQUEST,
    Node,
    play,
    until,
)

__all__ = ["play"]


def test_fetches_of_one_turn_are_delivered_together(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        clients = [await node.client() for _ in range(8)]
        connections = node.transport.listener.connections
        await until(lambda: len(connections) == len(clients))
        for connection in connections:
            assert isinstance(connection, ServerConnection)
            # As the loop calls it for each socket with a request, before it calls anything else.
            connection.frame_received(FETCH_FRAME[4:])
        assert node.together == []
        for client in clients:
            assert (await client.answer(FETCH, 18))[0] == 6
        assert node.together == [8]

    play(scenario)


def test_a_vote_does_not_wait_for_the_turn_to_end(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.vote(7)
        assert (await client.answer())[0] == 7
        assert node.together == []
        assert [each.request for each in node.received] == [VOTE_REQUEST]

    play(scenario)


def test_a_request_reaches_the_raft_node_before_it_is_abandoned(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        await node.client()
        listener = node.transport.listener
        await until(lambda: listener.connections)
        (connection,) = listener.connections
        reply_to = listener.await_answer(connection)
        listener.deliver_together(RequestReceived(VOTE_REQUEST, reply_to))
        assert node.together == []
        listener.forget(reply_to)
        assert node.together == [1]
        assert node.abandoned == [reply_to]
        await asyncio.sleep(0)
        assert node.together == [1]

    play(scenario, is_quick=False)


def test_one_response_reaches_each_observer_in_its_version(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        versions = [18, 17, 17, 13, 18]
        clients = [await node.client() for _ in versions]
        for number, (client, version) in enumerate(zip(clients, versions, strict=True)):
            fetch = m.FetchRequest("cluster", ReplicaKey(1000 + number), 5, 0, 0)
            body = encode_request(fetch, version)
            await client.send(request_frame(FETCH, version, number, "broker", body))
        await until(lambda: len(node.received) == len(versions))
        leader = (Endpoint(LISTENER, "leader", 9093),)
        for records in (m.LogSlice(0, 1, 1), b""):
            response = m.FetchResponse(0, 5, 1, leader, 7, records=records)
            for each in node.received:
                node.transport.send(SendResponse(each.reply_to, response))
            node.received.clear()
            await asyncio.sleep(0)
            assert node.transport.listener._encoded is None, "no slice of the log is kept"
            for number, (client, version) in enumerate(zip(clients, versions, strict=True)):
                correlation, answer = await client.answer(FETCH, version)
                assert correlation == number
                assert answer == m.FetchResponse(
                    0, 5, 1, leader if version >= 17 else (), 7, records=b"*" if records else b""
                )
                fetch = m.FetchRequest("cluster", ReplicaKey(1000 + number), 5, 1, 5)
                body = encode_request(fetch, version)
                await client.send(request_frame(FETCH, version, number, "broker", body))
            await until(lambda: len(node.received) == len(versions))

    play(scenario, is_quick=False, fetch_size=1)


def test_different_responses_of_one_turn_are_not_confused(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        clients = [await node.client() for _ in range(3)]
        for number, client in enumerate(clients):
            fetch = m.FetchRequest("cluster", ReplicaKey(1000 + number), 5, 0, 0)
            body = encode_request(fetch, 18)
            await client.send(request_frame(FETCH, 18, number, "broker", body))
        await until(lambda: len(node.received) == len(clients))
        for each in node.received:
            assert isinstance(each.request, m.FetchRequest)
            response = m.FetchResponse(0, 5, 1, (), each.request.replica.id)
            node.transport.send(SendResponse(each.reply_to, response))
        for number, client in enumerate(clients):
            correlation, answer = await client.answer(FETCH, 18)
            assert (correlation, answer) == (number, m.FetchResponse(0, 5, 1, (), 1000 + number))

    play(scenario, is_quick=False)
