"""The directory that a scenario writes to: temporary unless the user names one.

Creates and removes the temporary directory, and checks the free space before anything is written.

Invariants: a directory named by the user must be empty and is never removed; a temporary one is
removed on success, error and Ctrl-C, and a second Ctrl-C does not interrupt that.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraft.errors import InvalidRequestError, StorageError


@contextmanager
def workspace(directory: Path | None, *, keep: bool, needed_size: int) -> Iterator[Path]:
    """Yield the directory to write to, which has ``needed_size`` bytes free.

    ``directory`` is used as it is and stays; without it a temporary directory is created, which
    stays only with ``keep`` and only when the block succeeds. Raises :class:`InvalidRequestError`
    where ``directory`` is not empty, :class:`StorageError` where there is too little space or the
    directory cannot be created.
    """
    if directory is None:
        try:
            path = Path(tempfile.mkdtemp(prefix="kraft-lab-"))
        except OSError as error:
            raise StorageError(f"cannot create a temporary directory: {error}") from None
    else:
        path = _created(directory)
    is_kept = directory is not None
    try:
        _check_free_space(path, needed_size)
        yield path
        is_kept = is_kept or keep
    finally:
        if not is_kept:
            _remove(path)


def _created(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise InvalidRequestError(f"{directory} is not empty: name an empty one")
    except OSError as error:
        raise StorageError(f"cannot use {directory}: {error}") from None
    return directory


def _check_free_space(directory: Path, needed_size: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed_size:
        raise StorageError(
            f"the scenario writes up to {needed_size / 2**30:.1f} GiB and {directory} has "
            f"{free / 2**30:.1f} GiB free: name another directory (--dir) or fewer partitions"
        )


def _remove(path: Path) -> None:
    """Remove the directory; in the main thread, Ctrl-C is ignored meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        shutil.rmtree(path, ignore_errors=True)
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        signal.signal(signal.SIGINT, before)
