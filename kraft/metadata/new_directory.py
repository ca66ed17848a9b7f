"""Write a directory that gets its name once it is complete: salvage, backup, restore and rescue."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import fspath
from pathlib import Path

from kraft._core.log.disk import OsDisk
from kraft.errors import InvalidRequestError, KraftError, StorageError


@contextmanager
def new_directory(
    target: Path, *, mode: int = 0o777, refusal: type[KraftError] = InvalidRequestError
) -> Iterator[Path]:
    """Yield the empty directory ``TARGET.part``; sync it and rename it when the block has ended.

    After an error in the block nothing is left of it. ``mode`` is that of ``os.mkdir``.

    Raises ``refusal`` where ``target`` exists and is not an empty directory, or ``TARGET.part``
    exists: another process may be writing it. Raises StorageError for an OSError, of the block too.
    """
    check_is_new(target, refusal)
    part = target.with_name(f"{target.name}.part")
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        part.mkdir(mode)
    except FileExistsError as error:
        raise refusal(
            f"{error.filename} exists: another process writes it, or was killed while it did. If "
            "none runs, remove it"
        ) from error
    except OSError as error:
        raise _not_written(part, error) from error
    try:
        yield part
        for folder, _, _ in os.walk(part, topdown=False):
            sync(Path(folder))
        part.rename(target)
        sync(target.absolute().parent)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise _not_written(part, error) from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


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


def _not_written(part: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {error.filename or part}: {error.strerror or error}")
