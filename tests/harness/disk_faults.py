"""Faulty versions of the store's methods, which the proofs of the disk must detect."""

from __future__ import annotations

from typing import Any

from kraft.server.disk.files import SyncedOffset
from kraft.server.disk.snapshots import SnapshotFiles


def lower_one_slot(self: SyncedOffset, offset: int, epoch: int) -> None:
    if offset < self.offset:
        self._write(offset, epoch)
        assert self.file is not None
        self.file.sync()


def remove_all_but_the_log(self: SnapshotFiles, id: Any) -> None:
    for old in self.find():
        self._disk.remove(self.path(old))
