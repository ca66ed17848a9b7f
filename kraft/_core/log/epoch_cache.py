"""Leader epochs of a log: the start offset of each, and their checkpoint file.

Reads and writes `leader-epoch-checkpoint`, a text file in Kafka's format (storage/.../checkpoint/
LeaderEpochCheckpointFile.java, server-common/.../CheckpointFile.java), version 0:

    0                     the version
    2                     the number of entries
    1 0                   epoch, start offset: one line an entry
    5 1200

Invariants: epochs and start offsets both ascend. The batches are authoritative: a log rebuilds the
entries when it opens, and rewrites the file if it differs. Used by `log` and `recovery`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from kraft.errors import CorruptRecordError

FILE_NAME = "leader-epoch-checkpoint"


class EpochEndOffset(NamedTuple):
    """The end of an epoch: the first offset after it."""

    epoch: int
    end_offset: int


class EpochCache:
    """Epoch -> start offset, both ascending, by the rules of Kafka's LeaderEpochFileCache."""

    __slots__ = ("epochs", "start_offsets")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.epochs: list[int] = []
        self.start_offsets: list[int] = []
        for epoch, start_offset in entries or []:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) in ascending order."""
        return list(zip(self.epochs, self.start_offsets, strict=True))

    @property
    def last_epoch(self) -> int:
        """The largest epoch, or -1 without one."""
        return self.epochs[-1] if self.epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch; remove entries that contradict it (not below it in epoch and offset)."""
        while self.epochs and (self.epochs[-1] >= epoch or self.start_offsets[-1] >= start_offset):
            self.epochs.pop()
            self.start_offsets.pop()
        self.epochs.append(epoch)
        self.start_offsets.append(start_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset | None:
        """Return the largest known epoch at or below `epoch`, and its end offset.

        For an epoch below the first known one, return `epoch` and the first start offset. Return
        None for a negative `epoch` or one above the last known.
        """
        if epoch < 0 or epoch > self.last_epoch:
            return None
        if epoch == self.last_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        above = bisect_right(self.epochs, epoch)
        found = self.epochs[above - 1] if above else epoch
        return EpochEndOffset(found, self.start_offsets[above])

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, or -1 if unknown."""
        above = bisect_right(self.start_offsets, offset)
        return self.epochs[above - 1] if above else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after `end_offset`."""
        while self.start_offsets and self.start_offsets[-1] >= end_offset:
            self.epochs.pop()
            self.start_offsets.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or before `start_offset`; the next one begins there."""
        above = bisect_right(self.start_offsets, start_offset)
        if above:
            del self.epochs[: above - 1]
            del self.start_offsets[: above - 1]
            self.start_offsets[0] = start_offset

    def clear(self) -> None:
        self.epochs.clear()
        self.start_offsets.clear()

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        lines = ["0", str(len(self.epochs))]
        lines += [f"{epoch} {start_offset}" for epoch, start_offset in self.entries]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes, *, path: str | None = None) -> EpochCache:
        """Parse the file's content; an empty file is an empty cache. Raises CorruptRecordError."""
        try:
            lines = content.decode().splitlines()
            version, count = (int(lines[0]), int(lines[1])) if len(lines) > 1 else (0, 0)
            entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines[2:])]
        except ValueError as error:
            raise CorruptRecordError(f"malformed leader epochs: {error}", path=path) from error
        if version != 0:
            raise CorruptRecordError(f"unknown version {version} of leader epochs", path=path)
        if count != len(entries):
            raise CorruptRecordError(
                f"{count} leader epochs are claimed, {len(entries)} are there", path=path
            )
        return cls(entries)
