"""A snapshot on its way to the disk, in a thread of its own.

Owns the file from its first piece until it lies under its name, synced. Pieces are written in the
order in which they are given; the thread that gives them never waits. What fails or is given up is
removed; what is interrupted leaves a ``.tmp`` file, which the next start removes.

Invariants: a file that carries the name holds every piece, so that nothing more is written once a
write has failed, however well the disk does afterwards; only the thread touches the file. Fed by
`publishing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from kraft._core.disk import Disk, File
from kraft._core.snapshot_file import snapshot_name
from kraft.errors import StorageError
from kraft.raft.messages import OffsetAndEpoch

_UNFINISHED = ".tmp"


class SnapshotOutput:
    """The file of snapshot ``id`` in ``directory``; it ends with `finish` or `give_up`."""

    def __init__(self, disk: Disk, directory: str, id: OffsetAndEpoch) -> None:
        self.id = id
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{snapshot_name(id.offset, id.epoch)}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kraft-snapshot")
        #: Bytes, each counted by one side alone.
        self._given = 0
        self._taken = 0
        self._is_finishing = False
        self._is_given_up = False
        #: Of the thread: the file while it is open, and why there will be no snapshot.
        self._file: File | None = None
        self._failure: Exception | None = None

    @property
    def size(self) -> int:
        """Bytes that were given so far."""
        return self._given

    @property
    def unwritten_size(self) -> int:
        """Bytes that were given and that the thread has not done with yet."""
        return self._given - self._taken

    @property
    def has_failed(self) -> bool:
        """Whether `finish` will say that it failed: what more is given is dropped."""
        return self._failure is not None

    def write(self, pieces: Sequence[memoryview]) -> Future[None]:
        """Queues what comes next; the future is done when the thread is done with it."""
        size = sum(len(piece) for piece in pieces)
        self._given += size
        return self._thread.submit(self._write, list(pieces), size)

    def finish(self, done: Callable[[Future[None]], None]) -> None:
        """Syncs the file and puts it under its name; ``done`` is called in the thread, with the
        StorageError if any write failed.
        """
        self._is_finishing = True
        self._thread.submit(self._finish).add_done_callback(done)
        self._thread.shutdown(wait=False)

    def give_up(self, *, wait: bool = False) -> None:
        """Nothing more is written, and nothing left behind; with ``wait`` not after the return.

        What is being finished may be there already.
        """
        self._is_given_up = True
        if not self._is_finishing:
            self._is_finishing = True
            self._thread.submit(self._remove)
        self._thread.shutdown(wait=wait)

    # -- in the thread

    def _write(self, pieces: list[memoryview], size: int) -> None:
        try:
            if self._failure is None and not self._is_given_up:
                self._append(pieces, size)
        except Exception as error:
            # It is told at the end, by `_finish`.
            self._failure = error
        finally:
            self._taken += size

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
            if not self._is_given_up:
                self._put_under_its_name()
        finally:
            self._remove()

    def _put_under_its_name(self) -> None:
        assert self._file is not None, "a snapshot has a header at least"
        self._file.sync()
        self._disk.rename(self._path + _UNFINISHED, self._path)
        file, self._file = self._file, None
        file.close()
        self._disk.sync_directory(self._directory)

    def _remove(self) -> None:
        """What is not under its name, if there is anything."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            with suppress(StorageError):
                self._disk.remove(self._path + _UNFINISHED)
