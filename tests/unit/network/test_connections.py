"""The client side of a transport: every request ends in exactly one response or failure."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import uvloop

from kraft import errors
from kraft.network.transport import MAX_PEERS, Transport, TransportConfig
from kraft.protocol.add_raft_voter import ADD_RAFT_VOTER
from kraft.protocol.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsResponseData,
    NodeFeatures,
    answer_api_versions,
)
from kraft.protocol.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequestData,
    ControllerRegistrationResponseData,
)
from kraft.protocol.fetch import FETCH
from kraft.protocol.fetch_snapshot import FETCH_SNAPSHOT
from kraft.protocol.headers import Api, response_header
from kraft.protocol.raft_rpcs import encode_response
from kraft.protocol.vote import VOTE
from kraft.raft import rpc as m
from kraft.raft.interface import (
    Event,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SendRequest,
)
from kraft.raft.interface import SendResponse as Answer
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import Uuid
from tests.harness.commands import PATIENCE_S

LISTENER = "CONTROLLER"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
VOTE_REQUEST = m.VoteRequest("cluster", 5, ReplicaKey(2), ReplicaKey(1), 4, 100)
GRANTED = m.VoteResponse(0, 5, is_granted=True)
OURS = (API_VERSIONS, VOTE, FETCH, ADD_RAFT_VOTER)
KRAFT_FEATURE = NodeFeatures({"kraft.version": KRaftVersionRange(0, 1)})

Requests = asyncio.StreamReader
Answers = asyncio.StreamWriter
Script = Callable[[Requests, Answers], Awaitable[None]]


@dataclass
class Sender:
    """A transport without listeners, and the events that it has delivered."""

    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    transport: Transport = field(init=False)
    peer: Endpoint = field(init=False)
    _sent: int = 0

    def request(self, request: m.Request = VOTE_REQUEST, destination: int = 1) -> int:
        self._sent += 1
        send = SendRequest(destination, self.peer, request, self._sent)
        before = self.events.qsize()
        self.transport.send(send)
        assert self.events.qsize() == before, "the transport delivered an event within send"
        return self._sent


def play(
    loop: str,
    script: Script,
    scenario: Callable[[Sender], Awaitable[None]],
    timeout_ms: int = 20_000,
) -> None:
    """Run ``scenario`` with a sender; ``script`` serves each connection to its peer."""

    async def serve(reader: Requests, writer: Answers) -> None:
        try:
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def run() -> None:
        sender = Sender()
        config = TransportConfig(7, request_timeout_ms=timeout_ms)
        sender.transport = Transport(config, sender.events.put_nowait, memoryview)  # type: ignore
        await sender.transport.start()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sender.peer = Endpoint(LISTENER, "127.0.0.1", port)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(sender)
        finally:
            await sender.transport.close()
            server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


@dataclass
class Asked:
    """The header of a request, and its body."""

    key: int
    version: int
    correlation: int
    client_id: str
    body: bytes


async def next_request(reader: Requests) -> Asked:
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    key, version, correlation, length = struct.unpack_from(">hhih", frame)
    return Asked(key, version, correlation, frame[10 : 10 + length].decode(), frame[10 + length :])


async def shake_hands(
    reader: Requests,
    writer: Answers,
    apis: tuple[Api, ...] = OURS,
    features: NodeFeatures | None = None,
) -> None:
    asked = await next_request(reader)
    assert asked.key == API_VERSIONS.key
    assert asked.client_id == "raft-client-7"
    said, body = answer_api_versions(asked.version, asked.body, 1, apis, features or KRAFT_FEATURE)
    assert said == asked.version
    writer.write(response_header(API_VERSIONS, said, asked.correlation, len(body)) + body)


async def grant(reader: Requests, writer: Answers) -> Asked:
    asked = await next_request(reader)
    assert asked.key == VOTE.key
    body = b"".join(encode_response(GRANTED, asked.version, LISTENER, memoryview))  # type: ignore
    writer.write(response_header(VOTE, asked.version, asked.correlation, len(body)) + body)
    return asked


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


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

    play(loop, script, scenario, timeout_ms=1000)


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


CHUNKS = [
    m.FetchSnapshotRequest("cluster", ReplicaKey(7), 5, m.OffsetAndEpoch(9, 4), position, 10)
    for position in (0, 10, 20)
]


async def give_chunk(asked: Asked, position: int, writer: Answers) -> m.FetchSnapshotResponse:
    id, leader_at = m.OffsetAndEpoch(9, 4), Endpoint(LISTENER, "leader", 9093)
    given = m.FetchSnapshotResponse(0, 5, 1, (leader_at,), id, 30, position, bytes([position]) * 10)
    pieces = encode_response(given, asked.version, LISTENER, memoryview)  # type: ignore
    body = b"".join(pieces)
    header = response_header(FETCH_SNAPSHOT, asked.version, asked.correlation, len(body))
    writer.write(header + body)
    return given


def test_chunks_are_requested_without_waiting_and_delivered_in_order(loop: str) -> None:
    given = []

    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer, (*OURS, FETCH_SNAPSHOT))
        asked = [await next_request(reader) for _ in CHUNKS]
        for position, one in zip((0, 10, 20), asked, strict=True):
            given.append(await give_chunk(one, position, writer))
        # Only chunk requests are sent without waiting: the vote request follows their responses.
        await grant(reader, writer)

    async def scenario(sender: Sender) -> None:
        sent = [sender.request(request) for request in CHUNKS]
        sent.append(sender.request(VOTE_REQUEST))
        events = [await sender.events.get() for _ in sent]
        assert events == [
            ResponseReceived(correlation, response)
            for correlation, response in zip(sent, [*given, GRANTED], strict=True)
        ]

    play(loop, script, scenario)


def test_a_chunk_request_waits_for_a_request_of_another_kind(loop: str) -> None:
    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer, (*OURS, FETCH_SNAPSHOT))
        asked = await next_request(reader)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.readexactly(1)
        body = b"".join(encode_response(GRANTED, asked.version, LISTENER, memoryview))  # type: ignore
        writer.write(response_header(VOTE, asked.version, asked.correlation, len(body)) + body)
        await give_chunk(await next_request(reader), 0, writer)

    async def scenario(sender: Sender) -> None:
        sent = [sender.request(VOTE_REQUEST), sender.request(CHUNKS[0])]
        events = [await sender.events.get() for _ in sent]
        assert [event.correlation for event in events] == sent  # type: ignore[union-attr]
        assert {type(event) for event in events} == {ResponseReceived}

    play(loop, script, scenario)


def test_a_response_starts_the_timeout_of_the_next_chunk(loop: str) -> None:
    """Each of three responses arrives within 1.4 s, the timeout; all together take longer."""

    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer, (*OURS, FETCH_SNAPSHOT))
        for position in (0, 10, 20):
            asked = await next_request(reader)
            await asyncio.sleep(0.5)
            await give_chunk(asked, position, writer)

    async def scenario(sender: Sender) -> None:
        sent = [sender.request(request) for request in CHUNKS]
        events = [await sender.events.get() for _ in sent]
        assert [type(event) for event in events] == [ResponseReceived] * 3

    play(loop, script, scenario, timeout_ms=1400)


def test_a_connection_that_is_lost_fails_every_chunk_once(loop: str) -> None:
    async def script(reader: Requests, writer: Answers) -> None:
        await shake_hands(reader, writer, (*OURS, FETCH_SNAPSHOT))
        await give_chunk(await next_request(reader), 0, writer)
        await next_request(reader)

    async def scenario(sender: Sender) -> None:
        sent = [sender.request(request) for request in CHUNKS]
        events = [await sender.events.get() for _ in sent]
        assert isinstance(events[0], ResponseReceived)
        assert events[1:] == [RequestFailed(sent[1]), RequestFailed(sent[2])]

    play(loop, script, scenario)


def test_two_transports_carry_a_log_and_a_snapshot(loop: str) -> None:
    """The bytes of each log or snapshot slice of the leader arrive, from 0 bytes to 3 MB."""
    batches = {size: bytes([size % 251]) * size for size in (0, 1, 70_000, 3_000_000)}

    async def run() -> None:
        events: asyncio.Queue[Event] = asyncio.Queue()
        leader_at = Endpoint(LISTENER, "leader", 9093)

        def resolve(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
            return memoryview(batches[slice.max_size])

        def lead(event: Event) -> None:
            assert isinstance(event, RequestReceived)
            asked = event.request
            response: m.Response
            if isinstance(asked, m.FetchRequest):
                records = m.LogSlice(0, 9, asked.max_bytes)
                response = m.FetchResponse(0, 5, 1, (leader_at,), 8, 0, records=records)
            else:
                assert isinstance(asked, m.FetchSnapshotRequest)
                data = m.SnapshotSlice(asked.snapshot_id, asked.position, asked.max_bytes)
                response = m.FetchSnapshotResponse(
                    *(0, 5, 1, (leader_at,), asked.snapshot_id, 1 << 40, asked.position, data)
                )
            leader.send(Answer(event.reply_to, response))

        config = TransportConfig(1, (Endpoint(LISTENER, "127.0.0.1", 0),))
        leader = Transport(config, lead, resolve)
        follower = Transport(TransportConfig(2), events.put_nowait, resolve)
        await leader.start()
        await follower.start()
        key = ReplicaKey(2)
        id = m.OffsetAndEpoch(100, 4)
        for size, expected in batches.items():
            fetch = m.FetchRequest("c", key, 5, 0, 0, max_bytes=size)
            follower.send(SendRequest(1, leader.endpoints[0], fetch, size))
            event = await events.get()
            assert isinstance(event, ResponseReceived)
            assert event.response == m.FetchResponse(0, 5, 1, (leader_at,), 8, 0, records=expected)
            chunk = m.FetchSnapshotRequest("c", key, 5, id, 7 << 32, max_bytes=size)
            follower.send(SendRequest(1, leader.endpoints[0], chunk, size))
            event = await events.get()
            assert isinstance(event, ResponseReceived)
            assert event.response == m.FetchSnapshotResponse(
                0, 5, 1, (leader_at,), id, 1 << 40, 7 << 32, expected
            )
        await follower.close()
        await leader.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_number_of_destinations_is_limited(loop: str) -> None:
    """Any peer can name new destinations: in a request of a later epoch, or in AddRaftVoter."""

    handshakes = 0

    async def obliging(reader: Requests, writer: Answers) -> None:
        nonlocal handshakes
        await shake_hands(reader, writer)
        handshakes += 1
        while True:
            await grant(reader, writer)

    async def scenario(sender: Sender) -> None:
        for id in (*range(3 * MAX_PEERS), 3 * MAX_PEERS - 1):
            sender.request(destination=id)
            assert isinstance(await sender.events.get(), ResponseReceived)
        assert len(sender.transport._peers) == MAX_PEERS
        # The most recently used destination is still connected.
        assert handshakes == 3 * MAX_PEERS

    play(loop, obliging, scenario)


REGISTRATION = ControllerRegistrationRequestData(7, Uuid(b"\1" * 16))


async def register(sender: Sender) -> ControllerRegistrationResponseData:
    return await sender.transport.call(
        sender.peer, CONTROLLER_REGISTRATION, REGISTRATION, ControllerRegistrationResponseData
    )


def test_a_call_has_a_connection_of_its_own(loop: str) -> None:
    connections = []
    answer = ControllerRegistrationResponseData(error_code=41, error_message="no")

    async def script(reader: Requests, writer: Answers) -> None:
        connections.append(writer)
        await shake_hands(reader, writer, (*OURS, CONTROLLER_REGISTRATION))
        asked = await next_request(reader)
        if asked.key == VOTE.key:
            # The raft node's request gets no response; the call must not wait for it.
            await reader.read()
            return
        assert asked.body[1:] == REGISTRATION.encode(0)
        body = answer.encode(0)
        start = response_header(CONTROLLER_REGISTRATION, 0, asked.correlation, len(body))
        writer.write(start + body)
        assert await reader.read() == b"", "the connection is closed after the response"

    async def scenario(sender: Sender) -> None:
        sender.request()
        assert await register(sender) == answer
        assert len(connections) == 2
        assert sender.events.empty()

    play(loop, script, scenario)


def test_a_call_without_a_response_raises(loop: str) -> None:
    connections = 0

    async def script(reader: Requests, writer: Answers) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await shake_hands(reader, writer)
            await reader.read()
        elif connections == 2:
            writer.close()
        else:
            await reader.read()

    async def scenario(sender: Sender) -> None:
        with pytest.raises(errors.UnsupportedVersionError, match="ControllerRegistration"):
            await register(sender)
        for _ in range(2):
            # The second call loses its connection; the third gets no response in time.
            with pytest.raises(ConnectionError, match="did not answer"):
                await register(sender)
        assert connections == 3

    play(loop, script, scenario, timeout_ms=200)
