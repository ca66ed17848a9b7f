"""Many connections at once on one data loop: every byte of every response is checked."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from pathlib import Path

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.disk import OsDisk
from kraft._core.sockets.data_loop import LOST
from tests.harness.commands import PATIENCE_S
from tests.unit._core.sockets.loops import (
    Loops,
    Served,
    descriptors,
    framed,
    mapped_slice,
    receive,
)

CONTENT = random.Random(7).randbytes(4 << 20)
CLIENTS = 40
REQUESTS = 40
#: Requests of a client that are sent before their responses are read.
AHEAD = 4
MOST_PARTS = 12


def parts_of(seed: int) -> list[tuple[int, int]]:
    """Return the ranges of the file that a response consists of; odd ones are sent from memory."""
    choose = random.Random(seed)
    most = choose.choice((1, 100, 20_000, 300_000))
    ranges = []
    for _ in range(choose.randrange(1, MOST_PARTS)):
        size = choose.randrange(0, most)
        ranges.append((choose.randrange(0, len(CONTENT) - size), size))
    return ranges


def expected(seed: int) -> bytes:
    body = b"".join(CONTENT[start : start + size] for start, size in parts_of(seed))
    return len(body).to_bytes(4, "big") + body


class Client(threading.Thread):
    """Sends requests ahead and checks the responses; every third leaves in the midst of one."""

    def __init__(self, number: int, connected: socket.socket) -> None:
        super().__init__()
        self.number = number
        self.connected = connected
        self.checked = 0
        self.is_leaving = number % 3 == 0

    def run(self) -> None:
        choose = random.Random(self.number)
        seeds = [1000 * self.number + place for place in range(REQUESTS)]
        ahead = seeds[:AHEAD]
        # Filled up: some requests are large, and some arrive in parts.
        frames = [framed(f"{seed} ".encode() + bytes(seed % 7 * 5000)) for seed in seeds]
        with contextlib.closing(self.connected):
            self.connected.sendall(b"".join(frames[:AHEAD]))
            for place, seed in enumerate(seeds):
                wanted = expected(seed)
                if self.is_leaving and place == REQUESTS // 2:
                    self.connected.recv(choose.randrange(1, 100_000))
                    return
                assert receive(self.connected, len(wanted)) == wanted
                self.checked += 1
                if place + len(ahead) < REQUESTS:
                    frame = frames[place + len(ahead)]
                    cut = choose.randrange(len(frame))
                    self.connected.sendall(frame[:cut])
                    self.connected.sendall(frame[cut:])


def test_every_byte_of_many_connections(tmp_path: Path) -> None:
    before = descriptors()
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    with Loops(is_local=True) as loops:
        files = [OsDisk().open(path) for _ in range(3)]

        def answer(served: Served, request: bytes) -> None:
            seed = int(request.split()[0])
            pieces: list[bytes | FileSlice] = [expected(seed)[:4]]
            for place, (start, size) in enumerate(parts_of(seed)):
                if place % 2:
                    pieces.append(CONTENT[start : start + size])
                else:
                    kind = FileSlice if seed % 2 else mapped_slice
                    pieces.append(kind(files[seed % 3], start, size))
            served.socket.write(pieces)
            loops.memory.give_back(served.counted)
            served.counted = 0

        loops.answer = answer
        made = [loops.connect() for _ in range(CLIENTS)]
        clients = [Client(number, client) for number, (client, _) in enumerate(made)]
        for one in clients:
            one.start()
        loops.until(lambda: all(served.events & LOST for _, served in made))
        for one in clients:
            one.join(PATIENCE_S)
        assert [one.checked for one in clients] == [
            REQUESTS // 2 if one.is_leaving else REQUESTS for one in clients
        ]
        assert loops.memory.taken == 0
        files.clear()
    # The loop's own three; its thread has ended.
    assert descriptors() == before + 3
