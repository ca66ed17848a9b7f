"""Kafka's ``.snapshot`` files of a partition's producers: encode, decode, and keep the right ones.

`ProducerSnapshots` reads, writes and removes the files of one directory through the file-system
port. The name of a file is the offset up to which it reflects the log:
``00000000000000001200.snapshot``.

Layout (``ProducerSnapshot.json``, version 1, the only one since 0.11 and in 4.3)::

    i16 version | u32 CRC-32C of all after it | i32 count | count entries of 46 bytes

    entry: i64 producer id | i16 epoch | i32 last sequence | i64 last offset | i32 offset delta
           | i64 timestamp | i32 coordinator epoch | i64 first offset of the open transaction, or -1

Of a producer's batches only the last one is in a snapshot, as in Kafka.

Rules: ``storage/.../log/ProducerStateManager.java``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from logging import getLogger
from os import PathLike, fspath

from kraft._core.bytes.crc32c import crc32c
from kraft._core.log.disk import Disk, write_atomically
from kraft.broker.producer_state import BatchMetadata, ProducerStateEntry, ProducerStates
from kraft.errors import CorruptRecordError

VERSION = 1

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_NAME = re.compile(r"(\d{20})\.snapshot")

_log = getLogger(__name__)


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Return the content of a snapshot file."""
    rows = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.batches[-1].offset_delta if entry.batches else 0,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_offset,
        )
        for entry in entries
    ]
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Return the entries of a snapshot file. Raises `CorruptRecordError`."""
    if len(data) < _HEADER.size:
        raise CorruptRecordError(f"a producer snapshot of {len(data)} bytes is cut short")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptRecordError(f"the producer snapshot has the unknown version {version}")
    if count < 0 or count * _ENTRY.size > len(data) - _HEADER.size:
        raise CorruptRecordError(
            f"the producer snapshot claims {count} entries in {len(data)} bytes"
        )
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise CorruptRecordError("the CRC-32C of the producer snapshot does not match its bytes")
    end = _HEADER.size + count * _ENTRY.size
    return [_entry(*row) for row in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size : end])]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    transaction_offset: int,
) -> ProducerStateEntry:
    batches: tuple[BatchMetadata, ...] = ()
    if last_offset >= 0:
        batches = (BatchMetadata(last_sequence, last_offset, offset_delta, timestamp_ms),)
    return ProducerStateEntry(
        producer_id, epoch, coordinator_epoch, timestamp_ms, max(transaction_offset, -1), batches
    )


class ProducerSnapshots:
    """The snapshot files in one partition's directory."""

    def __init__(self, disk: Disk, directory: str | PathLike[str]) -> None:
        self._disk = disk
        self._directory = fspath(directory)
        self._last_taken = -1

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}.snapshot"

    def offsets(self) -> list[int]:
        """Return the offsets of the files, ascending."""
        names = map(_NAME.fullmatch, self._disk.list(self._directory))
        return sorted(int(name[1]) for name in names if name)

    def take(self, states: ProducerStates) -> bool:
        """Write the file of the state's end offset; return whether one was needed.

        The file is on the device when this returns. Call it before a segment is rolled and when the
        log closes, as Kafka does.
        """
        if states.end_offset <= self._last_taken:
            return False
        path = self.path(states.end_offset)
        write_atomically(self._disk, path, encode_snapshot(states.producers.values()))
        self._last_taken = states.end_offset
        return True

    def load(
        self, states: ProducerStates, log_start_offset: int, log_end_offset: int, *, now_ms: int
    ) -> None:
        """Set the state to the latest usable file between the log's start and end.

        Files above the end or not above the start are removed, and so are damaged ones. Without a
        file the state is empty at the log's start. The caller then replays the log from
        ``states.end_offset``.
        """
        for offset in reversed(self.offsets()):
            if log_start_offset < offset <= log_end_offset:
                file = self._disk.open(self.path(offset), read_only=True)
                try:
                    data = file.read_at(0, file.size())
                finally:
                    file.close()
                try:
                    entries = decode_snapshot(data)
                except CorruptRecordError as error:
                    _log.warning("Removing %s: %s", self.path(offset), error)
                else:
                    states.load(entries, offset, now_ms=now_ms)
                    self._last_taken = offset
                    self.remove_before(log_start_offset + 1)
                    return
            self._disk.remove(self.path(offset))
        states.load((), log_start_offset, now_ms=now_ms)
        self._last_taken = log_start_offset

    def remove_before(self, offset: int) -> None:
        """Remove the files below ``offset``, when segments before it are deleted."""
        for found in self.offsets():
            if found < offset:
                self._disk.remove(self.path(found))
