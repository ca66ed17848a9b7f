"""Requests on a connection: chunks of a snapshot, two transports, and calls of their own."""

from __future__ import annotations

import asyncio

import pytest

from kraft import errors
from kraft.network.transport import MAX_PEERS, Transport, TransportConfig
from kraft.protocol.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequestData,
    ControllerRegistrationResponseData,
)
from kraft.protocol.fetch_snapshot import FETCH_SNAPSHOT
from kraft.protocol.headers import response_header
from kraft.protocol.raft_rpcs import encode_response
from kraft.protocol.vote import VOTE
from kraft.raft import rpc as m
from kraft.raft.interface import (
    Event,
    RequestFailed,
    RequestsReceived,
    ResponseReceived,
    SendRequest,
)
from kraft.raft.interface import SendResponse as Answer
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.records import Uuid
from tests.harness.standstills import despite_standstills
from tests.unit.network.scripted_peers import (
    GRANTED,
    LISTENER,
    LOOPS,
    OURS,
    VOTE_REQUEST,
    Answers,
    Asked,
    Requests,
    Sender,
    grant,
    next_request,
    play,
    shake_hands,
)

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
    """Each of three responses arrives within 1.4 s, the timeout; all together take longer.

    Each takes 0.5 s.
    """

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

    despite_standstills(lambda: play(loop, script, scenario, timeout_ms=1400), 0.5)


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
            assert isinstance(event, RequestsReceived)
            ((asked, reply_to),) = [(each.request, each.reply_to) for each in event.requests]
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
            leader.send(Answer(reply_to, response))

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
        else:
            writer.close()

    async def scenario(sender: Sender) -> None:
        with pytest.raises(errors.UnsupportedVersionError, match="ControllerRegistration"):
            await register(sender)
        # The second call loses its connection.
        with pytest.raises(ConnectionError, match="did not answer"):
            await register(sender)
        assert connections == 2

    play(loop, script, scenario)


def test_a_call_without_a_response_in_time_raises(loop: str) -> None:
    async def script(reader: Requests, writer: Answers) -> None:
        await reader.read()

    async def scenario(sender: Sender) -> None:
        with pytest.raises(ConnectionError, match="did not answer"):
            await register(sender)

    play(loop, script, scenario, timeout_ms=200)
