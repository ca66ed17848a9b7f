"""A disk in memory with the states that a power loss may leave.

A file's content is durable once the file was synced; a name (created, renamed or removed), also of
a directory, is durable once its parent directory was synced. Unsynced changes may be durable too:
names without contents, contents without names, both, or neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from posixpath import dirname

from kraft.simulation.memory_disk import MemoryDisk

SURVIVALS = [(names, contents) for names in (False, True) for contents in (False, True)]


class PowerLossError(Exception):
    """The simulated power loss."""


@dataclass
class _Content:
    now: bytearray = field(default_factory=bytearray)
    lasting: bytes = b""


class _File:
    def __init__(self, disk: PowerLossDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content

    def append(self, buffers: Sequence[bytes]) -> int:
        self._disk.step()
        position = len(self._content.now)
        self._content.now += b"".join(bytes(buffer) for buffer in buffers)
        return position

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(self._content.now[position : position + size])

    def truncate(self, size: int) -> None:
        self._disk.step()
        del self._content.now[size:]

    def sync(self) -> None:
        self._disk.step()
        self._content.lasting = bytes(self._content.now)

    def size(self) -> int:
        return len(self._content.now)

    def close(self) -> None:
        pass


class PowerLossDisk:
    """A disk with the operations that formatting uses; the power fails at the ``steps``-th."""

    def __init__(self, root: str, steps: int) -> None:
        self._left = steps
        self._names: dict[str, _Content | None] = {root: None}  # None means a directory
        self._lasting = dict(self._names)

    def step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise PowerLossError

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> _File:
        if create and path not in self._names:
            self.step()
            self._names[path] = _Content()
        content = self._names[path]
        assert content is not None
        return _File(self, content)

    def rename(self, source: str, target: str) -> None:
        self.step()
        self._names[target] = self._names.pop(source)

    def remove(self, path: str) -> None:
        self.step()
        del self._names[path]

    def make_directory(self, directory: str) -> None:
        while directory not in self._names:
            self.step()
            self._names[directory] = None
            directory = dirname(directory)

    def sync_directory(self, directory: str) -> None:
        self.step()
        for path in {*self._names, *self._lasting}:
            if dirname(path) == directory:
                if path in self._names:
                    self._lasting[path] = self._names[path]
                else:
                    del self._lasting[path]

    def exists(self, path: str) -> bool:
        return path in self._names

    def left(self, names_survive: bool, contents_survive: bool) -> MemoryDisk:
        """Return the disk after the power loss, with or without unsynced names and contents."""
        names = self._names if names_survive else self._lasting
        disk = MemoryDisk()
        for path, content in sorted(names.items()):
            if dirname(path) not in disk.directories and disk.directories:
                continue  # its directory is lost, and the file with it
            if content is None:
                disk.directories.add(path)
            else:
                disk.files[path] = content.now if contents_survive else bytearray(content.lasting)
        return disk
