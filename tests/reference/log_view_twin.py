"""Slow reference implementation of `kraft.raft.log_view.LogView`: one entry for each record.

``LogView`` keeps a few numbers; this twin keeps the epoch of every record and scans all of them for
each query.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class LogViewTwin:
    static_voters: frozenset[int]
    start_offset: int = 0
    #: The epochs of the records from ``start_offset`` on.
    epochs: list[int] = field(default_factory=list)
    #: The epoch of the record before ``start_offset``.
    epoch_before: int = 0
    high_watermark: int = -1
    #: Snapshots: end offset and epoch.
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    #: (offset, voters) of every record with a voter set; offset -1: from a snapshot.
    voter_sets: list[tuple[int, frozenset[int]]] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.epochs)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else self.epoch_before

    @property
    def voters(self) -> frozenset[int]:
        return self.voter_sets[-1][1] if self.voter_sets else self.static_voters

    def append(self, count: int, epoch: int) -> None:
        self.epochs += [epoch] * count

    def append_voters(self, offset: int, voters: frozenset[int]) -> None:
        self.voter_sets.append((offset, voters))

    def truncate(self, end_offset: int) -> None:
        self.epochs = self.epochs[: end_offset - self.start_offset]
        self.voter_sets = [said for said in self.voter_sets if said[0] < end_offset]

    def snapshot(self) -> tuple[int, int]:
        """Add a snapshot at the high watermark, with the epoch of the last record below it."""
        before = self.high_watermark - self.start_offset - 1
        epoch = self.epochs[before] if before >= 0 else self.epoch_before
        self.snapshots = sorted({*self.snapshots, (self.high_watermark, epoch)})
        return self.high_watermark, epoch

    def clean(self, start_offset: int, earliest: tuple[int, int]) -> None:
        self.snapshots = [id for id in self.snapshots if id >= earliest]
        gone = start_offset - self.start_offset
        if gone > 0:
            self.epoch_before = self.epochs[gone - 1]
            self.epochs = self.epochs[gone:]
            self.start_offset = start_offset

    def begin_at(self, offset: int, epoch: int) -> None:
        self.start_offset, self.epochs, self.epoch_before = offset, [], epoch
        self.snapshots = [(offset, epoch)]
        self.high_watermark = max(self.high_watermark, offset)

    def epoch_starts(self) -> list[tuple[int, int]]:
        """Return (epoch, offset of its first present record) of each epoch."""
        starts: dict[int, int] = {}
        for index, epoch in enumerate(self.epochs):
            starts.setdefault(epoch, self.start_offset + index)
        return sorted(starts.items())

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch at or below with records, and the offset after its last one."""
        if epoch > max(self.epochs, default=-1):
            return self.last_epoch, self.end_offset
        below = [e for e in self.epochs if e <= epoch]
        if not below:
            # The epoch precedes those in the log: only a snapshot at the log start may have it.
            at_start = [e for offset, e in self.snapshots[:1] if offset == self.start_offset]
            return (at_start[0] if at_start else epoch), self.start_offset
        largest = max(below)
        end_offset = self.start_offset + len(below)
        if self.snapshots and self.snapshots[0][0] == end_offset and largest == epoch:
            return self.snapshots[0][1], end_offset
        return largest, end_offset
