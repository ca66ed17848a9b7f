"""Answers to observers are sent some bytes in a turn of the loop, and delay no other answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from kraft.network.framing import Buffer
from kraft.network.paced_answers import (
    ANSWER_BYTES,
    SLOW_S,
    TURN_BYTES,
    UNREAD_BYTES,
    PacedAnswers,
)
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import request_frame
from kraft.protocol.raft_rpcs import encode_request
from kraft.raft import rpc as m
from kraft.raft.voters import ReplicaKey
from tests.unit.network.listening import Client, Node, play, until

__all__ = ["play"]

_MIB = 1 << 20


class _StoppedClock(asyncio.SelectorEventLoop):
    """A loop whose time passes only when a test says so."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


class _Peer:
    """A connection; a slow one has not taken its answer until the test says so."""

    def __init__(self, begun: list[_Peer], *, is_slow: bool = False) -> None:
        self._begun = begun
        self._is_slow = is_slow
        self.is_writing = False

    def answer_paced(self, pieces: Sequence[Buffer]) -> None:
        self._begun.append(self)
        self.is_writing = self._is_slow


async def turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def on_stopped_clock(scenario: Callable[[_StoppedClock], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=_StoppedClock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, _StoppedClock)
        runner.run(scenario(loop))


def test_a_turn_begins_as_many_answers_as_have_room() -> None:
    async def scenario(loop: _StoppedClock) -> None:
        paced, begun = PacedAnswers(), list[_Peer]()
        peers = [_Peer(begun) for _ in range(9)]
        for peer in peers:
            paced.send(peer, [bytes(_MIB - ANSWER_BYTES)])
        assert not begun
        await turns()
        assert begun == peers[: TURN_BYTES // _MIB]
        # Other work gets its turn in between.
        await turns()
        assert begun == peers[: 2 * TURN_BYTES // _MIB]
        await turns(3)
        assert begun == peers
        assert not len(paced)

    on_stopped_clock(scenario)


def test_small_answers_to_a_thousand_brokers_are_begun_in_one_turn() -> None:
    async def scenario(loop: _StoppedClock) -> None:
        paced, begun = PacedAnswers(), list[_Peer]()
        for _ in range(1000):
            paced.send(_Peer(begun), [bytes(40)])
        await turns()
        assert len(begun) == 1000

    on_stopped_clock(scenario)


def test_what_peers_have_not_taken_is_bounded() -> None:
    async def scenario(loop: _StoppedClock) -> None:
        paced, begun = PacedAnswers(), list[_Peer]()
        most = UNREAD_BYTES // TURN_BYTES
        for _ in range(most + 2):
            paced.send(_Peer(begun, is_slow=True), [bytes(TURN_BYTES - ANSWER_BYTES)])
        await turns(2 * most)
        assert len(begun) == most
        # A new answer does not overtake those that wait.
        last = _Peer(begun)
        paced.send(last, [b"news"])
        await turns(3)
        assert len(begun) == most
        paced.taken(begun[3])
        await turns(3)
        assert len(begun) == most + 1
        # Its connection closes: it is not counted twice.
        paced.taken(begun[3])
        await turns(3)
        assert len(begun) == most + 1
        paced.taken(begun[0])
        await turns(3)
        assert begun[-1] is not last
        paced.taken(begun[1])
        await turns(3)
        assert begun[-1] is last

    on_stopped_clock(scenario)


def test_slow_peers_delay_the_others_for_a_bounded_time() -> None:
    async def scenario(loop: _StoppedClock) -> None:
        paced, begun = PacedAnswers(), list[_Peer]()
        for _ in range(UNREAD_BYTES // _MIB):
            paced.send(_Peer(begun, is_slow=True), [bytes(_MIB)])
        other = _Peer(begun)
        paced.send(other, [b"news"])
        await turns(UNREAD_BYTES // TURN_BYTES + 2)
        assert other not in begun
        loop.now_s += SLOW_S / 2
        await turns(3)
        assert other not in begun
        loop.now_s += SLOW_S / 2
        await turns(3)
        assert begun[-1] is other

    on_stopped_clock(scenario)


def test_a_closed_queue_sends_nothing_more() -> None:
    async def scenario(loop: _StoppedClock) -> None:
        paced, begun = PacedAnswers(), list[_Peer]()
        for _ in range(5):
            paced.send(_Peer(begun), [bytes(TURN_BYTES)])
        await turns()
        paced.close()
        await turns(5)
        assert len(begun) == 1

    on_stopped_clock(scenario)


async def _ask(node: Node, replica: ReplicaKey) -> Client:
    client = await node.client()
    request = m.FetchRequest("cluster", replica, 5, 0, 0)
    await client.send(request_frame(FETCH, 18, 6, "replica", encode_request(request, 18)))
    return client


def _answer_all(node: Node) -> None:
    for event in node.received:
        node.answer(event)
    node.received.clear()


def test_answers_to_observers_wait_and_those_to_voters_do_not(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        observers = [await _ask(node, ReplicaKey(1000 + index)) for index in range(20)]
        voter = await _ask(node, ReplicaKey(2))
        await until(lambda: len(node.received) == 21)
        listener = node.transport.listener
        _answer_all(node)
        # Nothing ran since: the answer to the voter, the last, is written, and no other.
        assert len(listener.paced) == 20
        assert listener.traffic.listeners["CONTROLLER"].requests == 1
        assert (await voter.answer(FETCH, 18))[0] == 6
        for each in observers:
            _, response = await each.answer(FETCH, 18)
            assert isinstance(response, m.FetchResponse)
            assert isinstance(response.records, memoryview)
            assert len(response.records) == _MIB
        assert not len(listener.paced)
        # The connections take the next request.
        await observers[0].vote()
        await until(lambda: node.received)
        _answer_all(node)
        assert (await observers[0].answer())[0] == 1

    play(scenario, is_quick=False, fetch_size=_MIB)


def test_an_observer_that_leaves_while_its_answer_waits_is_passed_over(
    play: Callable[..., None],
) -> None:
    async def scenario(node: Node) -> None:
        observers = [await _ask(node, ReplicaKey(1000 + index)) for index in range(12)]
        await until(lambda: len(node.received) == 12)
        listener = node.transport.listener
        _answer_all(node)
        for each in observers[6:]:
            each.writer.transport.abort()
        assert len(listener.paced) == 12
        for each in observers[:6]:
            assert (await each.answer(FETCH, 18))[0] == 6
        await until(lambda: not len(listener.paced) and len(listener.connections) == 6)
        node.is_quick = True
        await node.still_serves()

    play(scenario, is_quick=False, fetch_size=_MIB)


@pytest.mark.parametrize("count", [1, 3])
def test_answers_keep_their_order_on_a_connection(play: Callable[..., None], count: int) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        for _ in range(count):
            await client.fetch()
            await client.describe()

    play(scenario, fetch_size=3 * _MIB)
