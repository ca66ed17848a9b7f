"""Write one snapshot file in a thread.

Buffers are written in the order of the calls of `write`, which never blocks. A failed or cancelled
file is removed; an interrupted process leaves a ``.tmp`` file, which the next start removes.

Invariants: a file under its final name contains every buffer, therefore no buffer is written after
a failed write; only the thread accesses the file. Called by `publishing`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from kraft._core.log.disk import Disk, File
from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft.errors import StorageError
from kraft.raft.rpc import OffsetAndEpoch

_UNFINISHED = ".tmp"
#: Of the thread, as with `nice`: it must not delay the loop's answers.
_NICE = 10


def _give_way() -> None:
    """Lower the priority of this thread where threads have one of their own: on Linux."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # The node itself may be nicer; only root may take that back.
        nice = max(_NICE, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, nice)


class SnapshotOutput:
    """The file of snapshot ``id`` in ``directory``; it ends with `finish` or `cancel`."""

    def __init__(self, disk: Disk, directory: str, id: OffsetAndEpoch) -> None:
        self.id = id
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{snapshot_name(id.offset, id.epoch)}"
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="kraft-snapshot", initializer=_give_way
        )
        #: Bytes queued, written by the caller only; bytes done, written by the thread only.
        self._queued_size = 0
        self._done_size = 0
        self._is_finishing = False
        self._is_cancelled = False
        #: Used by the thread: the open file, and the first error of a write.
        self._file: File | None = None
        self._failure: Exception | None = None

    @property
    def size(self) -> int:
        """Bytes queued so far."""
        return self._queued_size

    @property
    def unwritten_size(self) -> int:
        """Bytes queued that the thread has neither written nor dropped yet."""
        return self._queued_size - self._done_size

    @property
    def has_failed(self) -> bool:
        """Whether a write failed: later writes are dropped, and `finish` reports the error."""
        return self._failure is not None

    def write(self, pieces: Sequence[memoryview]) -> Future[None]:
        """Queue the next buffers; the future is done once the thread has processed them."""
        size = sum(len(piece) for piece in pieces)
        self._queued_size += size
        return self._thread.submit(self._write, list(pieces), size)

    def finish(self, done: Callable[[Future[None]], None]) -> None:
        """Queue sync and rename of the file; ``done`` is called in the thread, with a future that
        holds the StorageError if any write failed.
        """
        self._is_finishing = True
        self._thread.submit(self._finish).add_done_callback(done)
        self._thread.shutdown(wait=False)

    def cancel(self, *, wait: bool = False) -> None:
        """Stop writing and remove the file; with ``wait``, before the return.

        A file that is being finished may have its name already, and stays.
        """
        self._is_cancelled = True
        if not self._is_finishing:
            self._is_finishing = True
            self._thread.submit(self._remove)
        self._thread.shutdown(wait=wait)

    # -- in the thread

    def _write(self, pieces: list[memoryview], size: int) -> None:
        try:
            if self._failure is None and not self._is_cancelled:
                self._append(pieces, size)
        except Exception as error:
            # `_finish` reports it.
            self._failure = error
        finally:
            self._done_size += size

    def _append(self, pieces: list[memoryview], size: int) -> None:
        if self._file is None:
            self._file = self._disk.open(self._path + _UNFINISHED, create=True)
            self._file.truncate(0)
        self._file.append(pieces)
        self._file.begin_sync(self._file.size() - size, size)

    def _finish(self) -> None:
        try:
            if self._failure is not None:
                raise self._failure
            if not self._is_cancelled:
                self._rename_into_place()
        finally:
            self._remove()

    def _rename_into_place(self) -> None:
        assert self._file is not None, "a snapshot has a header at least"
        self._file.sync()
        self._disk.rename(self._path + _UNFINISHED, self._path)
        file, self._file = self._file, None
        file.close()
        self._disk.sync_directory(self._directory)

    def _remove(self) -> None:
        """Remove the temporary file, if there is one."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            with suppress(StorageError):
                self._disk.remove(self._path + _UNFINISHED)
