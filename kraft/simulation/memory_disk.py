"""Memory disk: the file-system port `kraft._core.log.disk` in plain Python.

A file is a bytearray; a directory is a name. `refuse` makes the next call of an operation fail as a
disk would.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Buffer

from kraft.errors import MissingFileError, StorageError


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str, content: bytearray, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._read_only = read_only

    def append(self, buffers: Sequence[Buffer], /) -> int:
        position = len(self._content)
        self.write_at(position, b"".join(bytes(buffer) for buffer in buffers))
        return position

    def write_at(self, position: int, data: Buffer, /) -> None:
        self._change("write")
        data = bytes(data)
        self._content.extend(bytes(max(0, position - len(self._content))))
        self._content[position : position + len(data)] = data

    def read_at(self, position: int, size: int, /) -> bytes:
        return bytes(self._content[position : position + size])

    def map(self, size: int, /) -> Buffer:
        return bytes(self._content[:size])

    def truncate(self, size: int, /) -> None:
        self._change("truncate")
        del self._content[size:]
        self._content.extend(bytes(size - len(self._content)))

    def begin_sync(self, position: int, size: int, /) -> None:
        self._disk.attempt("begin_sync", self.path)

    def sync(self) -> None:
        self._disk.attempt("sync", self.path)
        self._disk.synced.append(self.path)

    def size(self) -> int:
        return len(self._content)

    def close(self) -> None:
        pass

    def _change(self, operation: str) -> None:
        self._disk.attempt(operation, self.path)
        if self._read_only:
            raise StorageError(f"{self.path}: the file was opened for reading only")


class MemoryDisk:
    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories: set[str] = set()
        self.synced: list[str] = []
        #: By operation: what the path of the refused call contains.
        self._refused: dict[str, str] = {}

    def refuse(self, operation: str, part: str = "") -> None:
        """Make the next call of an operation on a path that contains ``part`` fail.

        Operations: write, truncate, begin_sync, sync, remove, rename, sync_directory.
        """
        self._refused[operation] = part

    def attempt(self, operation: str, path: str) -> None:
        if operation in self._refused and self._refused[operation] in path:
            del self._refused[operation]
            raise StorageError(f"cannot {operation} {path}: refused")

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create:
            self.files.setdefault(path, bytearray())
        if path not in self.files:
            raise MissingFileError(f"cannot open {path}: no such file")
        return MemoryFile(self, path, self.files[path], read_only)

    def list(self, directory: str, /) -> list[str]:
        if directory not in self.directories:
            raise StorageError(f"cannot list {directory}: no such file")
        start = directory + "/"
        return sorted(path[len(start) :] for path in self.files if path.startswith(start))

    def rename(self, source: str, target: str, /) -> None:
        self.attempt("rename", source)
        self.files[target] = self.files.pop(source)

    def remove(self, path: str, /) -> None:
        self.attempt("remove", path)
        del self.files[path]

    def remove_directory(self, path: str, /) -> None:
        self.attempt("remove", path)
        self.directories.remove(path)

    def sync_directory(self, directory: str, /) -> None:
        self.attempt("sync_directory", directory)
        self.synced.append(directory)

    def make_directory(self, directory: str, /) -> None:
        self.directories.add(directory)

    def exists(self, path: str, /) -> bool:
        return path in self.files or path in self.directories

    def size(self, path: str, /) -> int:
        return len(self.files[path])
