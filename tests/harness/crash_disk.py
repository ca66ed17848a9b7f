"""Crash disk: a file system in memory that can stop at any moment and lose unsynced work.

It implements the port ``kraft._core.log.disk`` with the guarantees of a file system and no more:

- until a file is synced, its writes are lost, kept, or kept in part, down to any byte or sector, in
  any order of the sectors; so are its truncations;
- until a directory is synced, a created, renamed or removed name may have its old state,
  independently of the file's content;
- files are independent: the last unsynced work may be kept although earlier work is lost.

The disk calls ``on_boundary`` at every step before or after which a crash can happen: during a
write, a truncation or a change of a name, and before each sync. `after_crash` returns the disk that
a restarted node would find, in one of the `Loss` ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from typing_extensions import Buffer

from kraft.errors import StorageError

SECTOR = 512


class Loss(Enum):
    """The fate of unsynced work in a crash."""

    #: All of it is lost.
    ALL = "all"
    #: All of it is kept, as if it were synced.
    NOTHING = "nothing"
    #: Each file keeps its work up to any byte of any write; all changes of names are kept.
    TORN = "torn"
    #: Each sector has its state after any of its writes, independently of the others; files have
    #: grown or not; each change of a name is kept or not. In a small file, one sector that is
    #: overwritten in place may be torn.
    SECTORS = "sectors"
    #: Each file and each directory in one of the other ways.
    MIXED = "mixed"


@dataclass(slots=True)
class Inode:
    """The bytes of a file as reads see them, its synced bytes, and the pending changes."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    #: (position, bytes) of a write, (size, None) of a truncation.
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self, count: int) -> None:
        """The first ``count`` pending changes are on the device."""
        durable = bytearray(self.durable)
        for position, data in self.pending[:count]:
            put(durable, position, data)
        self.durable = bytes(durable)
        del self.pending[:count]

    def after_crash(self, loss: Loss, random: Random) -> bytearray:
        if loss is Loss.NOTHING:
            return bytearray(self.content)
        left = bytearray(self.durable)
        if loss is Loss.ALL or not self.pending:
            return left
        if loss is Loss.TORN:
            count = random.randrange(len(self.pending) + 1)
            for position, data in self.pending[:count]:
                put(left, position, data)
            if count < len(self.pending):
                position, data = self.pending[count]
                if data is not None:
                    put(left, position, data[: random.randrange(len(data) + 1)])
            return left
        stale: set[int] = set()
        # At most one sector is torn; a log detects it as written or not.
        is_in_place = len(self.content) == len(self.durable) <= 2 * SECTOR
        torn = random.randrange(2 * len(self.pending)) if is_in_place else -1
        for index, (position, data) in enumerate(self.pending):
            if data is None:
                if random.random() < 0.5:
                    put(left, position, None)
                continue
            if random.random() < 0.5:
                # The size may be durable before the bytes.
                put(left, max(len(left), position + len(data)), None)
            for start in range(position - position % SECTOR, position + len(data), SECTOR):
                if start in stale or random.random() < 0.5:
                    stale.add(start)
                    continue
                first = max(start, position)
                sector = data[first - position : start + SECTOR - position]
                if index == torn:
                    sector = sector[: random.randrange(len(sector) + 1)]
                put(left, first, sector)
        return left


def put(content: bytearray, position: int, data: bytes | None) -> None:
    """Write ``data``, or truncate to ``position`` if it is None; gaps are zeros."""
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
        return
    content.extend(bytes(max(0, position - len(content))))
    content[position : position + len(data)] = data


class CrashFile:
    def __init__(self, disk: CrashDisk, path: str, inode: Inode, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._read_only = read_only

    def append(self, buffers: Sequence[Buffer], /) -> int:
        position = len(self._inode.content)
        self.write_at(position, b"".join(bytes(buffer) for buffer in buffers))
        return position

    def write_at(self, position: int, data: Buffer, /) -> None:
        self._change(position, bytes(data))

    def read_at(self, position: int, size: int, /) -> bytes:
        return bytes(self._inode.content[position : position + size])

    def map(self, size: int, /) -> Buffer:
        return bytes(self._inode.content[:size])

    def truncate(self, size: int, /) -> None:
        if size != len(self._inode.content):
            self._change(size, None)

    def begin_sync(self, position: int, size: int, /) -> None:
        # Unsynced work may reach the device at any time: this promises nothing.
        self._disk.on_boundary()

    def sync(self) -> None:
        self._disk.on_boundary()
        self._inode.sync(len(self._inode.pending))

    def size(self) -> int:
        return len(self._inode.content)

    def close(self) -> None:
        pass

    def _change(self, position: int, data: bytes | None) -> None:
        if self._read_only:
            raise StorageError(f"{self.path}: the file was opened for reading only")
        put(self._inode.content, position, data)
        self._inode.pending.append((position, data))
        self._disk.on_boundary()


@dataclass(slots=True)
class Directory:
    names: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    #: What each change since the last sync made of the names that it touched.
    pending: list[Change] = field(default_factory=list)

    def sync(self, count: int) -> None:
        """The first ``count`` pending changes are on the device."""
        for change in self.pending[:count]:
            apply(self.durable, change)
        del self.pending[:count]

    def after_crash(self, loss: Loss, random: Random) -> Names:
        left = dict(self.durable)
        for change in self.pending:
            if loss in (Loss.NOTHING, Loss.TORN) or (
                loss is not Loss.ALL and random.random() < 0.5
            ):
                apply(left, change)
        return left


GONE = False
Names = dict[str, Inode | Directory]
Change = dict[str, Inode | Directory | bool]


def apply(names: Names, change: Change) -> None:
    for name, node in change.items():
        if isinstance(node, bool):
            names.pop(name, None)
        else:
            names[name] = node


class CrashDisk:
    """A disk that can crash. Paths are absolute; the directory "/" exists."""

    def __init__(self) -> None:
        self.directories: dict[str, Directory] = {"/": Directory()}
        self.on_boundary: Callable[[], None] = lambda: None

    def after_crash(self, loss: Loss, random: Random) -> CrashDisk:
        """Return what is left of the disk if it stops now; this disk is unchanged."""
        left = CrashDisk()
        inodes: dict[int, Inode] = {}

        def visit(path: str, directory: Directory) -> Directory:
            fate = random.choice(list(Loss)) if loss is Loss.MIXED else loss
            # A directory comes before those in it.
            found = left.directories[path] = Directory()
            names = found.names
            inside: list[tuple[str, Directory]] = []
            for name, node in directory.after_crash(fate, random).items():
                if isinstance(node, Directory):
                    inside.append((name, node))
                    continue
                if id(node) not in inodes:
                    fate = random.choice(list(Loss)) if loss is Loss.MIXED else loss
                    content = node.after_crash(fate, random)
                    inodes[id(node)] = Inode(content, bytes(content))
                names[name] = inodes[id(node)]
            for name, node in sorted(inside, key=lambda one: one[0]):
                names[name] = visit(join(path, name), node)
            found.durable = dict(names)
            return found

        visit("/", self.directories["/"])
        return left

    def files(self) -> dict[str, bytes]:
        """Return the contents of all files by path."""
        return {
            join(path, name): bytes(inode.content)
            for path, directory in self.directories.items()
            for name, inode in directory.names.items()
            if isinstance(inode, Inode)
        }

    @classmethod
    def of(cls, files: dict[str, bytes]) -> CrashDisk:
        """Return a disk with these files, all durable."""
        disk = cls()
        for path, content in files.items():
            parent, name = os.path.split(path)
            disk.make_directory(parent)
            disk.directories[parent].names[name] = Inode(bytearray(content), content)
        for directory in disk.directories.values():
            directory.durable = dict(directory.names)
            directory.pending.clear()
        return disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashFile:
        directory, name = self._find(path)
        inode = directory.names.get(name)
        assert not isinstance(inode, Directory), f"{path} is a directory"
        if inode is None:
            if not create:
                raise StorageError(f"cannot open {path}: no such file")
            inode = Inode()
            self._rename(directory, {name: inode})
        return CrashFile(self, path, inode, read_only)

    def list(self, path: str, /) -> list[str]:
        if path not in self.directories:
            raise StorageError(f"cannot list {path}: no such file")
        return sorted(self.directories[path].names)

    def rename(self, source: str, target: str, /) -> None:
        directory, name = self._find(source)
        other, new_name = self._find(target)
        assert directory is other, "renames stay in their directory"
        if name not in directory.names:
            raise StorageError(f"cannot rename {source}: no such file")
        if source in self.directories:
            for path in [each for each in self.directories if f"{each}/".startswith(f"{source}/")]:
                self.directories[target + path[len(source) :]] = self.directories.pop(path)
        self._rename(directory, {name: GONE, new_name: directory.names[name]})

    def remove(self, path: str, /) -> None:
        directory, name = self._find(path)
        if name not in directory.names:
            raise StorageError(f"cannot remove {path}: no such file")
        self._rename(directory, {name: GONE})

    def remove_directory(self, path: str, /) -> None:
        assert not self.directories[path].names, "the directory is not empty"
        parent, name = os.path.split(path)
        del self.directories[path]
        self._rename(self.directories[parent], {name: GONE})

    def sync_directory(self, path: str, /) -> None:
        self.on_boundary()
        directory = self.directories.get(path)
        if directory is None:
            raise StorageError(f"cannot sync {path}: no such directory")
        directory.sync(len(directory.pending))

    def make_directory(self, path: str, /) -> None:
        if path in self.directories:
            return
        parent, name = os.path.split(path)
        self.make_directory(parent)
        made = self.directories[path] = Directory()
        self._rename(self.directories[parent], {name: made})

    def exists(self, path: str, /) -> bool:
        parent, name = os.path.split(path)
        return path in self.directories or name in self.directories.get(parent, Directory()).names

    def size(self, path: str, /) -> int:
        return self.open(path, read_only=True).size()

    def _find(self, path: str) -> tuple[Directory, str]:
        parent, name = os.path.split(path)
        if parent not in self.directories:
            raise StorageError(f"cannot reach {path}: its directory is not there")
        return self.directories[parent], name

    def _rename(self, directory: Directory, change: Change) -> None:
        apply(directory.names, change)
        directory.pending.append(change)
        self.on_boundary()


def join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"
