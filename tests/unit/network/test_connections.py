"""The client side of a transport: every request ends in exactly one response or failure."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import time

import pytest

from kraft import errors
from kraft.protocol.add_raft_voter import ADD_RAFT_VOTER
from kraft.protocol.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsResponseData,
    NodeFeatures,
)
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import response_header
from kraft.protocol.vote import VOTE
from kraft.raft import rpc as m
from kraft.raft.interface import (
    RequestFailed,
    ResponseReceived,
)
from kraft.raft.voters import KRaftVersionRange, ReplicaKey
from tests.unit.network.scripted_peers import (
    GRANTED,
    Answers,
    Requests,
    Script,
    Sender,
    grant,
    next_request,
    play,
    shake_hands,
)


def test_one_connection_and_one_handshake_serve_many_requests(loop: str) -> None:
    connections = []

    async def script(reader: Requests, writer: Answers) -> None:
        connections.append(writer)
        await shake_hands(reader, writer)
        while True:
            assert (await grant(reader, writer)).version == 2

    async def scenario(sender: Sender) -> None:
        for _ in range(3):
            correlation = sender.request()
            assert await sender.events.get() == ResponseReceived(correlation, GRANTED)
        sender.request()
        sender.request()
        assert await sender.events.get() == ResponseReceived(4, GRANTED)
        assert await sender.events.get() == ResponseReceived(5, GRANTED)
        assert len(connections) == 1

    play(loop, script, scenario)


def test_the_version_is_supported_by_the_peer(loop: str) -> None:
    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer, (VOTE._replace(highest=1), API_VERSIONS))
        assert (await grant(reader, writer)).version == 1

    async def scenario(sender: Sender) -> None:
        sender.request()
        assert await sender.events.get() == ResponseReceived(1, GRANTED)

    play(loop, script, scenario)


UNSAYABLE = {
    "pre-vote": m.VoteRequest("c", 5, ReplicaKey(2), None, 4, 100, is_pre_vote=True),
    "not-to-wait": m.AddRaftVoterRequest("c", 1, ReplicaKey(2), (), ack_when_committed=False),
    "fetch-by-name": m.FetchRequest("c", ReplicaKey(2), 1, 2, 3),
    "api-unknown": m.DescribeQuorumRequest(),
}


@pytest.mark.parametrize("request_", UNSAYABLE.values(), ids=UNSAYABLE.keys())
def test_a_request_that_the_peer_cannot_read_fails_as_unsupported(
    loop: str, request_: m.Request
) -> None:
    """The connection stays usable."""
    old = (
        *(API_VERSIONS, VOTE._replace(highest=1), FETCH._replace(highest=12)),
        ADD_RAFT_VOTER._replace(highest=0),
    )

    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer, old)
        await grant(reader, writer)

    async def scenario(sender: Sender) -> None:
        sender.request(request_)
        assert await sender.events.get() == RequestFailed(1, is_unsupported=True)
        sender.request()
        assert await sender.events.get() == ResponseReceived(2, GRANTED)

    play(loop, script, scenario)


def test_a_peer_without_api_versions_4_gets_its_own_version(loop: str) -> None:
    versions = []

    async def script(reader: Requests, writer: Answers) -> None:
        asked = await next_request(reader)
        versions.append(asked.version)
        body = ApiVersionsResponseData(errors.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 2)]).encode(0)
        writer.write(response_header(API_VERSIONS, 0, asked.correlation, len(body)) + body)
        asked = await next_request(reader)
        versions.append(asked.version)
        body = ApiVersionsResponseData(0, [ApiVersion(18, 0, 2), ApiVersion(52, 0, 0)]).encode(2)
        writer.write(response_header(API_VERSIONS, 2, asked.correlation, len(body)) + body)
        versions.append((await grant(reader, writer)).version)

    async def scenario(sender: Sender) -> None:
        sender.request()
        assert await sender.events.get() == ResponseReceived(1, GRANTED)
        assert versions == [4, 2, 0]

    play(loop, script, scenario)


def test_the_levels_of_kraft_version_come_from_a_fresh_exchange(loop: str) -> None:
    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer, features=NodeFeatures())
        await shake_hands(reader, writer)
        await grant(reader, writer)

    async def scenario(sender: Sender) -> None:
        sender.request(m.ApiVersionsRequest())
        levels = m.ApiVersionsResponse(0, KRaftVersionRange(0, 1))
        assert await sender.events.get() == ResponseReceived(1, levels)
        sender.request()
        assert await sender.events.get() == ResponseReceived(2, GRANTED)

    play(loop, script, scenario)


def test_a_closed_transport_opens_no_connection(loop: str) -> None:
    connections = 0

    async def script(reader: Requests, writer: Answers) -> None:
        nonlocal connections
        connections += 1

    async def scenario(sender: Sender) -> None:
        await sender.transport.close()
        sender.request()
        await asyncio.sleep(0.05)
        assert sender.events.empty()

    play(loop, script, scenario)
    assert connections == 0


async def hang_up(reader: Requests, writer: Answers) -> None:
    writer.close()


async def hang_up_over_a_request(reader: Requests, writer: Answers) -> None:
    await shake_hands(reader, writer)
    await next_request(reader)


async def say_nothing(reader: Requests, writer: Answers) -> None:
    await asyncio.sleep(60)


async def say_nothing_to_a_request(reader: Requests, writer: Answers) -> None:
    await shake_hands(reader, writer)
    await asyncio.sleep(60)


async def answer_something_else(reader: Requests, writer: Answers) -> None:
    await shake_hands(reader, writer)
    asked = await next_request(reader)
    writer.write(struct.pack(">iib", 5, asked.correlation + 1, 0))
    await asyncio.sleep(60)


async def answer_garbage(reader: Requests, writer: Answers) -> None:
    await shake_hands(reader, writer)
    asked = await next_request(reader)
    writer.write(struct.pack(">iib", 45, asked.correlation, 0) + b"\xff" * 40)
    await asyncio.sleep(60)


async def answer_too_much(reader: Requests, writer: Answers) -> None:
    await shake_hands(reader, writer)
    await next_request(reader)
    writer.write(struct.pack(">i", 2**31 - 1))
    await asyncio.sleep(60)


async def answer_another_topic(reader: Requests, writer: Answers) -> None:
    await shake_hands(reader, writer)
    asked = await next_request(reader)
    writer.write(struct.pack(">iib", 9, asked.correlation, 0) + b"\0\0\1\0")
    await asyncio.sleep(60)


async def talk_unasked(reader: Requests, writer: Answers) -> None:
    await shake_hands(reader, writer)
    writer.write(struct.pack(">ii", 4, 1))
    await asyncio.sleep(60)


async def refuse_the_handshake(reader: Requests, writer: Answers) -> None:
    asked = await next_request(reader)
    body = ApiVersionsResponseData(errors.UNSUPPORTED_VERSION, [ApiVersion(18, 7, 9)]).encode(0)
    writer.write(response_header(API_VERSIONS, 0, asked.correlation, len(body)) + body)
    await asyncio.sleep(60)


FAILURES = (
    *(hang_up, hang_up_over_a_request, say_nothing, say_nothing_to_a_request),
    *(answer_something_else, answer_garbage, answer_too_much, answer_another_topic),
    *(talk_unasked, refuse_the_handshake),
)
#: They fail when their time is over: short, but not for the request that must succeed.
SILENT = {say_nothing: 4000, say_nothing_to_a_request: 4000}


@pytest.mark.parametrize("failure", FAILURES, ids=[script.__name__ for script in FAILURES])
def test_a_bad_peer_fails_the_request_and_the_next_request_reconnects(
    loop: str, failure: Script
) -> None:
    connections = 0

    async def script(reader: Requests, writer: Answers) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await failure(reader, writer)
            return
        await shake_hands(reader, writer)
        await grant(reader, writer)

    async def scenario(sender: Sender) -> None:
        sender.request()
        sender.request()
        assert await sender.events.get() == RequestFailed(1)
        assert await sender.events.get() == RequestFailed(2)
        sender.request()
        assert await sender.events.get() == ResponseReceived(3, GRANTED)

    play(loop, script, scenario, timeout_ms=SILENT.get(failure, 20_000))


def test_closing_while_the_host_name_is_resolved_leaves_no_failure_behind(loop: str) -> None:
    """uvloop logged "Future exception was never retrieved" for the name that does not exist."""
    complaints: list[dict[str, object]] = []

    async def scenario(sender: Sender) -> None:
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda _, context: complaints.append(context))
        sender.peer = sender.peer._replace(host="no-such-host.invalid")
        sender.request()
        # So many turns of the loop, and the task that connects has asked for the addresses.
        for _ in range(5):
            await asyncio.sleep(0)
        await sender.transport.close()
        # The system's answer to the same question comes after that to the first.
        with contextlib.suppress(OSError):
            await running.getaddrinfo("no-such-host.invalid", 80)
        await asyncio.sleep(0.05)
        gc.collect()

    play(loop, hang_up, scenario)
    assert not complaints


def test_an_unreachable_address_and_an_invalid_name_fail(loop: str) -> None:
    async def scenario(sender: Sender) -> None:
        there = sender.peer
        sender.peer = there._replace(port=1)
        sender.request()
        assert await sender.events.get() == RequestFailed(1)
        sender.peer = there._replace(host="no-such-host.invalid")
        sender.request()
        assert await sender.events.get() == RequestFailed(2)
        sender.peer = there._replace(host="a" * 70 + ".b")
        sender.request()
        assert await sender.events.get() == RequestFailed(3)

    play(loop, hang_up, scenario, timeout_ms=2000)


def test_an_unreachable_node_is_logged_once(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """Requests fail many times a second; one log line for each would hide other lines."""

    async def serve(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer)
        await grant(reader, writer)
        writer.close()

    async def scenario(sender: Sender) -> None:
        closed = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = closed.sockets[0].getsockname()[1]
        closed.close()
        await closed.wait_closed()
        sender.peer = sender.peer._replace(port=port)
        for correlation in (1, 2, 3):
            sender.request()
            assert await sender.events.get() == RequestFailed(correlation)
        open_again = await asyncio.start_server(serve, "127.0.0.1", port)
        sender.request()
        assert await sender.events.get() == ResponseReceived(4, GRANTED)
        open_again.close()

    with caplog.at_level("INFO", "kraft.network.connections"):
        play(loop, hang_up, scenario)
    said = [record.getMessage().split(" CONTROLLER")[0] for record in caplog.records]
    assert said == ["cannot connect to", "connected to"]


def test_many_unreachable_destinations_do_not_fill_the_log(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(sender: Sender) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            sender.peer = sender.peer._replace(port=taken.getsockname()[1])
        for id in range(200):
            sender.request(destination=id)
            assert isinstance(await sender.events.get(), RequestFailed)

    began = time.monotonic()
    play(loop, hang_up, scenario)
    events = [record.getMessage() for record in caplog.records]
    assert events[0].startswith("cannot connect to CONTROLLER://127.0.0.1:")
    assert 2 <= len(events) <= 2 + time.monotonic() - began
    assert sum(int(line.split("failed: ")[1].split()[0]) for line in events[1:]) == 199


def test_a_new_endpoint_of_a_destination_is_used(loop: str) -> None:
    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer)
        while True:
            await grant(reader, writer)

    async def scenario(sender: Sender) -> None:
        there = sender.peer
        sender.peer = there._replace(port=1)
        sender.request()
        sender.peer = there
        sender.request()
        events = [await sender.events.get(), await sender.events.get()]
        assert events == [RequestFailed(1), ResponseReceived(2, GRANTED)]

    play(loop, script, scenario)


def test_closing_fails_what_is_in_flight(loop: str) -> None:
    async def scenario(sender: Sender) -> None:
        sender.request()
        await asyncio.sleep(0.02)
        await sender.transport.close()
        assert await sender.events.get() == RequestFailed(1)

    play(loop, say_nothing_to_a_request, scenario)
