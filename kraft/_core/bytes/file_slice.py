"""``FileSlice``: bytes of a file, as a part of a message that is sent without reading them.

A message holds it in place of the bytes. A data loop sends it with sendfile, or from the mapped
bytes to a peer on the same machine; every other connection reads it in a thread
(``kraft.network.file_copies``).

A slice refers to its file until it is sent. The owner of the file may rename it, remove it and drop
its own reference meanwhile, but does not close it: the descriptor is closed with the last
reference, so that its number cannot mean another file. ``kraft._core.log.segment`` keeps to this.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kraft.errors import StorageError


class ReadableFile(Protocol):
    """A file that can be read at any position, as ``kraft._core.log.disk.OsFile``."""

    def read_at(self, position: int, size: int, /) -> bytes:
        """Return ``size`` bytes, or fewer if the file ends before."""

    def fileno(self) -> int:
        """Return the descriptor, which is valid while this object exists."""


class FileSlice(NamedTuple):
    """``size`` bytes of a file from ``position`` on; nothing may change them while it exists.

    ``mapped``: the same bytes, where the file's owner has them mapped.
    """

    file: ReadableFile
    position: int
    size: int
    mapped: memoryview | None = None

    def read(self) -> bytes:
        """Return the bytes. Raises StorageError where the file ends within the slice."""
        data = self.file.read_at(self.position, self.size)
        if len(data) < self.size:
            raise StorageError(
                f"{self.file!r} ends at {self.position + len(data)}, within a slice of {self.size} "
                f"bytes at {self.position}"
            )
        return data

    def fileno(self) -> int:
        """Return the file's descriptor, for sendfile; valid while this slice exists.

        A slice without bytes, and one of a simulated disk, has none.
        """
        return self.file.fileno()


class _NoFile:
    """The file of a slice without bytes."""

    def read_at(self, position: int, size: int, /) -> bytes:
        return b""

    def fileno(self) -> int:
        raise OSError("a slice without bytes has no file")


#: A slice without bytes.
NO_RECORDS = FileSlice(_NoFile(), 0, 0)


def size_of(part: bytes | memoryview | FileSlice) -> int:
    """Return the bytes of a part of a message; ``len`` of a slice would be that of its tuple."""
    return part.size if isinstance(part, FileSlice) else len(part)
