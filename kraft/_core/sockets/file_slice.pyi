"""Parts of files that a response contains without a copy of their bytes."""

from os import PathLike
from typing import final

@final
class SharedFile:
    """A file that is open for reading until its last reference is gone; it cannot be closed.

    Raises StorageError where the file cannot be opened.
    """

    def __new__(cls, path: str | PathLike[str]) -> SharedFile: ...
    @property
    def path(self) -> str: ...
    def fileno(self) -> int: ...

@final
class FileSlice:
    """``size`` bytes of a file from ``position`` on.

    Raises ValueError for a negative position, and for a size below 0 or from 2 GiB on.
    """

    def __new__(cls, file: SharedFile, position: int, size: int) -> FileSlice: ...
    @property
    def file(self) -> SharedFile: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def read(self, start: int, most: int) -> bytes:
        """Return up to ``most`` bytes of the slice from its byte ``start`` on.

        Raises StorageError where the file ends within the slice or cannot be read, and ValueError
        for a start outside of the slice.
        """
