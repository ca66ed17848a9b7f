"""Replay a recording on a simulated disk (`CrashDisk`) that may stop after any system call.

Invariants: a successful sync makes the changes durable that were recorded before its start. An
unknown call is an error. `differences` finds calls that the recorder missed: at rest, the replayed
files equal those of the recorded directory, byte for byte.
"""

from __future__ import annotations

import os

from tests.durability.recording import Call, Kind
from tests.harness.crash_disk import GONE, CrashDisk, Directory, Inode, put


class UnknownCallError(Exception):
    """A recorded call that the replay does not support."""


class ReplayedDisk(CrashDisk):
    """The directory ``root`` after the calls so far.

    Its content at the start counts as durable.
    """

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root
        self.make_directory(root)
        for directory in self.directories.values():
            directory.sync(len(directory.pending))
        self.inodes: dict[int, Inode] = {}
        self._paths: dict[int, str] = {}
        #: Syncs in progress: by thread, with the number of changes they cover.
        self._syncing: dict[tuple[int, int], int] = {}
        self._load()

    def _load(self) -> None:
        for path, _, names in os.walk(self.root):
            self.make_directory(path)
            directory = self.directories[path]
            self._paths[os.stat(path).st_ino] = path
            for name in names:
                with open(os.path.join(path, name), "rb") as file:
                    content = file.read()
                    inode = Inode(bytearray(content), content)
                    self.inodes[os.fstat(file.fileno()).st_ino] = inode
                directory.names[name] = inode
        for directory in self.directories.values():
            directory.durable = dict(directory.names)
            directory.pending.clear()

    def take(self, call: Call) -> None:
        """Apply a call. Raises UnknownCallError."""
        kind = call.kind
        if kind is Kind.WRITE:
            self._change(call.inode, call.at, call.data)
        elif kind is Kind.TRUNCATE:
            if call.at != len(self.inodes[call.inode].content):
                self._change(call.inode, call.at, None)
        elif kind is Kind.SYNC_BEGIN:
            pending = self.synced_by(call).pending
            self._syncing[call.thread, call.inode] = len(pending)
        elif kind is Kind.SYNC_END:
            count = self._syncing.pop((call.thread, call.inode))
            if call.at == 0:
                self.synced_by(call).sync(count)
        elif kind is Kind.CREATE:
            inode = self.inodes[call.inode] = Inode()
            self._name(call.path, inode)
        elif kind is Kind.RENAME:
            source, target = call.paths
            directory, name = self._find(source)
            other, new_name = self._find(target)
            if directory is not other:
                raise UnknownCallError(f"{source} was renamed to {target}")
            self._rename(directory, {name: GONE, new_name: directory.names[name]})
        elif kind is Kind.UNLINK:
            self._name(call.path, GONE)
        elif kind is Kind.MKDIR:
            made = self.directories[call.path] = Directory()
            self._paths[call.inode] = call.path
            self._name(call.path, made)
        elif kind in (Kind.UNKNOWN, Kind.RMDIR):
            raise UnknownCallError(f"{kind.name} {call.path}")

    def synced_by(self, call: Call) -> Inode | Directory:
        """Return the file or directory of a sync."""
        if call.inode in self._paths:
            return self.directories[self._paths[call.inode]]
        return self.inodes[call.inode]

    def path_of(self, inode: Inode) -> str | None:
        """Return the path of a file; None for one without a name."""
        for path, directory in self.directories.items():
            for name, other in directory.names.items():
                if other is inode:
                    return os.path.join(path, name)
        return None

    def differences(self) -> list[str]:
        """Return the paths that differ between the replay and the directory at rest."""
        found = {}
        for path, _, names in os.walk(self.root):
            for name in names:
                with open(os.path.join(path, name), "rb") as file:
                    found[os.path.join(path, name)] = file.read()
        wanted = self.files()
        return sorted(path for path in {*found, *wanted} if found.get(path) != wanted.get(path))

    def _change(self, number: int, position: int, data: bytes | None) -> None:
        inode = self.inodes[number]
        put(inode.content, position, data)
        inode.pending.append((position, data))

    def _name(self, path: str, inode: Inode | Directory | bool) -> None:
        directory, name = self._find(path)
        self._rename(directory, {name: inode})
