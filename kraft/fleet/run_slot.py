"""Places for runs on a machine: few runs at a time, and nothing of an ended run left behind.

A slot is a locked file and a directory beside it. The process that starts a run and the run itself
hold the lock, each by its own copy of the descriptor. So a slot is free only when both have ended,
also if they were killed, and no process uses its directory any more. The next holder of the slot
removes the files that are left.

All sweeps of a user on a machine share the slots: runs at the same time disturb each other.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kraft.errors import StorageError

_LOOK_S = 0.1


class RunSlot:
    """A slot that this process holds, until `release`; ``directory`` is empty at first.

    ``owner`` names the sweep, for `await_slots`.
    """

    def __init__(self, fd: int, directory: Path, owner: str) -> None:
        #: The descriptor that holds the lock; a process that inherits it keeps the slot.
        self.fd = fd
        self.directory = directory
        _clear(directory)
        directory.mkdir(mode=0o700)
        os.ftruncate(fd, 0)
        os.pwrite(fd, owner.encode(), 0)

    def release(self) -> None:
        """Remove the directory's files and give up this process's share of the lock."""
        _clear(self.directory)
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def take_slot(work: Path, count: int, owner: str, *, wait_s: float = 0.0) -> RunSlot | None:
    """Return one of ``count`` slots of this machine; None where none is free in ``wait_s``.

    ``work`` is the directory of the slots. Raises StorageError where it cannot be used.
    """
    home = _home(work)
    deadline = time.monotonic() + wait_s
    while True:
        for number in range(count):
            fd = _locked(home / f"slot-{number}.lock")
            if fd is not None:
                return RunSlot(fd, home / f"slot-{number}", owner)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK_S)


def await_slots(work: Path, owner: str, *, timeout_s: float) -> int:
    """Wait until no run of ``owner`` holds a slot; remove its files. Return how many still run."""
    home = _home(work)
    deadline = time.monotonic() + timeout_s
    while True:
        held = 0
        for path in home.glob("slot-*.lock"):
            if path.read_bytes() != owner.encode():
                continue
            fd = _locked(path)
            if fd is None:
                held += 1
            else:
                _clear(path.with_suffix(""))
                os.close(fd)
        if not held or time.monotonic() >= deadline:
            return held
        time.sleep(_LOOK_S)


def _home(work: Path) -> Path:
    """Return the directory of this user's slots, created if it does not exist."""
    home = work / f"kraft-sweep-{os.getuid()}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = home.lstat()
    except OSError as error:
        raise StorageError(f"cannot use {home}: {error}") from None
    # Any user may create a file of this name in a directory for temporary files.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StorageError(f"{home} is not a directory of this user: name another (--work-dir)")
    return home


def _locked(path: Path) -> int | None:
    """Return a descriptor with the lock of a file, None where another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _clear(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
