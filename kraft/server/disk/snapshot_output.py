"""A snapshot on its way to the disk, in a thread of its own.

Owns the file from its first piece until it lies under its name, synced. Pieces are written in the
order in which they are given; the thread that gives them never waits. What is interrupted leaves a
``.tmp`` file, which the next start removes. Fed by `publishing`.
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
    """The file of snapshot ``id`` in ``directory``."""

    def __init__(self, disk: Disk, directory: str, id: OffsetAndEpoch) -> None:
        self.id = id
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{snapshot_name(id.offset, id.epoch)}"
        self._file: File | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kraft-snapshot")
        self._unwritten = 0
        self._is_given_up = False

    @property
    def unwritten_size(self) -> int:
        """Bytes that were given and are not written yet."""
        return self._unwritten

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Queues what comes next."""
        size = sum(len(piece) for piece in pieces)
        self._unwritten += size
        self._thread.submit(self._write, list(pieces), size)

    def finish(self, done: Callable[[Future[None]], None]) -> None:
        """Syncs the file and puts it under its name; ``done`` is called in the thread, with the
        StorageError if any write failed.
        """
        self._thread.submit(self._finish).add_done_callback(done)
        self._thread.shutdown(wait=False)

    def give_up(self) -> None:
        """Nothing more is written; waits for what is being written."""
        self._is_given_up = True
        self._thread.shutdown(wait=True)
        if self._file is not None:
            self._file.close()
            with suppress(StorageError):
                self._disk.remove(self._path + _UNFINISHED)

    def _write(self, pieces: list[memoryview], size: int) -> None:
        if not self._is_given_up:
            if self._file is None:
                self._file = self._disk.open(self._path + _UNFINISHED, create=True)
                self._file.truncate(0)
            self._file.append(pieces)
            self._file.begin_sync(self._file.size() - size, size)
        self._unwritten -= size

    def _finish(self) -> None:
        assert self._file is not None, "a snapshot has a header at least"
        self._file.sync()
        self._file.close()
        self._disk.rename(self._path + _UNFINISHED, self._path)
        self._disk.sync_directory(self._directory)
