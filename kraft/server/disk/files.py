"""Read and write ``quorum-state`` and ``synced-offset-checkpoint``.

``quorum-state`` is Kafka's JSON with one more field, which Kafka ignores::

    {…,"data_version":1,"crc32c":"89abcdef"}       the CRC-32C of the same text without that field

The checksum detects a corrupted vote or epoch. A file without the field was written by Kafka.

``synced-offset-checkpoint`` contains an offset up to which the log is known to be on the device,
and the epoch there. It has two slots of 512 bytes, overwritten in place in turn, so that one is
always valid; the slot with the larger number counts::

    0 00000000000000000007 00000000000000001234 +0000000002 89abcdef\\n
    version, number, offset, epoch, CRC-32C of the preceding bytes

Slots of another version are ignored: the offset is then unknown until `begin` writes both slots.

The file distinguishes damage from interruption: an invalid batch before that offset was valid once;
bytes after it were never acknowledged. It needs no sync of its own: it is written after the sync of
the log and may lag behind, since it is a lower bound. It is lowered and synced before the log is
truncated. If Kafka wrote the directory last, the file is out of date, and recovery removes it. Once
the log that Kafka left is synced, recovery writes it again and adds the checksum to
``quorum-state``.
"""

from __future__ import annotations

import logging
import re
from typing import NamedTuple

from kraft._core.bytes.checksum import crc32c
from kraft._core.log.disk import Disk, File, write_atomically
from kraft.metadata.directory import without_checksum
from kraft.raft.election_state import FILE_NAME, ElectionState

logger = logging.getLogger(__name__)

SYNCED_OFFSET_FILE = "synced-offset-checkpoint"

_SYNCED = re.compile(rb"(0 (\d{20}) (\d{20}) ([+-]\d{10}) )([0-9a-f]{8})\n")
_OTHER_VERSION = re.compile(rb"([1-9]\d{0,8}) ")
_SLOT_SIZE = 512
_MAX_FILE_SIZE = 1 << 20


class StoredElection(NamedTuple):
    """The content of ``quorum-state``. ``is_ours``: it has a checksum, so kraft wrote it."""

    state: ElectionState
    is_ours: bool


def write_quorum_state(disk: Disk, directory: str, content: bytes) -> None:
    """Replace the file durably: write a temporary file, sync, rename, sync the directory."""
    checked = content[:-1] + b',"crc32c":"%08x"}' % crc32c(content)
    write_atomically(disk, f"{directory}/{FILE_NAME}", checked)


def read_quorum_state(disk: Disk, directory: str) -> StoredElection | None:
    """Read the file; return None without one. Raises CorruptRecordError and StorageError."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    content = read_small(disk, path)
    plain, is_ours = without_checksum(content, path)
    return StoredElection(ElectionState.from_bytes(plain, path=path), is_ours)


def add_quorum_state_checksum(disk: Disk, directory: str) -> None:
    """Add the checksum to a ``quorum-state`` of Kafka, durably. Raises StorageError."""
    content = read_small(disk, f"{directory}/{FILE_NAME}")
    write_quorum_state(disk, directory, content.rstrip())


def read_small(disk: Disk, path: str) -> bytes:
    file = disk.open(path, read_only=True)
    try:
        return file.read_at(0, min(file.size(), _MAX_FILE_SIZE))
    finally:
        file.close()


class SyncedOffset:
    """``synced-offset-checkpoint``; ``offset`` is -1 where unknown.

    `begin` creates the file once the log is open. Only the thread that writes the log uses it.
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
            slots = [content[start : start + _SLOT_SIZE] for start in (0, _SLOT_SIZE)]
            for slot in slots:
                self._read_slot(slot)
            others = [other[1].decode() for slot in slots if (other := _OTHER_VERSION.match(slot))]
            if self.offset < 0 and others:
                logger.warning(
                    "%s has version %s, and this version of kraft knows 0: it is ignored and "
                    "written again, and damage to the log is found as in a directory of Kafka's",
                    *(self._path, others[0]),
                )

    def _read_slot(self, slot: bytes) -> None:
        match = _SYNCED.match(slot)
        if match is None or int(match[5], 16) != crc32c(match[1]):
            return
        number = int(match[2])
        if number > self._number:
            self._number, self.offset, self.epoch = number, int(match[3]), int(match[4])

    def forget(self) -> None:
        """Remove the file: Kafka has written the log since."""
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_directory(self._directory)
        self._number, self.offset, self.epoch = 0, -1, -1

    def begin(self, offset: int, epoch: int) -> None:
        """Create the file: the log was opened, and ends at ``offset`` on the device."""
        self.file = self._disk.open(self._path, create=True)
        for _ in range(2):
            self._write(offset, epoch)
        self.file.sync()
        self._disk.sync_directory(self._directory)

    def raise_to(self, offset: int, epoch: int) -> None:
        """Write a higher offset: the log was synced up to it, and ``epoch`` is its last epoch."""
        if offset > self.offset:
            self._write(offset, epoch)

    def note(self, offset: int, epoch: int) -> tuple[int, bytes]:
        """Return the position and content of the next slot; write it once the log is synced."""
        self._number += 1
        self.offset, self.epoch = offset, epoch
        content = b"0 %020d %020d %+011d " % (self._number, offset, epoch)
        return self._number % 2 * _SLOT_SIZE, content + b"%08x\n" % crc32c(content)

    def lower_to(self, offset: int, epoch: int) -> None:
        """Write a lower offset, durably, before the log is truncated there (0: emptied)."""
        if offset < self.offset:
            # Both slots: with only one written, the next write could overwrite that one, be torn,
            # and leave the other, whose offset is too high by then.
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
