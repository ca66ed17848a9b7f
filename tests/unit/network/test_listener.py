"""A listener under misbehaving clients (raw sockets): each loses at most its own connection."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from kraft import errors
from kraft.network.listener import Limits
from kraft.protocol.api_versions import (
    API_VERSIONS,
    decode_api_versions_response,
    encode_api_versions_request,
)
from kraft.protocol.describe_quorum import DESCRIBE_QUORUM
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import request_frame
from kraft.protocol.raft_rpcs import encode_request
from kraft.protocol.vote import VOTE
from kraft.raft import rpc as m
from kraft.raft.voters import KRaftVersionRange, ReplicaKey
from tests.unit.network.listening import (
    BROKER_HEARTBEAT,
    CREATE_TOPICS,
    VOTE_REQUEST,
    Node,
    play,
    settle,
    shorten,
    tasks_of_requests,
    until,
)

__all__ = ["play"]


def test_a_vote_is_answered(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.vote(3)
        assert await client.answer() == (3, m.VoteResponse(0, 5, is_granted=True))
        assert node.received[0].request == VOTE_REQUEST

    play(scenario)


def test_requests_sent_at_once_are_answered_in_their_order(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        vote = encode_request(VOTE_REQUEST, 2)
        quorum = encode_request(m.DescribeQuorumRequest(), 1)
        await client.send(
            request_frame(VOTE, 2, 1, "a", vote)
            + request_frame(CREATE_TOPICS, 7, 2, "a", b"topics")
            + request_frame(DESCRIBE_QUORUM, 1, 3, None, quorum)
            + request_frame(VOTE, 2, 4, "", vote)
        )
        assert (await client.answer())[0] == 1
        assert await client.frame() == b"\0\0\0\2" + b"\0" + b"scipot"
        assert await client.answer(DESCRIBE_QUORUM, 1) == (3, m.DescribeQuorumResponse(0, 5, 1))
        assert (await client.answer())[0] == 4

    play(scenario)


def test_a_request_waits_for_the_previous_response(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        for correlation in (1, 2, 3):
            await client.vote(correlation)
        await settle()
        assert len(node.received) == 1
        for count in (1, 2, 3):
            await until(lambda count=count: len(node.received) == count)
            node.answer(node.received[-1])
            assert (await client.answer())[0] == count

    play(scenario, is_quick=False)


def test_a_request_to_a_handler_without_a_wait_needs_no_task(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tasks_of_requests(monkeypatch)

    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.echo()
        await client.echo(b"large" * 10_000)
        assert started == [None, None]

    play(scenario)


@pytest.mark.parametrize("size", [5, 20_000])
def test_a_quick_request_is_answered_after_the_slow_one_before_it(
    play: Callable[..., None], size: int
) -> None:
    async def scenario(node: Node) -> None:
        client, body = await node.client(), b"a" * size
        slow = request_frame(CREATE_TOPICS, 2, 1, "x", body)
        quick = request_frame(BROKER_HEARTBEAT, 2, 2, "x", body)
        await client.send(slow + quick + quick)
        await until(lambda: node.senders)
        await settle()
        assert not node.beats
        node.may_echo.set()
        correlations = [int.from_bytes((await client.frame())[:4], "big") for _ in range(3)]
        assert correlations == [1, 2, 2]

    play(scenario, is_quick=False)


def test_a_request_may_arrive_byte_by_byte(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        body = encode_request(VOTE_REQUEST, 2)
        for byte in request_frame(VOTE, 2, 9, "slow", body):
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer())[0] == 9

    play(scenario)


def test_a_large_request_is_handled_complete(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        body = bytes(range(256)) * 12_000
        vote = request_frame(VOTE, 2, 2, "b", encode_request(VOTE_REQUEST, 2))
        await client.send(request_frame(CREATE_TOPICS, 7, 1, "b", body) + vote)
        assert await client.frame() == b"\0\0\0\1\0" + body[::-1]
        assert (await client.answer())[0] == 2

    play(scenario)


BAD_FRAMES = {
    "oversized": struct.pack(">ihh", 100 * 1024 * 1024 + 1, 19, 7),
    "oversized-for-raft": struct.pack(">ihh", 2 * 1024 * 1024, 52, 2),
    "negative-size": struct.pack(">i", -1),
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "no-header": struct.pack(">i", 0),
    "half-a-header": struct.pack(">ihh", 4, 52, 2),
    "client-id-beyond-the-frame": struct.pack(">ihhih", 10, 52, 2, 1, 30000),
    "header-tags-without-end": struct.pack(">ihhih", 12, 52, 2, 1, -1) + b"\xff\xff",
    "unknown-api": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "api-not-served": struct.pack(">ihhih", 10, 3, 12, 1, -1),
    "version-not-served": struct.pack(">ihhihb", 11, 52, 3, 1, -1, 0),
    "empty-body": struct.pack(">ihhihb", 11, 52, 2, 1, -1, 0),
    "truncated-body": request_frame(VOTE, 2, 1, "x", encode_request(VOTE_REQUEST, 2)[:-5]),
    "overlong-body": request_frame(VOTE, 2, 1, "x", encode_request(VOTE_REQUEST, 2) + b"\0"),
    # A count that would allocate 34 GB without a check.
    "a-claimed-count": request_frame(VOTE, 2, 1, "x", b"\1\0\0\0\0\xfe\xff\xff\xff\x0f"),
    "fetch-garbage": request_frame(FETCH, 18, 1, "x", b"\xff" * 60),
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_malformed_bytes_close_only_their_connection(
    play: Callable[..., None], frame: bytes
) -> None:
    async def scenario(node: Node) -> None:
        neighbour = await node.client()
        stranger = await node.client()
        await stranger.send(frame)
        assert await stranger.is_closed()
        await neighbour.vote()
        assert (await neighbour.answer())[0] == 1
        assert [event.request for event in node.received] == [VOTE_REQUEST]

    play(scenario)


def test_a_client_id_of_any_bytes_is_served(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        frame = request_frame(VOTE, 2, 7, "m?ller", encode_request(VOTE_REQUEST, 2))
        await client.send(frame.replace(b"m?ller", b"m\xfcller"))
        assert (await client.answer())[0] == 7

    play(scenario)


def test_a_frame_that_never_ends_closes_the_connection(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        truncated = await node.client()
        await truncated.send(struct.pack(">ih", 500, 52))
        barely = await node.client()
        await barely.send(b"\0\0")
        assert await truncated.is_closed()
        assert await barely.is_closed()
        await node.still_serves()

    play(scenario, Limits(request_read_timeout_ms=50))


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        waiting = await node.client()
        await waiting.vote()
        idle = await node.client()
        await until(lambda: node.received)
        shorten(node, max_idle_ms=50)
        assert await idle.is_closed()
        node.answer(node.received[0])
        assert (await waiting.answer())[0] == 1
        assert await waiting.is_closed()

    play(scenario, is_quick=False)


def test_a_peer_that_vanishes_leaves_nothing_behind(play: Callable[..., None]) -> None:
    """The listener drops a response that comes after the disconnection."""

    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.vote()
        await until(lambda: node.received)
        client.writer.transport.abort()
        await until(lambda: not node.transport.listener.connections)
        node.answer(node.received[0])
        assert len(node.transport.listener.admission) == 0
        # RequestAbandoned lets the raft node forget a waiting fetch.
        assert node.abandoned == [node.received[0].reply_to]
        node.is_quick = True
        await node.still_serves()

    play(scenario, is_quick=False)


def test_a_peer_that_does_not_read_its_responses_is_disconnected(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        slow = await node.client()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        fetch = encode_request(m.FetchRequest(None, ReplicaKey(3), 5, 0, 0), 18)
        for correlation in range(4):
            await slow.send(request_frame(FETCH, 18, correlation, "slow", fetch))
        await until(lambda: node.transport.listener.connections)
        await until(lambda: not node.transport.listener.connections)
        # The listener did not read the next request before the first response was sent.
        assert len(node.received) == 1
        await node.still_serves()

    play(scenario, Limits(response_write_timeout_ms=60), fetch_size=32 * 1024 * 1024)


def test_a_large_answer_arrives_whole(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        fetch = encode_request(m.FetchRequest(None, ReplicaKey(3), 5, 0, 0), 18)
        await client.send(request_frame(FETCH, 18, 1, "x", fetch) * 2)
        for _ in range(2):
            _, response = await client.answer(FETCH, 18)
            assert isinstance(response, m.FetchResponse)
            assert bytes(response.records) == b"\x2a" * node.fetch_size

    play(scenario, fetch_size=3_000_000)


def test_a_response_written_just_before_closing_arrives(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        unanswered = await node.client()
        await unanswered.vote()
        await until(lambda: len(node.received) == 1)
        await client.vote()
        await until(lambda: len(node.received) == 2)
        node.answer(node.received[1])
        await node.transport.close()
        assert (await client.answer())[0] == 1
        assert await client.is_closed()
        assert await unanswered.is_closed()

    play(scenario, is_quick=False)


def test_malformed_requests_are_answered_without_the_raft_node(
    play: Callable[..., None],
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        # A Vote of version 2 without topics; a Fetch of version 11, which names topics by name.
        await client.send(request_frame(VOTE, 2, 1, "x", b"\0\xff\xff\xff\xff\1\0"))
        assert (await client.answer())[1] == m.VoteResponse(errors.INVALID_REQUEST)
        await client.send(request_frame(FETCH, 11, 2, "x", b"\0" * 30))
        frame = await client.frame()
        assert frame == struct.pack(">iihii", 2, 0, errors.INVALID_REQUEST, 0, 0)
        assert node.received == []

    play(scenario)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_the_supported_apis(play: Callable[..., None], version: int) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        body = encode_api_versions_request(version, "1.0")
        await client.send(request_frame(API_VERSIONS, version, 6, "x", body))
        frame = await client.frame()
        assert frame[:4] == b"\0\0\0\6"
        said = decode_api_versions_response(version, frame, 4)
        assert said.error == 0
        assert said.ranges[52] == (0, 2)
        assert said.ranges[1] == (4, 18)
        assert said.ranges[19] == (2, 7)
        metadata = {"metadata.version": KRaftVersionRange(7, 29)}
        kraft = {"kraft.version": KRaftVersionRange(0, 1)}
        assert said.supported == ({}, {}, {}, metadata, metadata | kraft)[version]
        assert said.finalized == ({"metadata.version": 29} if version >= 3 else {})

    play(scenario)


def test_an_unknown_version_of_api_versions_gets_the_supported_range(
    play: Callable[..., None],
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.send(request_frame(API_VERSIONS, 9, 6, "x", b"whatever"))
        said = decode_api_versions_response(9, await client.frame(), 4)
        assert said.error == errors.UNSUPPORTED_VERSION
        assert said.ranges == {18: (API_VERSIONS.lowest, API_VERSIONS.highest)}
        await client.vote()
        assert (await client.answer())[0] == 1

    play(scenario)


@pytest.mark.parametrize("name", ["", "-x", "a b", "ä", "x."])
def test_a_software_name_must_match_the_pattern(play: Callable[..., None], name: str) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        encoded = name.encode()
        body = bytes([len(encoded) + 1]) + encoded + b"\x02a\0"
        await client.send(request_frame(API_VERSIONS, 3, 6, "x", body))
        assert (
            decode_api_versions_response(3, await client.frame(), 4).error == errors.INVALID_REQUEST
        )

    play(scenario)
