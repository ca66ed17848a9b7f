"""A data connection gives the answers that a handler foresees: how many, for how long, to whom."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kraft.errors import NONE
from kraft.network.data_connection import DataConnection
from kraft.network.handler import ExpectedRequest, HandlerAnswer
from kraft.network.listener import Listener
from kraft.protocol.headers import RequestHeader, request_frame
from kraft.security.protocols import PeerIdentity
from tests.unit.network.listening import (
    CREATE_TOPICS,
    LISTENER,
    Client,
    Node,
    on_data_loops,
    play,
    until,
)

__all__ = ["play"]


@dataclass
class Counting:
    """Foresees the numbers after one; each answer names its giver and the number."""

    number: int
    runs: list[Counting]
    #: How many it was asked for, each time.
    asked: list[int] = field(default_factory=list)
    given: int = 0
    withdraw: Callable[[], None] | None = None

    def begin(self, most: int, withdraw: Callable[[], None]) -> Sequence[ExpectedRequest]:
        self.withdraw = withdraw
        self.runs.append(self)
        return self.more(most)

    def more(self, most: int) -> Sequence[ExpectedRequest]:
        first = self.number + 1 + sum(self.asked)
        self.asked.append(most)
        following = range(first, first + most)
        return [ExpectedRequest(b"%d" % each, [b"ahead ", b"%d" % each]) for each in following]

    def answered(self, count: int) -> None:
        self.given += count

    def end(self) -> None:
        self.withdraw = None


@dataclass
class Numbers:
    """The handler of a node, and a client."""

    node: Node
    runs: list[Counting] = field(default_factory=list)

    async def answer(
        self, header: RequestHeader, body: bytes | memoryview, _: PeerIdentity
    ) -> HandlerAnswer:
        number = int(bytes(body))
        return HandlerAnswer(
            [b"handler %d" % number], self.node.throttle_ms, ahead=Counting(number, self.runs)
        )

    async def begin(self) -> Client:
        listener = self.node.transport.listener
        handler = listener.handlers[CREATE_TOPICS.key]._replace(answer=self.answer)
        listener.handlers = {**listener.handlers, CREATE_TOPICS.key: handler}
        stop_sweeps(listener)
        return await self.node.client()

    @property
    def connection(self) -> DataConnection:
        (found,) = self.node.transport.listener.connections
        assert isinstance(found, DataConnection)
        return found


def stop_sweeps(listener: Listener) -> None:
    """Check no connection's time but where the test does: a run ends at the second check."""
    assert listener._sweep is not None
    listener._sweep.cancel()


async def ask_slowly(numbers: Numbers, client: Client, number: int) -> bytes:
    """Ask; let the connection leave more answers to the loop where half of them are used."""
    who = await ask(client, number)
    (run,) = numbers.runs
    left = sum(run.asked) - number
    if left <= half_of(run.asked):
        times = len(run.asked)
        await until(lambda: len(run.asked) > times)
    return who


def half_of(asked: Sequence[int]) -> int:
    """Return the answers that are left when a run asks for more, which doubles their count."""
    return min(64, 2 ** len(asked)) // 2


async def ask(client: Client, number: int) -> bytes:
    """Send a number; return who answered it."""
    await client.send(request_frame(CREATE_TOPICS, 2, 1000 + number, "x", b"%d" % number))
    frame = await client.frame()
    who, answered = frame[4:].split()
    assert (frame[:4], answered) == ((1000 + number).to_bytes(4, "big"), b"%d" % number)
    return who


@on_data_loops
def test_a_steady_peer_is_answered_by_the_loop_alone(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        answered = [await ask_slowly(numbers, client, number) for number in range(200)]
        assert answered.count(b"handler") == 1
        (run,) = numbers.runs
        # One is left of 2, 2 of 4, and so on.
        assert run.asked == [2, 3, 6, 12, 24, 48, *[32] * 5]
        numbers.connection.check_time(0)
        assert run.given == 199
        traffic = node.transport.listener.traffic
        assert traffic.listeners[LISTENER].requests == 200
        assert traffic.errors["CreateTopics", NONE] == 200 - answered.count(b"handler")
        sizes = sum(len(b"%d" % number) for number in range(200))
        assert traffic.apis["CreateTopics"].request_size == 200 * 11 + sizes
        assert traffic.listeners[LISTENER].response_size == sizes + sum(
            len(who) + 1 for who in answered
        )

    play(scenario)


@on_data_loops
def test_a_peer_that_goes_elsewhere_gets_fewer_runs(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        for number in range(0, 400, 2):
            assert await ask(client, number) == b"handler"
        # One, then after 1, 3, 7 .. 64, 64 requests without a run.
        assert len(numbers.runs) == 8
        assert all(each.withdraw is None for each in numbers.runs[:-1])
        for number in range(1000, 1200):
            await ask(client, number)
        assert sum(each.given for each in numbers.runs) > 50

    play(scenario)


@on_data_loops
def test_withdrawn_and_old_answers_are_not_given(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        assert await ask(client, 0) == b"handler"
        assert numbers.runs[0].withdraw is not None
        assert await ask(client, 1) == b"ahead"
        numbers.runs[0].withdraw()
        assert numbers.runs[0].withdraw is None
        assert numbers.runs[0].given == 1
        assert await ask(client, 2) == b"handler"
        assert await ask(client, 3) == b"ahead"
        # The run began with one answer: without another, no check finds an old one.
        await until(lambda: len(numbers.runs[1].asked) > 1)
        numbers.connection.check_time(0)
        assert numbers.runs[1].given == 1
        assert numbers.runs[1].withdraw is not None
        numbers.connection.check_time(0)
        assert numbers.runs[1].withdraw is None
        assert await ask(client, 4) == b"handler"

    play(scenario)


@on_data_loops
def test_a_run_ends_once_an_answer_has_seen_two_checks(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        for number in range(100):
            await ask_slowly(numbers, client, number)
        (run,) = numbers.runs
        connection = numbers.connection
        connection.check_time(0)
        left = sum(run.asked) - run.given
        # All answers that the check has seen are given before the next.
        for number in range(100, 100 + left):
            await ask_slowly(numbers, client, number)
        connection.check_time(0)
        assert run.withdraw is not None
        left = sum(run.asked) - run.given
        for number in range(run.given + 1, run.given + left):
            await ask_slowly(numbers, client, number)
        connection.check_time(0)
        assert run.withdraw is None

    play(scenario)


@on_data_loops
def test_a_run_begins_anew_where_more_answers_come_too_late(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        for number in range(3):
            await ask_slowly(numbers, client, number)
        (run,) = numbers.runs
        # One more than the loop's thread can answer while this thread, the event loop's, waits.
        together = range(3, sum(run.asked) + 2)
        frames = [request_frame(CREATE_TOPICS, 2, each, "x", b"%d" % each) for each in together]
        client.writer.write(b"".join(frames))
        time.sleep(0.05)
        for number in together:
            assert (await client.frame()).endswith(b" %d" % number)
        for number in range(together.stop, 50):
            await ask(client, number)
        assert 1 < len(numbers.runs) < 10
        assert sum(each.given for each in numbers.runs) > 30

    play(scenario)


@on_data_loops
def test_a_connection_with_answers_ahead_is_not_idle(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        await ask(client, 0)
        connection = numbers.connection
        connection.last_active = 0.0
        await ask(client, 1)
        now = 10.0 * node.transport.listener.limits.max_idle_ms
        connection.check_time(now)
        assert connection.last_active == now
        assert await ask(client, 50) == b"handler"

    play(scenario)


@on_data_loops
def test_the_end_of_a_connection_ends_its_run(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        await ask(client, 0)
        await ask(client, 1)
        connection = numbers.connection
        connection.close()
        assert await client.is_closed()
        assert numbers.runs[0].withdraw is None
        assert numbers.runs[0].given == 1

    play(scenario)


@on_data_loops
def test_a_connection_with_a_run_is_freed_without_the_garbage_collector(
    play: Callable[..., None],
) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        await ask(client, 0)
        await ask(client, 1)
        connection = weakref.ref(numbers.connection)
        gc.disable()
        try:
            await client.close()
            await until(lambda: connection() is None)
        finally:
            gc.enable()

    play(scenario)


@on_data_loops
def test_a_muted_connection_gets_no_answers(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        assert await ask(client, 0) == b"handler"
        assert await ask(client, 1) == b"handler"
        assert numbers.runs == []

    play(scenario, throttle_ms=1)


def test_only_a_data_loop_gives_answers_ahead(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        numbers = Numbers(node)
        client = await numbers.begin()
        is_plain_loop = node.transport.listener.data_listener is not None
        assert await ask(client, 0) == b"handler"
        assert await ask(client, 1) == (b"ahead" if is_plain_loop else b"handler")

    play(scenario)
