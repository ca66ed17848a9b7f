"""Slow reference implementation of `kraft._core.log`, over lists of batches in memory.

The rules are those of Kafka's LogSegment and LocalLog. It computes the bytes of every file from the
batches, so that a test can compare directories byte by byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import crc32c


@dataclass(frozen=True)
class TwinBatch:
    base_offset: int
    count: int
    epoch: int
    timestamp: int
    payload: bytes

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1

    @property
    def data(self) -> bytes:
        """Return a sealed v2 batch with an arbitrary payload: a log never reads the records."""
        body = struct.pack(
            ">hiqqqhii",
            *(0, self.count - 1, self.timestamp, self.timestamp, -1, -1, -1, self.count),
        )
        body += self.payload.ljust(7 * self.count, b"\0")
        head = struct.pack(">qiib", self.base_offset, len(body) + 9, self.epoch, 2)
        return head + struct.pack(">I", crc32c.crc32c(body)) + body


@dataclass
class TwinSegment:
    base_offset: int
    index_interval_bytes: int
    batches: list[TwinBatch] = field(default_factory=list)
    offset_entries: list[tuple[int, int]] = field(default_factory=list)
    time_entries: list[tuple[int, int]] = field(default_factory=list)
    last_entry_position: int = 0

    @property
    def log(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)

    def max_timestamp(self) -> tuple[int, int]:
        """Return the largest timestamp, and the last offset of the first batch with it."""
        best = max((batch.timestamp for batch in self.batches), default=-1)
        for batch in self.batches:
            if batch.timestamp == best:
                return best, batch.last_offset
        return -1, self.base_offset

    def add(self, batch: TwinBatch) -> None:
        position = len(self.log)
        self.batches.append(batch)
        if position - self.last_entry_position > self.index_interval_bytes:
            self.offset_entries.append((batch.last_offset, position))
            self.add_time_entry()
            self.last_entry_position = position

    def add_time_entry(self) -> None:
        timestamp, offset = self.max_timestamp()
        if timestamp > (self.time_entries[-1][0] if self.time_entries else -1):
            self.time_entries.append((timestamp, offset))

    def truncate(self, offset: int) -> None:
        kept = [batch for batch in self.batches if batch.last_offset < offset]
        if len(kept) == len(self.batches):
            return
        end = kept[-1].last_offset + 1 if kept else self.base_offset
        self.batches = kept
        self.offset_entries = [entry for entry in self.offset_entries if entry[0] < end]
        self.time_entries = [entry for entry in self.time_entries if entry[1] < end]
        self.last_entry_position = len(self.log)

    def index(self) -> bytes:
        return b"".join(
            struct.pack(">ii", offset - self.base_offset, position)
            for offset, position in self.offset_entries
        )

    def time_index(self) -> bytes:
        return b"".join(
            struct.pack(">qi", timestamp, offset - self.base_offset)
            for timestamp, offset in self.time_entries
        )


class LogTwin:
    def __init__(self, segment_bytes: int, segment_ms: int, index_interval_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.index_interval_bytes = index_interval_bytes
        self.segments = [TwinSegment(0, index_interval_bytes)]
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.epochs: list[tuple[int, int]] = []

    @property
    def batches(self) -> list[TwinBatch]:
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def append(self, batches: list[TwinBatch]) -> None:
        if self.segments[-1].batches and not self._fits(batches):
            self.roll()
        while batches:
            count = len(batches)
            while count > 1 and not self._fits(batches[:count]):
                count -= 1
            if not self._fits(batches[:count]):
                self.roll()
                continue
            for batch in batches[:count]:
                self._begin_epoch(batch)
                self.segments[-1].add(batch)
                self.log_end_offset = batch.last_offset + 1
            batches = batches[count:]

    def _fits(self, batches: list[TwinBatch]) -> bool:
        active = self.segments[-1]
        size = sum(len(batch.data) for batch in batches)
        newest = max(batch.timestamp for batch in batches)
        return len(active.log) + size <= self.segment_bytes and (
            not active.batches or newest - active.batches[0].timestamp <= self.segment_ms
        )

    def roll(self) -> None:
        self.segments[-1].add_time_entry()
        self.segments.append(TwinSegment(self.log_end_offset, self.index_interval_bytes))

    def truncate_to(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self.segments = [segment for segment in self.segments if segment.base_offset <= offset]
        active = self.segments[-1]
        active.truncate(offset)
        self.log_end_offset = (
            active.batches[-1].last_offset + 1 if active.batches else active.base_offset
        )
        self.epochs = [entry for entry in self.epochs if entry[1] < self.log_end_offset]
        if self.log_end_offset <= self.log_start_offset:
            self.log_start_offset = self.log_end_offset
            for batch in self.batches:
                self._begin_epoch(batch)
            self._forget_epochs_before(self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.segments = [TwinSegment(offset, self.index_interval_bytes)]
        self.log_start_offset = self.log_end_offset = offset
        self.epochs = []

    def advance_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            self.segments.pop(0)
        self._forget_epochs_before(offset)

    def _begin_epoch(self, batch: TwinBatch) -> None:
        if batch.epoch > self.last_epoch:
            start = batch.base_offset
            self.epochs = [entry for entry in self.epochs if entry[1] < start]
            self.epochs.append((batch.epoch, start))

    def _forget_epochs_before(self, offset: int) -> None:
        before = [entry for entry in self.epochs if entry[1] <= offset]
        after = [entry for entry in self.epochs if entry[1] > offset]
        self.epochs = [(epoch, offset) for epoch, _ in before[-1:]] + after

    def fetch(self, offset: int, max_size: int, end_offset: int = 1 << 62) -> bytes:
        for segment in self.segments:
            batches = [batch for batch in segment.batches if batch.last_offset >= offset]
            if not batches:
                continue
            data = b""
            for batch in batches:
                if batch.last_offset >= end_offset:
                    break
                if data and len(data) + len(batch.data) > max_size:
                    break
                data += batch.data
            return data
        return b""

    def close(self) -> None:
        self.segments[-1].add_time_entry()

    def reopen(self) -> None:
        """Rebuild indexes and epochs from the batches alone, as Kafka's recovery does."""
        self.log_start_offset = self.segments[0].base_offset
        self.epochs = []
        rebuilt = []
        for segment in self.segments:
            fresh = TwinSegment(segment.base_offset, self.index_interval_bytes)
            for batch in segment.batches:
                fresh.add(batch)
                self._begin_epoch(batch)
            fresh.add_time_entry()
            rebuilt.append(fresh)
        self.segments = rebuilt

    def files(self) -> dict[str, bytes]:
        """Return the files of the closed log's directory, without producer snapshots."""
        lines = ["0", str(len(self.epochs)), *(f"{epoch} {start}" for epoch, start in self.epochs)]
        files = {
            "leader-epoch-checkpoint": ("\n".join(lines) + "\n").encode(),
            "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        }
        for segment in self.segments:
            name = f"{segment.base_offset:020d}"
            files[name + ".log"] = segment.log
            files[name + ".index"] = segment.index()
            files[name + ".timeindex"] = segment.time_index()
        return files
