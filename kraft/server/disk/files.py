"""The two small files by which a restart knows what this node has promised.

Owns ``quorum-state`` as it lies on disk, and ``synced-offset-checkpoint``.

``quorum-state`` is Kafka's JSON with one field more, which Kafka passes over::

    {…,"data_version":1,"crc32c":"89abcdef"}       the CRC-32C of the same text without that field

so that a vote or an epoch that rotted is found out. A file without the field was written by Kafka.

``synced-offset-checkpoint`` says up to where the log is known to be on the device, and the epoch
there. It has two slots of 512 bytes, overwritten in place by turns, so that one is always whole;
the one with the larger number counts::

    0 00000000000000000007 00000000000000001234 +0000000002 89abcdef\\n
    version, number, offset, epoch, CRC-32C of what is before

It tells damage from interruption: what is no whole batch before that offset was whole once, and
what lies behind it was never acknowledged. It costs no sync: it is written after the log's, and may
lag behind, as it is a lower bound. It is made smaller, and synced, before the log is cut. Where
Kafka wrote the directory last it means nothing any more, and goes. Once the log that Kafka left is
synced, the file begins anew, and ``quorum-state`` gets its checksum.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kraft._core.checksum import crc32c
from kraft._core.disk import Disk, File, write_atomically
from kraft.metadata.directory import without_checksum
from kraft.raft.election_state import FILE_NAME, ElectionState

SYNCED_OFFSET_FILE = "synced-offset-checkpoint"

_SYNCED = re.compile(rb"(0 (\d{20}) (\d{20}) ([+-]\d{10}) )([0-9a-f]{8})\n")
_SLOT_SIZE = 512
_MAX_FILE_SIZE = 1 << 20


class StoredElection(NamedTuple):
    """What ``quorum-state`` says. ``is_ours``: with a checksum, so it was not Kafka that wrote."""

    state: ElectionState
    is_ours: bool


def write_quorum_state(disk: Disk, directory: str, content: bytes) -> None:
    """Replaces the file durably: written beside it, synced, renamed, the directory synced."""
    checked = content[:-1] + b',"crc32c":"%08x"}' % crc32c(content)
    write_atomically(disk, f"{directory}/{FILE_NAME}", checked)


def read_quorum_state(disk: Disk, directory: str) -> StoredElection | None:
    """None without a file. Raises CorruptRecordError, and StorageError."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    content = read_small(disk, path)
    plain, is_ours = without_checksum(content, path)
    return StoredElection(ElectionState.from_bytes(plain, path=path), is_ours)


def take_over_quorum_state(disk: Disk, directory: str) -> None:
    """Add the checksum to a ``quorum-state`` of Kafka, durably; the promises in it stay the same.

    Raises StorageError.
    """
    content = read_small(disk, f"{directory}/{FILE_NAME}")
    write_quorum_state(disk, directory, content.rstrip())


def read_small(disk: Disk, path: str) -> bytes:
    file = disk.open(path, read_only=True)
    try:
        return file.read_at(0, min(file.size(), _MAX_FILE_SIZE))
    finally:
        file.close()


class SyncedOffset:
    """``synced-offset-checkpoint``; ``offset`` is -1 where nothing is known.

    `begin` makes the file what it has to be once the log is open; the rest follows the log. Whoever
    writes the log is the only one to use it.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{SYNCED_OFFSET_FILE}"
        self.file: File | None = None
        self._number = 0
        self.offset = -1
        self.epoch = -1
        if disk.exists(self._path):
            content = read_small(disk, self._path)
            for start in (0, _SLOT_SIZE):
                self._read_slot(content[start : start + _SLOT_SIZE])

    def _read_slot(self, slot: bytes) -> None:
        match = _SYNCED.match(slot)
        if match is None or int(match[5], 16) != crc32c(match[1]):
            return
        number = int(match[2])
        if number > self._number:
            self._number, self.offset, self.epoch = number, int(match[3]), int(match[4])

    def forget(self) -> None:
        """What it says is not true any more: another has written the log."""
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_directory(self._directory)
        self._number, self.offset, self.epoch = 0, -1, -1

    def begin(self, offset: int, epoch: int) -> None:
        """The log was opened, and ends at ``offset`` on the device."""
        self.file = self._disk.open(self._path, create=True)
        for _ in range(2):
            self._write(offset, epoch)
        self.file.sync()
        self._disk.sync_directory(self._directory)

    def raise_to(self, offset: int, epoch: int) -> None:
        """The log was synced up to ``offset``, and its last record is of ``epoch``."""
        if offset > self.offset:
            self._write(offset, epoch)

    def note(self, offset: int, epoch: int) -> tuple[int, bytes]:
        """What says so, and where it has to be written once it is true."""
        self._number += 1
        self.offset, self.epoch = offset, epoch
        content = b"0 %020d %020d %+011d " % (self._number, offset, epoch)
        return self._number % 2 * _SLOT_SIZE, content + b"%08x\n" % crc32c(content)

    def lower_to(self, offset: int, epoch: int) -> None:
        """The log is about to be cut at ``offset``, or at 0 emptied; durable at the return."""
        if offset < self.offset:
            # Both slots: were only one written, the next note could take its place and be torn,
            # and leave the other, which says too much by then.
            self._write(offset, epoch)
            self._write(offset, epoch)
            assert self.file is not None
            self.file.sync()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def _write(self, offset: int, epoch: int) -> None:
        assert self.file is not None
        position, content = self.note(offset, epoch)
        self.file.write_at(position, content)
