"""The file-system port: the few operations through which log and checkpoint reach files."""

from collections.abc import Sequence
from os import PathLike
from typing import Protocol

from typing_extensions import Buffer

class File(Protocol):
    """An open file. Positions and sizes are in bytes; every refusal is a StorageError.

    What `map` returns holds the bytes as they were, for as long as it lives; it need not show what
    is written later.
    """

    @property
    def path(self) -> str: ...
    def append(self, buffers: Sequence[Buffer], /) -> int:
        """Writes all buffers behind the end, in order; the position of the first byte."""

    def write_at(self, position: int, data: Buffer, /) -> None: ...
    def read_at(self, position: int, size: int, /) -> bytes:
        """At most `size` bytes; fewer only where the file ends."""

    def map(self, size: int, /) -> Buffer:
        """The first `size` bytes as a read-only buffer."""

    def truncate(self, size: int, /) -> None: ...
    def begin_sync(self, position: int, size: int, /) -> None:
        """Lets the device begin with these bytes, so that `sync` has less to wait for; nothing is
        durable by it.
        """

    def sync(self) -> None:
        """fdatasync; never tried again after a StorageError."""

    def size(self) -> int: ...
    def close(self) -> None: ...

class Disk(Protocol):
    """A file system, as far as log and checkpoint need one; every refusal is a StorageError."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """The file at `path`; made, empty, where it is not there and `create` is set."""

    def list(self, directory: str, /) -> list[str]:
        """The names (no paths) in a directory, in ascending order."""

    def rename(self, source: str, target: str, /) -> None:
        """Puts `source` in the place of `target`, which may be there; atomic."""

    def remove(self, path: str, /) -> None: ...
    def sync_directory(self, directory: str, /) -> None:
        """Names made, renamed or removed in the directory are durable when this returns."""

    def make_directory(self, directory: str, /) -> None:
        """Makes the directory and those above it where they are not there yet."""

    def exists(self, path: str, /) -> bool: ...
    def size(self, path: str, /) -> int: ...

def write_atomically(disk: Disk, path: str, data: Buffer) -> None:
    """Replaces `path` by `data`: whoever looks sees the old content or the new, never a part.

    Writes `path` + ".tmp", syncs it, renames it over `path` and syncs the directory.
    """

class Mapping(Buffer):
    """Read-only bytes, mapped; made by `File.map`, valid for as long as any view of it lives."""

    @property
    def size(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def __len__(self) -> int: ...

class OsFile:
    """A file of the operating system; made by `OsDisk.open`. One writer at a time."""

    @property
    def path(self) -> str: ...
    @property
    def read_only(self) -> bool: ...
    def append(self, buffers: Sequence[Buffer]) -> int:
        """Writes all buffers behind the end, in order, by one pwritev a 64 buffers; no copy.

        Returns the position of the first byte. The buffers may be any contiguous bytes-likes.
        Raises StorageError; the file's end is then where it was, with what was written behind it to
        be overwritten by the next append.
        """

    def write_at(self, position: int, data: Buffer) -> None:
        """Writes `data` at `position`; the file grows where that lies behind its end."""

    def read_at(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; fewer only where the file ends."""

    def map(self, size: int) -> Mapping:
        """The first `size` bytes, mapped: a read-only buffer that copies nothing."""

    def truncate(self, size: int) -> None:
        """Makes the file exactly `size` bytes long."""

    def begin_sync(self, position: int, size: int) -> None:
        """Has the device begin to write `size` bytes from `position` on (``sync_file_range``), and
        does not wait.

        Makes nothing durable: that is what `sync` does, which then has less to wait for. A kernel
        that cannot do it does nothing. Raises StorageError where the device refused.
        """

    def sync(self) -> None:
        """fdatasync: the bytes, and the size if it changed, are on the device at the return.

        Raises StorageError where the device refused; what was written is then in doubt, and
        nothing may be built on a later sync of this file that succeeds.
        """

    def size(self) -> int:
        """The size in bytes, as of opening and of what was done through this object."""

    def close(self) -> None:
        """Gives the descriptor back; mappings stay valid. Closing twice does nothing."""

class OsDisk:
    """The operating system's files."""

    def open(
        self, path: str | PathLike[str], *, create: bool = False, read_only: bool = False
    ) -> OsFile:
        """The file at `path`, made empty first where `create` is set and it is not there.

        Raises StorageError, also where the file is not there.
        """

    def list(self, directory: str) -> list[str]:
        """The names (no paths) in a directory, in ascending order."""

    def rename(self, source: str, target: str) -> None:
        """Puts `source` in the place of `target`, which may be there; atomic."""

    def remove(self, path: str) -> None:
        """Removes a file; what is mapped of it stays readable."""

    def sync_directory(self, directory: str) -> None:
        """fsync of the directory: names made, renamed or removed in it are durable then."""

    def make_directory(self, directory: str) -> None:
        """Makes the directory and those above it where they are not there yet."""

    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int:
        """The size in bytes of the file at `path`."""
