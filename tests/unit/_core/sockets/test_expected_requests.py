"""The compiled loop answers expected requests by itself, with the correlation ids of the peer."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.disk import OsDisk, OsFile
from kraft._core.sockets.data_loop import FEW, FRAME, LOST, NO_FILE
from tests.harness.commands import PATIENCE_S
from tests.unit._core.sockets.loops import ANY_API, Loops, Served, receive

CONTENT = random.Random(9).randbytes(4 << 20)
Answer = list[bytes | FileSlice]


def request_of(what: bytes, correlation: int = 0) -> bytes:
    """Return a request without its size field: key, version, correlation id, body."""
    return ANY_API.to_bytes(2, "big") + b"\0\1" + correlation.to_bytes(4, "big") + what


def framed(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request


def answer_of(parts: Sequence[bytes | FileSlice], correlation: int = 0) -> Answer:
    size = 4 + sum(part.size if isinstance(part, FileSlice) else len(part) for part in parts)
    return [size.to_bytes(4, "big") + correlation.to_bytes(4, "big"), *parts]


def bytes_of(answer: Answer) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in answer)


@pytest.fixture
def loops() -> Iterator[Loops]:
    with Loops() as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> OsFile:
    (tmp_path / "segment").write_bytes(CONTENT)
    return OsDisk().open(tmp_path / "segment")


def ask(
    client: socket.socket, what: bytes, correlation: int, parts: list[bytes | FileSlice]
) -> None:
    """Send a request; check that these parts are its answer, with its correlation id."""
    client.sendall(framed(request_of(what, correlation)))
    wanted = bytes_of(answer_of(parts, correlation))
    assert receive(client, len(wanted)) == wanted


def reported(loops: Loops, served: Served, client: socket.socket, request: bytes) -> None:
    """Check that a request is reported, with all of its bytes."""
    before = len(served.requests)
    client.sendall(framed(request))
    loops.until(lambda: len(served.requests) > before)
    assert served.requests[before:] == [request[2:]]


def test_expected_requests_are_answered_in_order(loops: Loops, file: OsFile) -> None:
    client, served = loops.connect()
    parts: list[Answer] = [
        [b"head", FileSlice(file, place * 100_000, 100_000 * (place + 1)), b"end"]
        for place in range(5)
    ]
    expected = [(request_of(b"%d" % place), answer_of(each)) for place, each in enumerate(parts)]
    assert served.socket.expect(expected)
    for place, each in enumerate(parts):
        ask(client, b"%d" % place, -place & 0x7FFFFFFF, each)
        assert served.socket.take_answered() == 1
    assert served.requests == []
    assert served.socket.take_answered() == 0
    reported(loops, served, client, request_of(b"5"))
    assert loops.loop.bytes_in == sum(4 + len(request) for request, _ in expected) + 13
    client.close()


def test_requests_that_arrive_in_parts_and_together(loops: Loops, file: OsFile) -> None:
    client, served = loops.connect()
    parts: Answer = [FileSlice(file, 5, 1000)]
    expected = [(request_of(b"next"), answer_of(parts)) for _ in range(9)]
    assert served.socket.expect(expected)
    for byte in framed(request_of(b"next", 7)):
        client.sendall(bytes([byte]))
    together = b"".join(framed(request_of(b"next", number)) for number in range(8))
    client.sendall(together[:-3])
    client.sendall(together[-3:])
    for number in (7, *range(8)):
        wanted = bytes_of(answer_of(parts, number))
        assert receive(client, len(wanted)) == wanted
    assert served.socket.frame_begun is None
    assert served.socket.withdraw() == 9
    client.close()


@pytest.mark.parametrize(
    "other", [b"longer", b"nexT", b"", bytes(20_000)], ids=["longer", "other", "short", "large"]
)
def test_another_request_is_reported_and_drops_the_answers(
    loops: Loops, file: OsFile, other: bytes
) -> None:
    client, served = loops.connect()
    parts: Answer = [FileSlice(file, 0, 10)]
    assert served.socket.expect([(request_of(b"next"), answer_of(parts))] * 3)
    ask(client, b"next", 1, parts)
    reported(loops, served, client, request_of(other, 2))
    reported(loops, served, client, request_of(b"next", 3))
    assert served.socket.withdraw() == 1
    loops.memory.give_back(served.counted)
    client.close()


def test_only_the_correlation_id_may_differ(loops: Loops) -> None:
    request = request_of(b"next", 0)
    for place in range(len(request)):
        if not 4 <= place < 8:
            client, served = loops.connect()
            assert served.socket.expect([(request, answer_of([b"x"]))])
            changed = bytearray(request)
            changed[place] ^= 1
            if place >= 2:
                reported(loops, served, client, bytes(changed))
            assert served.socket.withdraw() == 0
            client.close()


def test_withdrawn_answers_are_not_given(loops: Loops, file: OsFile) -> None:
    client, served = loops.connect()
    parts: Answer = [FileSlice(file, 0, 10)]
    assert served.socket.expect([(request_of(b"next"), answer_of(parts))] * 3)
    ask(client, b"next", 1, parts)
    assert served.socket.withdraw() == 1
    reported(loops, served, client, request_of(b"next", 2))
    client.close()


def test_more_requests_are_expected_behind_those_of_before(loops: Loops, file: OsFile) -> None:
    client, served = loops.connect()

    def expect(*numbers: int) -> None:
        more = [(request_of(b"%d" % each), answer_of([b"%d" % each])) for each in numbers]
        assert served.socket.expect(more)

    expect(0, 1)
    expect(2, 3)
    for number in range(4):
        ask(client, b"%d" % number, number, [b"%d" % number])
    # Behind the last one as well, as long as no other request has come.
    expect(4)
    ask(client, b"4", 4, [b"4"])
    expect()
    assert served.socket.withdraw() == 5
    client.close()


def test_the_half_of_the_expected_requests_is_reported_once(loops: Loops) -> None:
    client, served = loops.connect()
    nexts = [(request_of(b"next"), answer_of([b"x"]))]

    def answered(count: int) -> int:
        """Let so many requests be answered; return whether the half was reported meanwhile."""
        served.events = 0
        for number in range(count):
            ask(client, b"next", number, [b"x"])
        # The next event comes after them.
        reported_before = len(served.requests)
        other, of_other = loops.connect()
        other.sendall(framed(request_of(b"other")))
        loops.until(lambda: of_other.requests)
        other.close()
        assert len(served.requests) == reported_before
        return served.events

    assert served.socket.expect(nexts * 7)
    assert answered(3) == 0
    assert answered(1) == FEW
    assert answered(1) == 0
    # Now there are 6.
    assert served.socket.expect(nexts * 4)
    assert answered(2) == 0
    assert answered(1) == FEW
    assert answered(3) == 0
    assert served.socket.expect(nexts)
    assert answered(1) == FEW
    client.close()


@pytest.mark.parametrize("size", [10, 200_000, 1 << 20])
def test_prepared_answers_follow_the_next_response(loops: Loops, file: OsFile, size: int) -> None:
    """However early the peer asks: the loop's thread has the answer when the response is there."""
    client, served = loops.connect()
    response: Answer = [FileSlice(file, 0, size)]

    def answer(served: Served, request: bytes) -> None:
        served.socket.prepare([(request_of(b"next"), answer_of([b"x"]))])
        served.socket.write(answer_of(response))

    loops.answer = answer
    served.socket.prepare([(request_of(b"first"), answer_of([b"y"]))])
    client.sendall(framed(request_of(b"first")))
    loops.until(lambda: served.requests)
    wanted = bytes_of(answer_of(response))
    assert receive(client, len(wanted)) == wanted
    ask(client, b"next", 1, [b"x"])
    assert len(served.requests) == 1
    assert served.socket.withdraw() == 1
    client.close()


@pytest.mark.parametrize("how", ["pipelined", "full", "withdrawn", "lost"])
def test_prepared_answers_that_are_not_given(loops: Loops, tmp_path: Path, how: str) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    client, served = loops.connect()
    prepared = [(request_of(b"next"), answer_of([FileSlice(OsDisk().open(path), 0, 1000)]))]

    def answer(served: Served, request: bytes) -> None:
        if len(served.requests) == 1:
            served.socket.prepare(prepared)
            prepared.clear()
            if how == "withdrawn":
                assert served.socket.withdraw() == 0
            served.socket.write([bytes(200_000)] if how == "full" else [b"x"])
            # Nothing is expected behind requests that are not.
            behind = [(request_of(b"behind"), answer_of([b"z"]))]
            assert served.socket.expect(behind) == (how in ("withdrawn", "lost"))

    loops.answer = answer
    loops.takes_frames = False
    both = framed(request_of(b"first")) + framed(request_of(b"next"))
    client.sendall(both if how == "pipelined" else framed(request_of(b"first")))
    loops.until(lambda: served.events & FRAME)
    if how == "pipelined":
        served.socket.take_frame()
        loops.until(served.socket.ask_frame)
        served.requests.append(b"first")
        answer(served, b"first")
    else:
        loops.takes_frames = True
        loops.take(served)
    if how == "lost":
        served.socket.prepare(
            [(request_of(b"next"), answer_of([FileSlice(OsDisk().open(path), 0, 9)]))]
        )
        served.socket.abort()
        loops.until(lambda: served.events & LOST)
    else:
        assert receive(client, 1)
        if how == "pipelined":
            loops.take(served)
            assert len(served.requests) == 2
        else:
            reported(loops, served, client, request_of(b"next"))
        assert served.socket.withdraw() == 0
    loops.loop.take()
    assert not is_open(path)
    client.close()


def test_it_is_too_late_once_the_request_or_the_end_is_there(loops: Loops) -> None:
    loops.takes_frames = False
    client, served = loops.connect()
    client.sendall(framed(request_of(b"next")))
    loops.until(served.socket.ask_frame)
    assert not served.socket.expect([(request_of(b"next"), answer_of([b"x"]))])
    assert served.socket.take_frame() is not None
    client.close()
    loops.until(lambda: served.events & LOST)
    assert not served.socket.expect([(request_of(b"next"), answer_of([b"x"]))])
    assert served.socket.withdraw() == 0


def test_an_answer_that_would_make_the_connection_full_is_not_given(
    loops: Loops, file: OsFile
) -> None:
    """Python's side waits for a peer that does not read, and bounds that time."""
    client, served = loops.connect()
    large: Answer = [FileSlice(file, 0, 3 << 20)]
    assert served.socket.expect([(request_of(b"next"), answer_of(large))])
    reported(loops, served, client, request_of(b"next"))
    assert served.socket.withdraw() == 0
    # The peer does not read: the answers before are in the way of the last.
    some: Answer = [FileSlice(file, 0, 1 << 20)]
    count = 20
    served.socket.ask_frame()
    assert served.socket.expect([(request_of(b"next"), answer_of(some))] * count)
    client.sendall(framed(request_of(b"next")) * count)
    loops.until(lambda: len(served.requests) > 1)
    given = served.socket.withdraw()
    assert 0 < given < count
    for _ in range(given):
        wanted = bytes_of(answer_of(some))
        assert receive(client, len(wanted)) == wanted
    client.close()


def test_a_file_that_ends_early(loops: Loops, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x" * 100)
    client, served = loops.connect()
    short = FileSlice(OsDisk().open(tmp_path / "short"), 0, 200)
    assert served.socket.expect([(request_of(b"next"), answer_of([short]))])
    client.sendall(framed(request_of(b"next")))
    loops.until(lambda: served.events & NO_FILE)
    assert len(receive(client, 108)) == 108
    served.socket.abort()
    loops.until(lambda: served.events & LOST)
    client.close()


def test_invalid_requests_and_answers(loops: Loops, file: OsFile) -> None:
    client, served = loops.connect()
    good = request_of(b"next"), answer_of([b"x"])
    invalid: list[tuple[bytes, Answer]] = [
        (b"1234567", good[1]),
        (bytes(9000), good[1]),
        (good[0], []),
        (good[0], [b"1234567", b"8"]),
        (good[0], [FileSlice(file, 0, 10)]),
        (good[0], [bytes(8), bytes(65 << 10)]),
        (good[0], [bytes(8), FileSlice(file, -1, 10)]),
    ]
    for each in invalid:
        with pytest.raises(ValueError, match=r"expected|header|of a file"):
            served.socket.expect([good, each])
    reported(loops, served, client, good[0])
    client.close()


@pytest.mark.parametrize("how", ["withdrawn", "lost", "stopped"])
def test_the_files_of_answers_that_are_not_given_are_closed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    with Loops() as loops:
        client, served = loops.connect()
        parts: Answer = [FileSlice(OsDisk().open(path), 0, 1000)]
        assert served.socket.expect([(request_of(b"next"), answer_of(parts))] * 3)
        ask(client, b"next", 1, parts)
        parts.clear()
        assert is_open(path)
        if how == "withdrawn":
            assert served.socket.withdraw() == 1
        elif how == "lost":
            served.socket.abort()
            loops.until(lambda: served.events & LOST)
        else:
            loops.stop()
        # Releases what was sent.
        loops.loop.take()
        assert not is_open(path)
        client.close()


def is_open(path: Path) -> bool:
    opened = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return any(os.path.realpath(each) == str(path) for each in opened)


class Reader(threading.Thread):
    """Asks for the next part of a file again and again, at times for another one."""

    def __init__(self, number: int, connected: socket.socket, requests: int) -> None:
        super().__init__()
        self.connected = connected
        self._dice = random.Random(number)
        self._requests = requests
        self.checked = 0

    def run(self) -> None:
        place = 0
        for correlation in range(self._requests):
            if self._dice.random() < 0.1:
                place = self._dice.randrange(PLACES)
            frame = framed(request_of(b"%d" % place, correlation))
            cut = self._dice.choice((0, 0, 0, self._dice.randrange(len(frame))))
            self.connected.sendall(frame[:cut])
            self.connected.sendall(frame[cut:])
            size = SIZES[place]
            start = STARTS[place]
            wanted = (size + 4).to_bytes(4, "big") + correlation.to_bytes(4, "big")
            wanted += CONTENT[start : start + size]
            assert receive(self.connected, len(wanted)) == wanted
            self.checked += 1
            place = (place + 1) % PLACES
        self.connected.close()


PLACES = 50
SIZES = [random.Random(place).choice((1, 5000, 300_000)) for place in range(PLACES)]
STARTS = [random.Random(-place - 1).randrange(len(CONTENT) - 300_000) for place in range(PLACES)]


def test_every_byte_with_expected_and_other_requests(file: OsFile) -> None:
    """Answers of both threads, withdrawn or added at any time, are those of the requests."""
    dice = random.Random(3)
    requests = 150
    #: The place after the expected ones, of connections of which no answer was withdrawn.
    ends: dict[int, int] = {}
    with Loops() as loops:

        def parts_of(place: int) -> Answer:
            place %= PLACES
            return [FileSlice(file, STARTS[place], SIZES[place])]

        def following(place: int, count: int) -> list[tuple[bytes, Answer]]:
            return [
                (request_of(b"%d" % (each % PLACES)), answer_of(parts_of(each)))
                for each in range(place, place + count)
            ]

        def answer(served: Served, request: bytes) -> None:
            correlation, place = int.from_bytes(request[2:6], "big"), int(request[6:])
            ahead = dice.randrange(6)
            expected = following(place + 1, ahead)
            ends[id(served)] = place + 1 + ahead
            if dice.random() < 0.5:
                served.socket.prepare(expected)
                served.socket.write(answer_of(parts_of(place), correlation))
            else:
                served.socket.write(answer_of(parts_of(place), correlation))
                if not served.socket.expect(expected):
                    del ends[id(served)]

        loops.answer = answer
        made = [loops.connect() for _ in range(8)]
        readers = [Reader(number, client, requests) for number, (client, _) in enumerate(made)]
        for one in readers:
            one.start()
        given = 0
        while not all(served.events & LOST for _, served in made):
            loops.step(0.001)
            _, served = dice.choice(made)
            end = ends.get(id(served))
            if dice.random() < 0.5 or end is None:
                given += served.socket.withdraw()
                ends.pop(id(served), None)
            elif served.socket.expect(following(end, 3)):
                ends[id(served)] += 3
        for one in readers:
            one.join(PATIENCE_S)
        given += sum(served.socket.withdraw() for _, served in made)
        assert [one.checked for one in readers] == [requests] * len(readers)
        asked = sum(len(served.requests) for _, served in made)
        assert given > 0
        assert given + asked == requests * len(readers)
