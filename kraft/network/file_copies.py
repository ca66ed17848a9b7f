"""Copy slices of files into responses, where a transport cannot send files by itself.

A data loop sends slices with sendfile (`data_connection`); TLS has to encrypt their bytes, and
asyncio's transports take only buffers. Files are read in a thread, several small slices at a time:
the event loop never waits for a disk. Invariant: at most `COPIED_AT_ONCE` bytes of a response's
files are in memory before the transport has taken them. Called by `server_connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from kraft._core.bytes.file_slice import FileSlice, size_of
from kraft.errors import StorageError
from kraft.network.framing import Buffer

#: As much as TLS encrypts in a turn.
COPIED_AT_ONCE = 256 * 1024

Piece = Buffer | FileSlice


class FileCopy:
    """Writes the pieces of one response to a transport, as fast as it takes them.

    ``done`` is called once everything is written, or with the reason why a file cannot be read.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        pieces: Sequence[Piece],
        done: Callable[[str | None], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._done = done
        #: The bytes that were not written yet.
        self.remaining = sum(map(size_of, pieces))
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._task: asyncio.Task[None] | None = loop.create_task(self._run(pieces))

    def pause(self) -> None:
        """Write nothing until `resume`: the transport has enough bytes."""
        self._may_write.clear()

    def resume(self) -> None:
        self._may_write.set()

    def cancel(self) -> None:
        """Write nothing more, and do not call ``done``."""
        # The task keeps the error that ends it, whose traceback refers to this object: the cycle
        # would keep the files open.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _run(self, pieces: Sequence[Piece]) -> None:
        try:
            for group in grouped(pieces):
                await self._may_write.wait()
                data = await self._loop.run_in_executor(None, read, group)
                self.remaining -= len(data)
                self._transport.write(data)
            # The caller handles the next request once the transport has room again.
            await self._may_write.wait()
        except StorageError as error:
            self._done(str(error))
        else:
            self._done(None)


def grouped(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces in groups of at most `COPIED_AT_ONCE` bytes; cut those that are larger."""
    group: list[Piece] = []
    room = COPIED_AT_ONCE
    for piece in pieces:
        begin, size = 0, size_of(piece)
        while begin < size:
            part = min(size - begin, room)
            group.append(_part(piece, begin, part))
            begin += part
            room -= part
            if not room:
                yield group
                group, room = [], COPIED_AT_ONCE
    if group:
        yield group


def _part(piece: Piece, begin: int, size: int) -> Piece:
    if isinstance(piece, FileSlice):
        return FileSlice(piece.file, piece.position + begin, size)
    return memoryview(piece)[begin : begin + size]


def read(group: list[Piece]) -> bytes:
    """Return the bytes of the pieces. Raises StorageError where a file cannot be read."""
    if len(group) == 1 and isinstance(group[0], FileSlice):
        return group[0].read()
    return b"".join(one.read() if isinstance(one, FileSlice) else one for one in group)
