"""Work of a node while it leads, and its notes of acknowledgements, for nodes under load."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine

from kraft.raft.interface import Role, RoleChange


class NotesFile:
    """Lines that are appended with one system call each, so that a kill leaves whole lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, line: str) -> None:
        data = f"{line}\n".encode()
        written = os.write(self._file, data)
        assert written == len(data)


class WorkOfLeader:
    """Runs ``work(epoch)`` from the commit of a leader's first record until it stops leading."""

    def __init__(self, work: Callable[[int], Coroutine[None, None, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def change_role(self, change: RoleChange) -> None:
        """Start or cancel the work: a node's ``on_role``."""
        if change.is_active and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(change.epoch))
        elif change.role is not Role.LEADER and self._task is not None:
            self._task.cancel()
            self._task = None
