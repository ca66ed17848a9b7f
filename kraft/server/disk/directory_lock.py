"""Lock a log directory for one process, by Kafka's ``.lock`` file.

The lock is the operating system's (POSIX ``fcntl``, as Java's ``FileLock`` takes): it excludes a
Kafka process too, and ends with the process however that ends. POSIX locks do not exclude two users
within one process; for that the module keeps the set of directories locked by this process.
"""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import Self

from kraft.errors import StorageError

LOCK_FILE = ".lock"

_held: set[str] = set()


class DirectoryLock:
    """The lock on a directory, held from construction to `release`.

    Raises StorageError where the directory is locked, or the file cannot be created.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.path.realpath(directory)
        path = os.path.join(self._directory, LOCK_FILE)
        taken = StorageError(
            f"{directory} is in use: another process (or this one) holds {path}. "
            "Each node needs a directory of its own; stop the other one first"
        )
        if self._directory in _held:
            raise taken
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise taken from error
        self._fd = fd
        _held.add(self._directory)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _held.discard(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def is_locked(directory: str | os.PathLike[str]) -> bool:
    """Return whether a process holds the lock, without creating the file.

    False without a ``.lock``, which every node creates.
    """
    root = os.path.realpath(directory)
    if root in _held:
        return True
    try:
        # A shared lock needs no permission to write, and none is granted beside a node's.
        fd = os.open(os.path.join(root, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot open {root}/{LOCK_FILE}: {error.strerror}") from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
