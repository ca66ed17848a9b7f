"""Audit a quorum under load: its logs must contain everything that it acknowledged.

Reads the notes of the nodes (`load_node`) and their logs, and compares them. No node may run
meanwhile. The checks, by name:

- *unique leaders*: no two nodes lead the same epoch;
- *snapshots*: (where controllers run) a node's snapshot has the state of the log;
- *operations*: (where controllers run) the replayed log has the acknowledged state: each topic with
  all its partitions, no deleted topic, no incomplete topic;
- *acknowledged*: each acknowledged record is at its offset, in its epoch, in the best log (the one
  that would win an election), and no record is at two offsets;
- *majority*: a majority of the logs equals the best log, byte for byte, up to the last committed
  record;
- *unchanged*: the bytes that were committed at one audit are the same at the next;
- *matching*: each log equals the best log, byte for byte, up to its own node's high watermark;
- *ascending*: offsets have no gap, and epochs never fall.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.batch_records import iterate
from kraft._core.log.log import Log
from kraft._core.snapshot.snapshot_file import parse_snapshot_name
from kraft.image.replay import MetadataState
from kraft.metadata.directory import SnapshotFile
from kraft.metadata.snapshots import load_snapshot
from tests.harness.controller_load_node import topic_name
from tests.harness.load_node import record_value


@dataclass(slots=True)
class Acknowledged:
    """One append: ``count`` records from ``number`` on, the last at ``last_offset``."""

    number: int
    count: int
    last_offset: int
    epoch: int


class Notes:
    """The notes of one node, from all its processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""
        self.acknowledged: list[Acknowledged] = []
        #: Topics by number: acknowledged partitions, requested deletions, acknowledged deletions.
        self.created: dict[int, int] = {}
        self.to_be_deleted: set[int] = set()
        self.deleted: set[int] = set()
        self.epochs_led: set[int] = set()
        self.high_watermark = 0

    @property
    def acknowledged_count(self) -> int:
        return len(self.acknowledged) + len(self.created) + len(self.deleted)

    def read_on(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = self._rest + file.read()
            self._position = file.tell()
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            if not line.endswith(b";"):
                continue
            kind, *words = line[:-1].decode().split()
            numbers = list(map(int, words))
            if kind == "A":
                self.acknowledged.append(Acknowledged(*numbers))
            elif kind == "C":
                self.created[numbers[0]] = numbers[1]
            elif kind == "E":
                self.to_be_deleted.add(numbers[0])
            elif kind == "D":
                self.deleted.add(numbers[0])
            elif kind == "L":
                self.epochs_led.add(numbers[0])
            else:
                assert kind == "H", line
                self.high_watermark = max(self.high_watermark, numbers[0])


@dataclass(slots=True)
class StoredLog:
    """All batches of a log, one after the other."""

    node_id: int
    data: NDArray[np.uint8]
    positions: NDArray[np.int64]
    base_offsets: NDArray[np.int64]
    epochs: NDArray[np.int32]
    end_offset: int

    @property
    def last_epoch(self) -> int:
        return int(self.epochs[-1]) if len(self.epochs) else -1

    def digest(self, end_offset: int) -> str:
        return hashlib.sha256(self.data[: self.position_of(end_offset)].data).hexdigest()

    def position_of(self, offset: int) -> int:
        """Return the position of the batch with this offset; the data's end for later offsets."""
        if offset >= self.end_offset:
            return len(self.data)
        index = int(np.searchsorted(self.base_offsets, offset, "right")) - 1
        return int(self.positions[index])


def read_log(node_id: int, directory: Path) -> StoredLog:
    """Read a log and check every record: framing, CRCs, dense offsets."""
    with Log.open(directory, read_only=True) as log:
        parts = [
            bytes(log.fetch(segment.base_offset, 1 << 40))
            for segment in log.segments
            if segment.size
        ]
        start_offset, end_offset = log.log_start_offset, log.log_end_offset
    assert start_offset == 0, f"node {node_id}: its log begins at {start_offset}"
    data = b"".join(parts)
    table = validate(data, dense=True)
    epochs = table.partition_leader_epochs
    assert (np.diff(epochs) >= 0).all(), f"node {node_id}: epochs decrease"
    return StoredLog(
        node_id,
        np.frombuffer(data, np.uint8),
        table.positions,
        table.base_offsets,
        epochs,
        end_offset,
    )


def agreement(log: StoredLog, best: StoredLog) -> int:
    """Return the offset of the first batch that differs, or else the end of the shorter log."""
    size = min(len(log.data), len(best.data))
    differs = log.data[:size] != best.data[:size]
    if not differs.any():
        return min(log.end_offset, best.end_offset)
    index = int(np.searchsorted(log.positions, int(differs.argmax()), "right")) - 1
    return int(log.base_offsets[index])


@dataclass(slots=True)
class Audit:
    """The checks of one run, repeated as the logs grow; an AssertionError names a failed check."""

    directories: dict[int, Path]
    notes: dict[int, Notes]
    #: Whether controllers wrote the logs, so that they contain metadata.
    is_metadata: bool = False
    acknowledged: int = 0
    #: Number of the nodes' snapshots that were compared with the log.
    snapshots: int = 0
    committed: int = 0
    _digest: str = hashlib.sha256().hexdigest()
    _checked: dict[int, int] = field(default_factory=dict)
    _offset_of: dict[int, int] = field(default_factory=dict)

    def check(self) -> None:
        """Run all checks; no node may run meanwhile."""
        for notes in self.notes.values():
            notes.read_on()
        self._check_leaders()
        logs = [read_log(id, directory) for id, directory in self.directories.items()]
        best = max(logs, key=lambda log: (log.last_epoch, log.end_offset))
        self._check_majority(logs, best)
        if self.is_metadata:
            self._check_operations(best)
        else:
            self._check_acknowledged(best)

    def _check_leaders(self) -> None:
        leaders: dict[int, int] = {}
        for id, notes in self.notes.items():
            for epoch in notes.epochs_led:
                other = leaders.setdefault(epoch, id)
                assert other == id, f"unique leaders: {other} and {id} led epoch {epoch}"

    def _check_majority(self, logs: list[StoredLog], best: StoredLog) -> None:
        committed = max(notes.high_watermark for notes in self.notes.values())
        assert committed >= self.committed, f"{committed} after {self.committed}"
        assert best.digest(self.committed) == self._digest, (
            f"unchanged: what was committed up to {self.committed} is another now"
        )
        holding = 0
        for log in logs:
            agreed = agreement(log, best)
            # A follower knows the high watermark of the majority; when it is killed, its own disk
            # may be behind it.
            known = min(self.notes[log.node_id].high_watermark, log.end_offset)
            assert agreed >= known, (
                f"matching: node {log.node_id} knew {known} as committed, and differs from node "
                f"{best.node_id} at {agreed}"
            )
            holding += agreed >= committed
        assert holding > len(logs) // 2, f"majority: {holding} logs hold all up to {committed}"
        self.committed, self._digest = committed, best.digest(committed)

    def _check_acknowledged(self, best: StoredLog) -> None:
        """Check only records since the last audit; `_check_majority` covers earlier ones."""
        new = []
        for id, notes in self.notes.items():
            new += notes.acknowledged[self._checked.get(id, 0) :]
            self._checked[id] = len(notes.acknowledged)
        if not new:
            return
        first = min(one.last_offset - one.count + 1 for one in new)
        values: dict[int, bytes] = {}
        epochs: dict[int, int] = {}
        for batch in iterate(best.data[best.position_of(first) :].data):
            for record in batch:
                if not record.is_control:
                    value = record.value
                    assert value is not None
                    values[record.offset] = value
                    epochs[record.offset] = batch.partition_leader_epoch
                    number = int.from_bytes(value[:8], "big")
                    other = self._offset_of.setdefault(number, record.offset)
                    assert other == record.offset, (
                        f"acknowledged: record {number} is at {other} and at {record.offset}"
                    )
        for one in new:
            for place in range(one.count):
                offset, number = one.last_offset - one.count + 1 + place, one.number + place
                assert values.get(offset) == record_value(number), (
                    f"acknowledged: record {number} is not at offset {offset}"
                )
                assert epochs[offset] == one.epoch, f"record {number}: epoch {epochs[offset]}"
            self.acknowledged += one.count

    def _check_operations(self, best: StoredLog) -> None:
        """Replay the whole log: a topic of an earlier audit may be deleted now."""
        cluster = MetadataState(journaling=True)
        cluster.apply(best.data.data)
        cluster.drop_open_transaction()
        table = cluster.table
        found = {
            table.topic_name(number): len(table.topic_rows(number))
            for number in table.topic_numbers()
        }
        for directory in self.directories.values():
            self._check_snapshot(directory, best)
        notes = self.notes.values()
        created = {number: count for each in notes for number, count in each.created.items()}
        to_be_deleted = set().union(*(each.to_be_deleted for each in notes))
        deleted = set().union(*(each.deleted for each in notes))
        for number, count in created.items():
            there = found.get(topic_name(number))
            if number in deleted:
                assert there is None, f"operations: topic {number} was deleted, and is there"
            elif number in to_be_deleted:
                assert there in (None, count), f"operations: topic {number} has {there} partitions"
            else:
                assert there == count, f"operations: topic {number} has {there} of {count}"
        self.acknowledged = len(created) + len(deleted)

    def _check_snapshot(self, directory: Path, best: StoredLog) -> None:
        """Compare a node's newest snapshot with the state of the log at its end."""
        paths = sorted(directory.glob("*.checkpoint"))
        end_offset, epoch = parse_snapshot_name(paths[-1].name) or (0, 0)
        if end_offset == 0 or end_offset > self.committed:
            return
        made = load_snapshot(SnapshotFile(paths[-1], end_offset, epoch, paths[-1].stat().st_size))
        cluster = MetadataState(journaling=True)
        cluster.apply(best.data.data, end_offset=end_offset)
        assert cluster.transaction_start is None, f"{paths[-1]}: it ends inside a transaction"
        assert made.state == cluster.state, f"{paths[-1]}: another state than the log's"
        assert table_records(made) == table_records(cluster), f"{paths[-1]}: other partitions"
        self.snapshots += 1


def table_records(cluster: MetadataState) -> bytes:
    builder = BatchBuilder()
    cluster.table.encode_snapshot(builder, version=2)
    return bytes(builder.finish())
