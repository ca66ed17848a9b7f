"""A data loop with blocking clients, for tests: what `kraft.network.data_listener` is to a node."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.disk import OsFile
from kraft._core.sockets.data_loop import FRAME, LOST, DataLoop, DataSocket
from kraft._core.sockets.request_memory import RequestMemory
from tests.harness.commands import PATIENCE_S

LARGEST = 64 << 20
MOST_MEMORY = 128 << 20
#: API keys with limits of their own.
SMALL_API, ANY_API = 7, 9


def framed(body: bytes, key: int = ANY_API) -> bytes:
    """Return a request of an API."""
    return (len(body) + 2).to_bytes(4, "big") + key.to_bytes(2, "big") + body


def receive(client: socket.socket, size: int) -> bytes:
    """Return exactly this many bytes, or fewer where the peer ends the stream."""
    received = bytearray()
    while len(received) < size and (data := client.recv(min(size - len(received), 1 << 20))):
        received += data
    return bytes(received)


def mapped_slice(file: OsFile, position: int, size: int) -> FileSlice:
    """Return a part of a file with its mapped bytes."""
    return FileSlice(file, position, size, memoryview(file.map(file.size()))[position:][:size])


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@dataclass(eq=False)
class Served:
    """The loop's side of one connection, with what has happened to it so far."""

    socket: DataSocket
    requests: list[bytes] = field(default_factory=list)
    events: int = 0
    #: Bytes of large requests, which the test gives back.
    counted: int = 0


class Loops:
    """A `DataLoop` with its thread; `until` handles events in the test's thread."""

    def __init__(self, *, is_local: bool = False, is_mapped: bool = False) -> None:
        self.is_local = is_local
        self.is_mapped = is_mapped
        self.memory = RequestMemory()
        self.loop = DataLoop(self.memory, {SMALL_API: 100, ANY_API: LARGEST}, 50)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()
        self._listening = socket.create_server(("127.0.0.1", 0))
        #: What to do with a request; by default the test looks for it in `Served.requests`.
        self.answer: Callable[[Served, bytes], None] = lambda served, request: None
        self.takes_frames = True
        #: Gets the loop's side of a connection before the loop has it.
        self.on_accept: Callable[[socket.socket], None] = lambda accepted: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def connect(
        self, largest: int = LARGEST, *, has_apis: bool = True, most_memory: int = MOST_MEMORY
    ) -> tuple[socket.socket, Served]:
        client = socket.create_connection(self._listening.getsockname())
        client.settimeout(PATIENCE_S)
        accepted, _ = self._listening.accept()
        accepted.setblocking(False)
        self.on_accept(accepted)
        limits = (largest, has_apis, most_memory)
        added = self.loop.add(accepted.detach(), None, *limits, self.is_local)
        added.owner = Served(added)
        return client, added.owner

    def part(self, file: OsFile, position: int, size: int) -> FileSlice:
        """Return a part of a file, with its mapped bytes where this loop's test wants them."""
        kind = mapped_slice if self.is_mapped else FileSlice
        return kind(file, position, size)

    def step(self, wait_s: float = PATIENCE_S) -> bool:
        """Handle the next events; return False where none came in time."""
        ready, _, _ = select.select([self.loop], [], [], wait_s)
        for one in self.loop.take():
            self._handle(one)
        return bool(ready)

    def _handle(self, one: DataSocket) -> None:
        served: Served = one.owner
        served.events |= one.events
        if one.events & LOST:
            one.owner = None
        elif one.events & FRAME and self.takes_frames:
            self.take(served)

    def take(self, served: Served) -> None:
        """Take all requests that have arrived."""
        while (taken := served.socket.take_frame()) is not None:
            served.counted += taken[1]
            served.requests.append(bytes(taken[0])[2:])
            self.answer(served, served.requests[-1])

    def until(self, look: Callable[[], object]) -> None:
        """Handle events until ``look`` returns true; the events must bring it about."""
        while not look():
            assert self.step(), "nothing more happens"

    def receive_to_end(self, client: socket.socket) -> bytes:
        """Return what the peer gets until the end of the stream, or until it is reset."""
        received = bytearray()

        def run() -> None:
            with contextlib.suppress(ConnectionResetError):
                while data := client.recv(1 << 20):
                    received.extend(data)

        reader = threading.Thread(target=run)
        reader.start()
        while reader.is_alive():
            self.step(0.01)
        return bytes(received)

    def stop(self) -> None:
        self.loop.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        while len(self.loop.take()):
            pass
        self._listening.close()


@contextlib.contextmanager
def clients_of(count: int, loops: Loops) -> Iterator[list[tuple[socket.socket, Served]]]:
    made = [loops.connect() for _ in range(count)]
    try:
        yield made
    finally:
        for client, _ in made:
            client.close()
