"""Write a directory that gets its name once it is complete: salvage, backup, restore and rescue.

    TARGET.part/.writing    empty, locked with flock while a process writes the directory
    TARGET.part/content     what is written; after its sync it is renamed to TARGET

The lock ends with the process however that ends. Therefore the next process can tell a directory
that a killed process left from one that is being written, and replaces the first. A ``TARGET.part``
that has content but not ``.writing`` is not kraft's, and is never removed: kraft creates the file
first and removes it last.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import fspath
from pathlib import Path

from kraft._core.log.disk import OsDisk
from kraft.errors import InvalidRequestError, KraftError, StorageError

WRITING, CONTENT = ".writing", "content"
#: Errors of flock on a file system that has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def new_directory(
    target: Path, *, mode: int = 0o777, refusal: type[KraftError] = InvalidRequestError
) -> Iterator[Path]:
    """Yield a directory to write; sync it and rename it to ``target`` when the block has ended.

    An error in the block removes the directory. One that a killed process left is replaced.
    ``mode`` is the argument of ``os.mkdir``.

    Raises ``refusal`` where ``target`` exists and is not an empty directory, where another process
    writes ``TARGET.part``, or where that exists and is not from this function. Raises StorageError
    for an OSError, of the block too.
    """
    check_is_new(target, refusal)
    part = target.with_name(f"{target.name}.part")
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        lock = _create(part, mode, refusal)
    except FileExistsError as error:
        raise refusal(f"{error.filename} exists: another process writes it") from error
    except OSError as error:
        raise _not_written(part, error) from error
    try:
        content = part / CONTENT
        content.mkdir(mode)
        yield content
        _sync_folders(content)
        content.rename(target)
        sync(target.absolute().parent)
    except OSError as error:
        raise _not_written(part, error) from error
    finally:
        try:
            # What cannot be removed now is replaced by the next process.
            with suppress(OSError):
                _remove(part)
        finally:
            os.close(lock)


def check_is_new(target: Path, refusal: type[KraftError] = InvalidRequestError) -> None:
    """Raise ``refusal`` where ``target`` exists and is not an empty directory."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise refusal(f"{target} already exists: name a new directory")


def sync(path: Path) -> None:
    """Make the content of a file, or the entries of a directory, durable."""
    if path.is_dir():
        OsDisk().sync_directory(fspath(path))
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(part: Path, mode: int, refusal: type[KraftError]) -> int:
    """Create ``part`` and lock it; return the descriptor that holds the lock."""
    try:
        part.mkdir(mode)
    except FileExistsError:
        _remove_what_was_left(part, refusal)
        part.mkdir(mode)
    lock = os.open(part / WRITING, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # A process that found the file before it was locked may have removed the directory.
        if not _takes_lock(lock, part):
            raise refusal(f"{part} exists: another process writes it")
    except OSError as error:
        # A file system without locks: the next process cannot lock the file either, and refuses.
        if error.errno not in _NO_LOCKS:
            os.close(lock)
            raise
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_what_was_left(part: Path, refusal: type[KraftError]) -> None:
    """Remove a ``part`` whose writer was killed; raise ``refusal`` for any other."""
    try:
        lock = os.open(part / WRITING, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        try:
            # Its process was killed before it created the file, or after it removed it.
            part.rmdir()
        except OSError:
            raise refusal(
                f"{part} exists and has no {WRITING}, so that kraft cannot know whether it is a "
                "remainder: move it or remove it"
            ) from None
        return
    try:
        if not _takes_lock(lock, part):
            raise refusal(f"{part} exists: another process writes it")
        _remove(part)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise refusal(
            f"{part} exists: another process writes it, or was killed while it did. If none runs, "
            "remove it"
        ) from None
    finally:
        os.close(lock)


def _remove(part: Path) -> None:
    """Remove a ``part`` that this process has locked, its ``.writing`` last."""
    if (part / CONTENT).exists():
        shutil.rmtree(part / CONTENT)
    (part / WRITING).unlink()
    part.rmdir()


def _takes_lock(lock: int, part: Path) -> bool:
    """Lock the file; return False where another process has the lock, or replaced the file."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock), os.stat(part / WRITING))
    except (BlockingIOError, FileNotFoundError):
        return False


def _sync_folders(part: Path) -> None:
    for folder, _, _ in os.walk(part, topdown=False):
        sync(Path(folder))


def _not_written(part: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {error.filename or part}: {error.strerror or error}")
