"""The file-system port: the operations through which logs and snapshots use files."""

from collections.abc import Sequence
from os import PathLike
from typing import Protocol, final

from typing_extensions import Buffer

class File(Protocol):
    """An open file. Positions and sizes are in bytes; every failure is a StorageError.

    A buffer from `map` keeps its bytes as they were while it exists; it may or may not show later
    writes.
    """

    @property
    def path(self) -> str: ...
    def append(self, buffers: Sequence[Buffer], /) -> int:
        """Append all buffers in order; return the position of the first byte."""

    def write_at(self, position: int, data: Buffer, /) -> None: ...
    def read_at(self, position: int, size: int, /) -> bytes:
        """Return `size` bytes, or fewer if the file ends before."""

    def map(self, size: int, /) -> Buffer:
        """Return the first `size` bytes as a read-only buffer."""

    def truncate(self, size: int, /) -> None: ...
    def begin_sync(self, position: int, size: int, /) -> None:
        """Start to write these bytes to the device, so that `sync` waits less.

        They are not durable before `sync`.
        """

    def sync(self) -> None:
        """fdatasync; never called again after a StorageError."""

    def size(self) -> int: ...
    def close(self) -> None: ...

class Disk(Protocol):
    """A file system, as far as logs and snapshots use one; every failure is a StorageError."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open the file at `path`; with `create`, make an empty one if there is none.

        Raises MissingFileError for a missing file.
        """

    def list(self, directory: str, /) -> list[str]:
        """Return the names (without directory) in a directory, ascending."""

    def rename(self, source: str, target: str, /) -> None:
        """Rename `source` to `target` atomically, replacing an existing `target`."""

    def remove(self, path: str, /) -> None: ...
    def remove_directory(self, path: str, /) -> None:
        """Remove an empty directory."""

    def sync_directory(self, directory: str, /) -> None:
        """Make the names that were created, renamed or removed in the directory durable."""

    def make_directory(self, directory: str, /) -> None:
        """Make the directory and its parents, if they do not exist."""

    def exists(self, path: str, /) -> bool: ...
    def size(self, path: str, /) -> int: ...

def write_atomically(disk: Disk, path: str, data: Buffer) -> None:
    """Replace `path` by `data`: a reader sees the old content or the new, never a part.

    Writes `path` + ".tmp", syncs it, renames it to `path` and syncs the directory.
    """

@final
class Mapping(Buffer):
    """Read-only mapped bytes; made by `File.map`, valid while any view of them exists."""

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
        """Append all buffers in order, with one pwritev per 64 buffers and no copy.

        Returns the position of the first byte. The buffers may be any contiguous bytes-likes.
        Raises StorageError; the file's end is then unchanged, and the next append overwrites the
        bytes that were written after it.
        """

    def write_at(self, position: int, data: Buffer) -> None:
        """Write `data` at `position`; the file grows if that is after its end."""

    def read_at(self, position: int, size: int) -> bytes:
        """Return `size` bytes from `position` on, or fewer if the file ends before."""

    def map(self, size: int) -> Mapping:
        """Map the first `size` bytes as a read-only buffer, without copying."""

    def truncate(self, size: int) -> None:
        """Set the file's size to `size` bytes."""

    def begin_sync(self, position: int, size: int) -> None:
        """Start to write `size` bytes from `position` on to the device (``sync_file_range``).

        Does not wait: the bytes are durable only after `sync`, which then waits less. Does nothing
        if the kernel does not support it. Raises StorageError if the device fails.
        """

    def sync(self) -> None:
        """fdatasync: the bytes, and a changed size, are on the device when this returns.

        Raises StorageError if the device fails. The written bytes are then in doubt, even if a
        later sync of this file succeeds.
        """

    def size(self) -> int:
        """Return the size in bytes, as of opening and the operations of this object."""

    def fileno(self) -> int:
        """Return the descriptor, which is valid while this object exists and is not closed."""

    def close(self) -> None:
        """Close the descriptor; mappings stay valid. Closing twice does nothing."""

class OsDisk:
    """The operating system's files."""

    def open(
        self, path: str | PathLike[str], *, create: bool = False, read_only: bool = False
    ) -> OsFile:
        """Open the file at `path`; with `create`, make an empty one if there is none.

        Raises MissingFileError for a missing file, StorageError otherwise.
        """

    def list(self, directory: str) -> list[str]:
        """Return the names (without directory) in a directory, ascending."""

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target` atomically, replacing an existing `target`."""

    def remove(self, path: str) -> None:
        """Remove a file; its mappings stay readable."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, directory: str) -> None:
        """fsync the directory: names created, renamed or removed in it become durable."""

    def make_directory(self, directory: str) -> None:
        """Make the directory and its parents, if they do not exist."""

    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int:
        """Return the size in bytes of the file at `path`."""
