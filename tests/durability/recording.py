"""Make and read recordings of system calls.

The tests compile ``recorder.c`` and preload it into the recorded process; see there for the
recorded calls and the possible faults. A recording is complete once no process writes to it; of a
process that reads its own, all calls of the reading thread are there.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("recorder.c")
UNDER, TO = "RECORD_UNDER", "RECORD_TO"
SENDS, SHORTEN, FAIL, DROP = "RECORD_SENDS", "RECORD_SHORTEN", "RECORD_FAIL", "RECORD_DROP"

_HEAD = struct.Struct("<IiqQqq")


class Kind(Enum):
    """The kind of a record; the values are those of ``recorder.c``."""

    CREATE = "c"
    WRITE = "w"
    TRUNCATE = "t"
    SYNC_BEGIN = "b"
    SYNC_END = "e"
    RANGE = "g"
    RENAME = "r"
    UNLINK = "u"
    MKDIR = "m"
    RMDIR = "x"
    SEND = "s"
    FAILED = "f"
    UNKNOWN = "?"


_KINDS = {ord(kind.value): kind for kind in Kind}


class Call(NamedTuple):
    """One record; ``at`` is a position, size or result, ``of`` the port of a receiver."""

    kind: Kind
    thread: int
    inode: int
    at: int
    of: int
    data: bytes

    @property
    def path(self) -> str:
        return os.fsdecode(self.data)

    @property
    def paths(self) -> tuple[str, str]:
        """Return the old and the new path of a rename."""
        source, target = os.fsdecode(self.data).split("\0")
        return source, target


class Recording:
    """Reads the file of a recording; `new` continues after the last read record."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._position = 0

    def new(self) -> Iterator[Call]:
        if not os.path.exists(self._path):
            return
        with open(self._path, "rb") as file:
            file.seek(self._position)
            data = file.read()
        position = 0
        while len(data) - position >= _HEAD.size:
            size, kind, thread, inode, at, of = _HEAD.unpack_from(data, position)
            begin = position + _HEAD.size
            if len(data) - begin < size:
                break
            position = begin + size
            yield Call(_KINDS[kind], thread, inode, at, of, data[begin:position])
        # On tmpfs a reader may see a part of a record that another thread writes: it is left for
        # the next call.
        self._position += position


def missing_for_recordings() -> str | None:
    """Return why this machine cannot record; None where it can."""
    if not sys.platform.startswith("linux"):
        return "recordings need LD_PRELOAD and the system calls of Linux"
    if _compiler() is None:
        return "recordings need a C compiler"
    return None


def compile_recorder(directory: Path, source: Path = SOURCE) -> Path:
    """Return the library to preload. Raises CalledProcessError where the compiler fails."""
    compiler = _compiler()
    assert compiler is not None
    library = directory / f"{source.stem}.so"
    options = ("-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl")
    subprocess.run([*compiler, *options], check=True)
    return library


def _compiler() -> list[str] | None:
    named = os.environ.get("CC")
    found = named.split() if named else [shutil.which("gcc") or shutil.which("cc") or ""]
    return found if found[0] else None


def recorded(library: Path, under: Path, to: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process whose changes under a directory are recorded."""
    return {**os.environ, **variables(library, under, to, **more)}


def variables(library: Path, under: Path, to: Path, **more: str) -> dict[str, str]:
    """Return the variables that make a process record its changes under a directory."""
    return {
        "LD_PRELOAD": str(library),
        UNDER: os.path.realpath(under),
        TO: str(to),
        **more,
    }
