"""The bytes behind a request: the thread that takes the request receives them, if the other sleeps.

Whatever they are, the peer sees the same as where the other thread receives them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from kraft._core.sockets.data_loop import LOST, NO_MEMORY, TOO_LARGE
from tests.harness.commands import PATIENCE_S
from tests.unit._core.sockets.loops import ANY_API, SMALL_API, Loops, Served, framed

LARGE = bytes(range(256)) * 1200
#: Long enough for the loop's thread to see what was sent, and to sleep again.
SEEN_S = 0.005


@pytest.fixture
def loops() -> Iterator[Loops]:
    with Loops() as made:
        made.takes_frames = False
        yield made


@pytest.fixture
def waiting(loops: Loops) -> tuple[socket.socket, Served]:
    """A connection whose first request waits to be taken."""
    client, served = loops.connect()
    client.sendall(framed(b"first"))
    loops.until(served.socket.ask_frame)
    return client, served


def send_behind(client: socket.socket, sent: bytes) -> None:
    """Send bytes that stay in the socket until the first request is taken."""
    client.sendall(sent)
    time.sleep(SEEN_S)


def take_first(loops: Loops, served: Served) -> None:
    loops.takes_frames = True
    loops.take(served)


def test_the_next_request_is_there_when_one_is_taken(loops: Loops) -> None:
    client, served = loops.connect()
    at_once = 0
    for number in range(50):
        client.sendall(framed(b"a%d" % number))
        loops.until(served.socket.ask_frame)
        before = loops.loop.bytes_in
        send_behind(client, framed(b"b%d" % number))
        assert loops.loop.bytes_in == before
        assert served.socket.take_frame() is not None
        at_once += loops.loop.bytes_in > before and served.socket.ask_frame()
        loops.until(served.socket.ask_frame)
        taken = served.socket.take_frame()
        assert taken is not None
        assert bytes(taken[0])[2:] == b"b%d" % number
        assert not served.socket.ask_frame()
    # Not where the loop's thread is still awake.
    assert at_once
    client.close()


@pytest.mark.parametrize("size", [1, 5, 6, 100, 8192, 8193, 20_000, 100_000])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_part_of_the_next_request(
    loops: Loops, waiting: tuple[socket.socket, Served], size: int, is_late: bool
) -> None:
    client, served = waiting
    frame = framed(LARGE)
    send_behind(client, frame[:size])
    take_first(loops, served)
    if is_late:
        end = time.monotonic() + PATIENCE_S
        while served.socket.frame_begun is None:
            assert time.monotonic() < end
    client.sendall(frame[size:])
    loops.until(lambda: len(served.requests) == 2)
    assert served.requests == [b"first", LARGE]
    assert served.socket.frame_begun is None
    loops.memory.give_back(served.counted)
    assert loops.memory.taken == 0
    client.close()
    loops.until(lambda: served.events & LOST)


@pytest.mark.parametrize("size", [3000, 20_000])
@pytest.mark.parametrize("count", [2, 20])
def test_many_requests(
    loops: Loops, waiting: tuple[socket.socket, Served], count: int, size: int
) -> None:
    client, served = waiting
    bodies = [bytes([number]) * size for number in range(count)]
    send_behind(client, b"".join(map(framed, bodies)))
    take_first(loops, served)
    loops.until(lambda: len(served.requests) == 1 + count)
    assert served.requests[1:] == bodies
    loops.memory.give_back(served.counted)
    assert loops.memory.taken == 0
    client.close()
    loops.until(lambda: served.events & LOST)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("sent", [b"", b"\0\0", framed(b"last"), framed(b"last") + b"\0"])
def test_the_end_of_the_stream(
    loops: Loops, waiting: tuple[socket.socket, Served], sent: bytes, is_late: bool
) -> None:
    client, served = waiting
    if is_late:
        send_behind(client, sent)
        take_first(loops, served)
        client.shutdown(socket.SHUT_WR)
    else:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        time.sleep(SEEN_S)
        take_first(loops, served)
    loops.until(lambda: served.events & LOST)
    assert served.requests == [b"first", b"last"][: 1 + (len(sent) > 2)]
    client.close()


def test_a_reset(loops: Loops, waiting: tuple[socket.socket, Served]) -> None:
    client, served = waiting
    send_behind(client, framed(b"second")[:7])
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    take_first(loops, served)
    loops.until(lambda: served.events & LOST)
    # Nothing, where the other thread had noticed the reset before the request was taken.
    assert served.requests in ([], [b"first"])


@pytest.mark.parametrize("body", [b"", bytes(5000)])
def test_a_larger_request_than_allowed(
    loops: Loops, waiting: tuple[socket.socket, Served], body: bytes
) -> None:
    client, served = waiting
    send_behind(client, struct.pack(">ih", 5002, SMALL_API) + body)
    take_first(loops, served)
    loops.until(lambda: served.events & TOO_LARGE)
    assert served.socket.refused_size == 5002
    assert served.requests == [b"first"]
    client.close()


def test_no_memory_for_the_next_request(loops: Loops) -> None:
    loops.takes_frames = False
    client, served = loops.connect(most_memory=50_000)
    client.sendall(framed(b"first"))
    loops.until(served.socket.ask_frame)
    send_behind(client, struct.pack(">ih", 100_000, ANY_API) + bytes(20_000))
    take_first(loops, served)
    loops.until(lambda: served.events & NO_MEMORY)
    assert served.requests == [b"first"]
    client.close()


def test_nothing_is_received_while_paused(
    loops: Loops, waiting: tuple[socket.socket, Served]
) -> None:
    client, served = waiting
    before = loops.loop.bytes_in
    send_behind(client, framed(b"second"))
    served.socket.pause_reading()
    take_first(loops, served)
    assert served.requests == [b"first"]
    time.sleep(SEEN_S)
    assert loops.loop.bytes_in == before
    served.socket.resume_reading()
    loops.until(lambda: len(served.requests) == 2)
    client.close()
