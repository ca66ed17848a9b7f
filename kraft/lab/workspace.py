"""Where a scenario writes: a directory that is gone afterwards, unless it was asked for.

Owns the temporary directory, its removal on every way out, and the look at the disk before
anything is written.

Invariants: a directory that the user named is never removed and must be empty; a temporary one is
removed on success, error and Ctrl-C, and a second Ctrl-C does not stop that.
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
    """The directory to write in, with room for ``needed_size`` bytes.

    ``directory`` is used as it is and stays; without it a temporary one is made, which stays only
    with ``keep`` and only when the block ends well. Raises :class:`InvalidRequestError` where
    ``directory`` holds anything, :class:`StorageError` where there is no room or the directory
    cannot be made.
    """
    if directory is None:
        try:
            path = Path(tempfile.mkdtemp(prefix="kraft-lab-"))
        except OSError as error:
            raise StorageError(f"no temporary directory can be made: {error}") from None
    else:
        path = _made(directory)
    is_kept = directory is not None
    try:
        _check_room(path, needed_size)
        yield path
        is_kept = is_kept or keep
    finally:
        if not is_kept:
            _remove(path)


def _made(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise InvalidRequestError(f"{directory} is not empty: name a directory that is")
    except OSError as error:
        raise StorageError(f"{directory} cannot be used: {error}") from None
    return directory


def _check_room(directory: Path, needed_size: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed_size:
        raise StorageError(
            f"the scenario writes up to {needed_size / 2**30:.1f} GiB and {directory} has "
            f"{free / 2**30:.1f} GiB left: name another place (--dir) or fewer partitions"
        )


def _remove(path: Path) -> None:
    """Removes the directory; where signals can be held off, Ctrl-C waits until that is done."""
    if threading.current_thread() is not threading.main_thread():
        shutil.rmtree(path, ignore_errors=True)
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        signal.signal(signal.SIGINT, before)
