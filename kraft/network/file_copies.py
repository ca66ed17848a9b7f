"""Copy slices of files into responses, where a transport cannot send files by itself.

A data loop sends slices with sendfile (`data_connection`); TLS has to encrypt their bytes, and
asyncio's transports take only buffers. Invariant: at most one piece of `COPIED_AT_ONCE` bytes of a
response is in memory before the transport has taken it. Files are read in a thread. Called by
`server_connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kraft._core.sockets.file_slice import FileSlice
from kraft.errors import StorageError
from kraft.network.framing import Piece

#: As much as TLS encrypts in a turn.
COPIED_AT_ONCE = 256 * 1024


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
        self.remaining = sum(map(len, pieces))
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
            for piece in pieces:
                await self._pass_on(piece)
            # The caller handles the next request once the transport has room again.
            await self._may_write.wait()
        except StorageError as error:
            self._done(str(error))
        else:
            self._done(None)

    async def _pass_on(self, piece: Piece) -> None:
        if not isinstance(piece, FileSlice):
            self._write(piece)
            return
        for start in range(0, piece.size, COPIED_AT_ONCE):
            await self._may_write.wait()
            read = self._loop.run_in_executor(None, piece.read, start, COPIED_AT_ONCE)
            self._write(await read)

    def _write(self, data: bytes | memoryview) -> None:
        self.remaining -= len(data)
        self._transport.write(data)
