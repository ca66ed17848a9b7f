"""The compiled loop: requests, responses and files over loopback, and peers that misbehave."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import Buffer

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.disk import OsDisk
from kraft._core.sockets.data_loop import (
    FRAME,
    LOST,
    NO_FILE,
    NO_MEMORY,
    TOO_LARGE,
    WRITABLE,
    DataLoop,
)
from kraft._core.sockets.request_memory import RequestMemory
from kraft.errors import StorageError
from tests.harness.commands import PATIENCE_S
from tests.unit._core.sockets.loops import (
    ANY_API,
    SMALL_API,
    Loops,
    Served,
    descriptors,
    framed,
    receive,
)

CONTENT = random.Random(5).randbytes(8 << 20)


#: How parts of files leave: mapped bytes are sent to local peers only.
WAYS: dict[str, Callable[[], Loops]] = {
    "sendfile": Loops,
    "mapped": partial(Loops, is_local=True, is_mapped=True),
    "remote": partial(Loops, is_local=False, is_mapped=True),
}
each_way = pytest.mark.parametrize("loops", list(WAYS), indirect=True)


@pytest.fixture
def loops(request: pytest.FixtureRequest) -> Iterator[Loops]:
    with WAYS[getattr(request, "param", "sendfile")]() as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "segment"
    made.write_bytes(CONTENT)
    return made


def request(loops: Loops, client: socket.socket, served: Served) -> None:
    """Send a request and wait for its arrival."""
    before = len(served.requests)
    client.sendall(framed(b"?"))
    loops.until(lambda: len(served.requests) > before)


def lost(loops: Loops, served: Served) -> None:
    """Wait until the connection is lost."""
    loops.until(lambda: served.events & LOST)


# -- requests


def test_a_request_is_delivered_once_it_is_whole(loops: Loops) -> None:
    client, served = loops.connect()
    for place, byte in enumerate(frame := framed(b"hello")):
        assert served.requests == []
        client.sendall(bytes([byte]))
        if place < len(frame) - 1:
            size = place + 1
            wait(lambda size=size: loops.loop.bytes_in == size)
            assert served.socket.frame_begun is not None
    loops.until(lambda: served.requests)
    assert served.requests == [b"hello"]
    assert served.socket.frame_begun is None
    client.close()


def wait(look: object) -> None:
    """Wait for the other thread, which reports nothing about this."""
    end = time.monotonic() + PATIENCE_S
    while not look():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.0005)


@pytest.mark.parametrize("sizes", [[0] * 5000, [1, 8000, 3, 20_000, 0, 300_000, 5, 2_000_000, 9]])
def test_requests_sent_ahead_are_delivered_in_order(loops: Loops, sizes: list[int]) -> None:
    client, served = loops.connect()
    bodies = [random.Random(place).randbytes(size) for place, size in enumerate(sizes)]
    sender = threading.Thread(target=client.sendall, args=(b"".join(map(framed, bodies)),))
    sender.start()
    loops.until(lambda: len(served.requests) == len(bodies))
    assert served.requests == bodies
    assert loops.loop.bytes_in == sum(sizes) + 6 * len(sizes)
    sender.join()
    loops.memory.give_back(served.counted)
    assert loops.memory.taken == 0
    client.close()


def test_only_one_request_is_read_ahead(loops: Loops) -> None:
    """While a request waits, the peer's bytes stay in its socket."""
    loops.takes_frames = False
    client, served = loops.connect()
    client.sendall(framed(b"first"))
    loops.until(served.socket.ask_frame)
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while client.send(bytes(1 << 20)):
            pass
    assert loops.loop.bytes_in < 16 * 1024
    client.close()


def test_a_claimed_size_allocates_nothing(loops: Loops) -> None:
    client, served = loops.connect()
    client.sendall(struct.pack(">ih", 60 << 20, ANY_API) + bytes(1000))
    wait(lambda: loops.loop.bytes_in == 1006)
    assert loops.memory.taken <= 128 * 1024
    client.sendall(bytes(1 << 20))
    wait(lambda: loops.loop.bytes_in == 1006 + (1 << 20))
    assert loops.memory.taken <= 5 << 20
    client.close()
    loops.until(lambda: served.events & LOST)
    assert loops.memory.taken == 0


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        (struct.pack(">ih", 101, SMALL_API), 101),
        (struct.pack(">ih", 51, 8), 51),
        (struct.pack(">ih", 51, 300), 51),
        (struct.pack(">ih", 51, -1), 51),
        (struct.pack(">ih", (64 << 20) + 1, ANY_API), (64 << 20) + 1),
        (struct.pack(">i", -1), -1),
    ],
)
def test_a_larger_request_than_allowed(loops: Loops, frame: bytes, size: int) -> None:
    client, served = loops.connect()
    client.sendall(framed(b"before") + frame)
    loops.until(lambda: served.events & TOO_LARGE)
    assert served.requests == [b"before"]
    assert served.socket.refused_size == size
    served.socket.abort()
    loops.until(lambda: served.events & LOST)
    assert loops.receive_to_end(client) == b""


def test_limits_of_a_connection_change(loops: Loops) -> None:
    client, served = loops.connect(20, has_apis=False)
    client.sendall(framed(bytes(18)))
    loops.until(lambda: served.requests)
    served.socket.set_limits(1000, False, 0)
    client.sendall(framed(bytes(998), SMALL_API))
    loops.until(lambda: len(served.requests) == 2)
    served.socket.set_limits(1000, True, 0)
    client.sendall(framed(bytes(998), SMALL_API))
    loops.until(lambda: served.events & TOO_LARGE)


def test_the_memory_of_large_requests_is_limited(loops: Loops) -> None:
    large = framed(bytes(1 << 20))
    first, one = loops.connect()
    first.sendall(large)
    loops.until(lambda: one.requests)
    assert loops.memory.taken == one.counted >= 1 << 20
    second, other = loops.connect(most_memory=one.counted + 1000)
    second.sendall(large[:-1])
    loops.until(lambda: other.events & NO_MEMORY)
    loops.memory.give_back(one.counted)
    third, another = loops.connect(most_memory=one.counted)
    third.sendall(large)
    loops.until(lambda: another.requests)
    for client in (first, second, third):
        client.close()


def test_nothing_is_read_while_paused(loops: Loops) -> None:
    client, served = loops.connect()
    request(loops, client, served)
    served.socket.pause_reading()
    client.sendall(framed(b"later"))
    other, beside = loops.connect()
    request(loops, other, beside)
    assert len(served.requests) == 1
    served.socket.resume_reading()
    loops.until(lambda: len(served.requests) == 2)


# -- responses


@each_way
def test_a_response_of_memory_and_files(loops: Loops, path: Path) -> None:
    client, served = loops.connect()
    file = OsDisk().open(path)
    pieces: list[Buffer | FileSlice] = [
        b"start",
        loops.part(file, 100, 5000),
        b"",
        memoryview(b"abcdef")[1:4],
        loops.part(file, 7, 0),
        loops.part(file, 0, 3),
        bytes(100_000),
        b"next",
        loops.part(file, len(CONTENT) - 9, 9),
        memoryview(b"a-b-c-")[::2],
        loops.part(file, 1 << 20, 0),
    ]
    expected = b"start" + CONTENT[100:5100] + b"bcd" + CONTENT[:3] + bytes(100_000)
    expected += b"next" + CONTENT[-9:] + b"abc"
    for _ in range(3):
        request(loops, client, served)
        served.socket.write(pieces)
        assert receive(client, len(expected)) == expected
    wait(lambda: served.socket.unsent == 0)
    assert loops.loop.bytes_out == 3 * len(expected)


@pytest.mark.parametrize("slices", [0, 1, 3])
@each_way
def test_a_response_leaves_in_full_packets(loops: Loops, path: Path, slices: int) -> None:
    """Neither the end of a part of a file nor the bytes after it have a packet of their own."""
    accepted: list[socket.socket] = []
    loops.on_accept = lambda one: accepted.append(one.dup())
    client, served = loops.connect()
    with client, accepted[0]:
        part: list[Buffer | FileSlice] = [loops.part(OsDisk().open(path), 10, 1000), b"more"]
        served.socket.write([b"begin", *part * slices])
        assert len(receive(client, 5 + 1004 * slices)) == 5 + 1004 * slices
        # A packet of loopback has 64 KiB. What was lost in a standstill is sent again.
        information = accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        retransmitted = struct.unpack_from("I", information, 100)[0]
        assert struct.unpack_from("I", information, 156)[0] - retransmitted == 1
        # Nothing is kept back after it.
        assert not accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)


def test_mapped_bytes_are_for_local_peers(path: Path) -> None:
    for is_local, wanted in ((True, b"mapped"), (False, CONTENT[3:9])):
        with Loops(is_local=is_local) as loops:
            client, served = loops.connect()
            part = FileSlice(OsDisk().open(path), 3, 6, memoryview(b"mapped"))
            served.socket.write([b"head", part, b"tail"])
            assert receive(client, 14) == b"head" + wanted + b"tail"


def test_empty_pieces_send_nothing(loops: Loops, path: Path) -> None:
    client, served = loops.connect()
    assert served.socket.write([b"", FileSlice(OsDisk().open(path), 5, 0)]) is False
    served.socket.write([b"x"])
    assert receive(client, 1) == b"x"


@each_way
def test_a_slow_reader_gets_every_byte(loops: Loops, path: Path) -> None:
    """Its socket takes few bytes at a time: partial sends of memory and of files."""
    client, served = loops.connect()
    file = OsDisk().open(path)
    expected = b""
    for start in range(0, 3 << 20, 1 << 20):
        head = CONTENT[start : start + 70_000]
        assert served.socket.write([head, *[loops.part(file, start + 13, 5 << 20)] * 2, b"!" * 77])
        expected += head + 2 * CONTENT[start + 13 : start + 13 + (5 << 20)] + b"!" * 77
    assert served.socket.unsent > 0
    received = bytearray()
    sizes = random.Random(9)
    while len(received) < len(expected):
        received += receive(client, min(sizes.randrange(1, 200_000), len(expected) - len(received)))
        loops.step(0)
    assert received == expected
    loops.until(lambda: served.events & WRITABLE)
    assert served.socket.unsent == 0


@each_way
def test_a_connection_is_full_until_it_is_read(loops: Loops, path: Path) -> None:
    client, served = loops.connect()
    file = OsDisk().open(path)
    while not served.socket.write([loops.part(file, 0, 1 << 20)]):
        pass
    assert served.events == 0
    receive(client, 1 << 20)
    while not served.events & WRITABLE:
        receive(client, 1000)
        loops.step(0)
    # The bytes that the system has taken are no longer ours.
    assert served.socket.unsent <= 512 * 1024


@each_way
def test_parts_of_files_are_not_counted_as_memory(loops: Loops, path: Path) -> None:
    client, served = loops.connect()
    assert not served.socket.write([loops.part(OsDisk().open(path), 0, 1 << 20)])
    receive(client, 1 << 20)
    wait(lambda: served.socket.unsent == 0)
    # Nor is less memory counted than there is.
    assert served.socket.write([bytes(70_000)])
    assert receive(client, 70_000) == bytes(70_000)


@each_way
def test_a_file_stays_open_until_it_is_sent(loops: Loops, path: Path) -> None:
    before = descriptors()
    client, served = loops.connect()
    file = OsDisk().open(path)
    served.socket.write([loops.part(file, 0, len(CONTENT))])
    del file
    path.unlink()
    assert descriptors() == before + 3
    assert receive(client, len(CONTENT)) == CONTENT
    wait(lambda: served.socket.unsent == 0)
    loops.step(0)
    assert descriptors() == before + 2


@each_way
def test_many_sent_files_are_released_without_another_event(loops: Loops, path: Path) -> None:
    before = descriptors()
    client, served = loops.connect()
    # The thread sends the end of each: this side releases at once what it has sent whole.
    size = 300_000
    for _ in range(64):
        served.socket.write([loops.part(OsDisk().open(path), 0, size)])
        assert len(receive(client, size)) == size
    # Fewer than 32 wait for more of them, or for the next event.
    while descriptors() >= before + 2 + 32:
        assert loops.step()


@pytest.mark.parametrize("is_cached", [True, False])
@each_way
def test_a_part_of_a_file_is_sent_whole_from_cache_and_device(
    loops: Loops, path: Path, is_cached: bool
) -> None:
    """The first bytes of a cached part leave in the caller's thread, the rest in the other."""
    client, served = loops.connect()
    file = OsDisk().open(path)
    if not is_cached:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for begin, size in ((0, 1), (5, 100_000), (1, 2_000_000), (0, len(CONTENT))):
        served.socket.write([b"head", loops.part(file, begin, size), b"tail"])
        assert receive(client, size + 8) == b"head" + CONTENT[begin : begin + size] + b"tail"
        wait(lambda: served.socket.unsent == 0)


@each_way
def test_a_response_of_many_slices_fills_a_connection(loops: Loops, path: Path) -> None:
    """Each slice may keep a file open: above 16 no request is taken until they are sent."""
    client, served = loops.connect()
    file = OsDisk().open(path)
    assert not served.socket.write([loops.part(file, 0, 1)] * 16)
    assert receive(client, 16) == CONTENT[:1] * 16
    wait(lambda: served.socket.unsent == 0)
    assert served.socket.write([loops.part(file, 0, 1)] * 17)
    loops.until(lambda: served.events & WRITABLE)
    assert receive(client, 17) == CONTENT[:1] * 17


@each_way
def test_the_slices_of_a_response_are_released_without_another_event(
    loops: Loops, path: Path
) -> None:
    before = descriptors()
    client, served = loops.connect()
    served.socket.write([loops.part(OsDisk().open(path), at, 1) for at in range(64)])
    assert receive(client, 64) == CONTENT[:64]
    while descriptors() > before + 2:
        assert loops.step()


@pytest.mark.parametrize(("position", "size"), [(-1, 1), (0, -1), (-1, 0)])
def test_a_slice_of_negative_numbers(loops: Loops, path: Path, position: int, size: int) -> None:
    client, served = loops.connect()
    with pytest.raises(ValueError, match=f"{size} bytes at {position} of a file"):
        served.socket.write([b"start", FileSlice(OsDisk().open(path), position, size)])
    served.socket.write([b"x"])
    assert receive(client, 1) == b"x"


def test_a_closed_file(loops: Loops, path: Path) -> None:
    """Its descriptor may already be another file's."""
    client, served = loops.connect()
    file = OsDisk().open(path)
    file.close()
    with pytest.raises(StorageError, match="the file is closed"):
        served.socket.write([b"start", FileSlice(file, 0, 100)])
    served.socket.write([b"x"])
    assert receive(client, 1) == b"x"


@pytest.mark.parametrize("size", [0, 1000, 3 << 20])
@each_way
def test_a_file_that_ends_early(loops: Loops, path: Path, size: int) -> None:
    """The peer never gets a response of another length than the one that it was promised."""
    client, served = loops.connect()
    file = OsDisk().open(path)
    path.open("r+b").truncate(size)
    served.socket.write([b"head", loops.part(file, 0, 4 << 20), b"tail"])
    received = b""
    client.setblocking(False)
    while not served.events & NO_FILE:
        # The peer takes what there is: how much comes before the loop notices is not fixed.
        with contextlib.suppress(BlockingIOError):
            received += client.recv(1000)
        loops.step(0.001)
    client.settimeout(PATIENCE_S)
    served.socket.abort()
    loops.until(lambda: served.events & LOST)
    received += loops.receive_to_end(client)
    assert (b"head" + CONTENT[:size]).startswith(received)


def test_a_file_that_cannot_be_read(loops: Loops, tmp_path: Path) -> None:
    client, served = loops.connect()
    served.socket.write([b"head", FileSlice(OsDisk().open(tmp_path, read_only=True), 0, 100)])
    loops.until(lambda: served.events & NO_FILE)
    served.socket.abort()
    assert loops.receive_to_end(client) in (b"head", b"")
    assert served.events & LOST


# -- peers that leave, and closing


def test_a_peer_that_closes(loops: Loops) -> None:
    before = descriptors()
    client, served = loops.connect()
    request(loops, client, served)
    client.close()
    loops.until(lambda: served.events & LOST)
    assert descriptors() == before
    assert len(loops.loop) == 0
    assert served.socket.is_closing
    # Nothing happens any more.
    served.socket.write([b"late"])
    served.socket.resume_reading()
    served.socket.abort()
    assert served.socket.take_frame() is None
    assert served.socket.unsent == 0


def test_a_peer_that_closes_in_the_midst_of_a_request(loops: Loops) -> None:
    for size in (1, 5, 5000, 500_000):
        client, served = loops.connect()
        client.sendall(framed(bytes(1 << 20))[:size])
        client.close()
        lost(loops, served)
        assert served.requests == []
    assert loops.memory.taken == 0


@each_way
def test_a_peer_that_closes_in_the_midst_of_a_response(loops: Loops, path: Path) -> None:
    before = descriptors()
    client, served = loops.connect()
    served.socket.write([loops.part(OsDisk().open(path), 0, len(CONTENT))] * 4)
    receive(client, 1000)
    client.close()
    loops.until(lambda: served.events & LOST)
    assert descriptors() == before


def test_a_request_right_before_the_end_is_delivered(loops: Loops) -> None:
    for _ in range(50):
        client, served = loops.connect()
        client.sendall(framed(b"one") + framed(b"two"))
        client.close()
        lost(loops, served)
        assert served.requests == [b"one", b"two"]


@each_way
def test_a_half_closed_peer_gets_what_was_written(loops: Loops, path: Path) -> None:
    client, served = loops.connect()
    request(loops, client, served)
    served.socket.write([*[loops.part(OsDisk().open(path), 0, len(CONTENT))] * 4, b"end"])
    client.shutdown(socket.SHUT_WR)
    wait(lambda: served.socket.is_closing)
    assert not served.events & LOST
    assert loops.receive_to_end(client) == 4 * CONTENT + b"end"
    assert served.events & LOST


def test_the_next_request_is_reported_only_to_one_who_asked_in_vain(loops: Loops) -> None:
    """Under load each request is taken without a signal, after the response to the one before."""
    loops.takes_frames = False
    client, served = loops.connect()
    sent = [framed(b"first"), framed(b"second"), framed(b"third")]
    client.sendall(sent[0])
    loops.until(lambda: served.events & FRAME)
    assert served.socket.take_frame() is not None
    served.events = 0
    client.sendall(sent[1])
    wait(lambda: loops.loop.bytes_in == len(sent[0] + sent[1]))
    assert not loops.step(0.05)
    assert served.socket.ask_frame()
    taken = served.socket.take_frame()
    assert taken is not None
    assert bytes(taken[0]) == sent[1][4:]
    assert not served.socket.ask_frame()
    client.sendall(sent[2])
    loops.until(lambda: served.events & FRAME)
    assert served.socket.take_frame() is not None
    client.close()


def test_a_reset_is_noticed_while_a_request_waits(loops: Loops) -> None:
    loops.takes_frames = False
    client, served = loops.connect()
    client.sendall(framed(b"first"))
    loops.until(served.socket.ask_frame)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    loops.until(lambda: served.events & LOST)
    assert served.socket.take_frame() is None


@each_way
def test_close_sends_what_was_written_and_abort_does_not(loops: Loops, path: Path) -> None:
    for is_abrupt in (False, True):
        client, served = loops.connect()
        served.socket.write([loops.part(OsDisk().open(path), 0, len(CONTENT))] * 4)
        served.socket.abort() if is_abrupt else served.socket.close()
        served.socket.write([b"too late"])
        received = loops.receive_to_end(client)
        assert served.events & LOST
        assert (received == CONTENT * 4) is not is_abrupt


def test_stop_closes_everything(path: Path) -> None:
    gc.collect()
    before = descriptors()
    loops = Loops()
    made = [loops.connect() for _ in range(20)]
    for client, served in made[:10]:
        client.sendall(framed(bytes(100_000))[:-1])
        served.socket.write([FileSlice(OsDisk().open(path), 0, len(CONTENT))] * 3)
    sockets = [weakref.ref(served) for _, served in made]
    loops.stop()
    for client, _ in made:
        client.close()
    assert loops.memory.taken == 0
    for _, served in made:
        served.socket.owner = None
    del client, served, made
    accepted, peer = socket.socketpair()
    with pytest.raises(RuntimeError, match="the loop has stopped"):
        loops.loop.add(accepted.detach(), None, 1, False, 0)
    assert peer.recv(1) == b""
    peer.close()
    del loops
    assert descriptors() == before
    assert all(one() is None for one in sockets)


def test_a_socket_that_epoll_rejects(loops: Loops, path: Path) -> None:
    with path.open("rb") as file:
        fd = socket.dup(file.fileno())
        before = descriptors()
        with pytest.raises(PermissionError):
            loops.loop.add(fd, None, 1, False, 0)
        assert descriptors() == before - 1
    assert len(loops.loop) == 0


def test_a_loop_without_descriptors_left() -> None:
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = descriptors()
    lowest_free = os.dup(0)
    os.close(lowest_free)
    # The loop needs three.
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 2, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            DataLoop(RequestMemory(), {}, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptors() == before
