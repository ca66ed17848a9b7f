"""Moves between log directories on a disk that crashes anywhere: no flushed record is lost.

Each case appends to one log, cuts it, and moves it between two directories in small steps; it stops
the disk at one boundary, loses unsynced work in one of the ways of the crash disk, and opens what
is left as a start of the broker does. The log must have a beginning of what was appended, up to the
last flush at least, and must go on: the move ends after the start.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft._core.log.segment import SegmentPool
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import HostedPartition, PartitionAssignment
from kraft.broker.replication.replica_moves import ReplicaMove, ReplicaMoves
from kraft.broker.replication.replication_output import ReplicaDirectory
from kraft.errors import StorageError
from tests.harness.crash_disk import CrashDisk, Loss
from tests.harness.partition_logs import TOPIC_ID, directory_id
from tests.harness.produced_batches import NOW_MS, RawBatch, RawRecord

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=100)
CASES = 400
PATHS = ("/a", "/b")
ID = PartitionId(bytes(TOPIC_ID), 0)

#: The values of a log's records, by offset.
Content = list[bytes]


class StopError(Exception):
    """The disk stops here."""


class MovingNode:
    """Two log directories with one partition, as a process opens them."""

    def __init__(self, disk: CrashDisk, assigned: bytes, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms
        pool = SegmentPool(3)
        self.directories = [
            LogDirectory(
                path,
                id=directory_id(number),
                now_ms=lambda: self.now_ms,
                disk=disk,
                pool=pool,
                random=Random(1),
            )
            for number, path in enumerate(PATHS)
        ]
        self.manager = LogManager(self.directories, lambda topic: SETTINGS)
        self.manager.load()
        self.store = PartitionLogStore(self.manager)
        stored = self.store.open(ID, "t", assigned)
        self.partition = HostedPartition(ID, "t", stored.log, directory=stored.directory)
        self.reports: list[ReplicaDirectory] = []
        self.moves = ReplicaMoves(
            {ID: self.partition},
            self.store,
            report=self.reports.append,
            before_replacement=lambda id: None,
        )
        self.moves.resume(self.partition)
        self.assign(assigned)

    def assign(self, directory: bytes) -> None:
        """Let the metadata assign a directory."""
        self.partition.assignment = PartitionAssignment(1, 1, 1, (1,), (1,), directory=directory)

    @property
    def log(self) -> PartitionLog:
        log = self.partition.log
        assert isinstance(log, PartitionLog)
        return log

    @property
    def move(self) -> ReplicaMove | None:
        return self.moves.moves.get(ID)

    @property
    def other(self) -> LogDirectory:
        """The directory that does not have the log."""
        return self.directories[self.log.directory is self.directories[0]]

    def content(self) -> Content:
        return content_of(self.log)


def content_of(log: PartitionLog) -> Content:
    found: Content = []
    for batch in log.core.batches(log.start_offset):
        for record in next(iter(iterate(batch.data))):
            assert record.offset == len(found)
            assert record.value is not None
            found.append(record.value)
    return found


class MoveWorkload:
    """Random appends, cuts and steps of moves."""

    def __init__(self, disk: CrashDisk, dice: Random) -> None:
        self.disk = disk
        self.dice = dice
        self.assigned = directory_id(0)
        self.node = MovingNode(disk, self.assigned)
        self.epoch = 1
        #: What the log had, in the order of its cuts.
        self.histories: list[Content] = [[]]
        self.flushed = 0
        self.finished = 0

    def run(self, steps: int) -> None:
        works = {
            self.append: 40,
            self.copy: 40,
            self.finish: 20,
            self.begin: 8,
            self.flush: 6,
            self.cut: 3,
            self.cancel: 1,
            self.reopen: 2,
            self.tidy: 4,
        }
        for _ in range(steps):
            (work,) = self.dice.choices(list(works), list(works.values()))
            work()
            self.node.now_ms += self.dice.choice((0, 1, 20))

    @property
    def history(self) -> Content:
        return self.histories[-1]

    def append(self) -> None:
        end = len(self.history)
        values = [
            b"%d-%d" % (self.epoch, end + place) * self.dice.randrange(1, 9)
            for place in range(self.dice.choice((1, 1, 3)))
        ]
        batch = RawBatch([RawRecord(value=value) for value in values])
        # Before the append, which the disk may interrupt.
        self.histories[-1] = self.history + values
        self.node.log.append_as_leader(bytearray(batch.encoded()), self.epoch)

    def begin(self) -> None:
        node = self.node
        if node.move is None:
            node.store.create_future(ID, "t", node.other)
            node.moves.resume(node.partition)

    def copy(self) -> None:
        """Copy a part; the log may be written to, or be cut, while it is read."""
        move = self.node.move
        if move is None:
            return
        part = move.next_part(self.dice.choice((1, 300, 2000)))
        if part is None:
            return
        records = bytes(part.records.read())
        if self.dice.random() < 0.2:
            self.dice.choice((self.append, self.cut, self.flush))()
        if self.node.move is move:
            move.append(part, records)
            flush = self.node.store.rolled_future_flush(ID, "t")
            if flush is not None and self.dice.random() < 0.5:
                flush()

    def finish(self) -> None:
        node, move = self.node, self.node.move
        if move is None:
            return
        while (part := move.next_part(1 << 20)) is not None:
            move.append(part, part.records.read())
        if not move.is_assigned:
            node.moves.report(move)
            self.assigned = node.reports.pop().directory
            node.assign(self.assigned)
            return
        while not node.store.is_flushed(ID, "t"):
            node.store.flush_future(ID, "t")
        node.moves.finish(move)
        self.finished += 1

    def cancel(self) -> None:
        if self.node.move is not None:
            self.node.moves.cancel(ID)
            for report in self.node.reports:
                self.assigned = report.directory
                self.node.assign(report.directory)
            self.node.reports.clear()

    def flush(self) -> None:
        self.node.log.flush()
        self.flushed = len(self.history)

    def cut(self) -> None:
        """Cut the log, as a follower of a new leader."""
        offset = self.dice.randrange(max(len(self.history) - 9, 0), len(self.history) + 1)
        # A batch of up to three records is cut as a whole, also by a cut that a crash interrupts.
        before, flushed = self.history, self.flushed
        self.flushed = min(flushed, max(offset - 3, 0))
        self.histories += [before[:end] for end in range(max(offset - 3, 0), offset + 1)]
        self.node.partition.truncate_to(offset)
        end = self.node.log.end_offset
        self.flushed = min(flushed, end)
        self.histories.append(before[:end])
        self.epoch += 1

    def tidy(self) -> None:
        self.node.manager.flush_rolled()
        self.node.manager.write_checkpoints()
        self.node.manager.remove_due(self.node.now_ms)

    def reopen(self) -> None:
        self.node.manager.close()
        self.flushed = len(self.history)
        self.node = MovingNode(self.disk, self.assigned, self.node.now_ms)


@pytest.mark.parametrize("part", range(5))
def test_no_flushed_record_is_lost_by_a_crash_of_a_move(part: int) -> None:
    finished = resumed = 0
    for case in range(CASES // 5):
        seed = part * CASES + case
        dice = Random(seed)
        disk = CrashDisk()
        for path in PATHS:
            disk.make_directory(path)
        disk.sync_directory("/")
        left = dice.randrange(4_000)

        def stop() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StopError

        workload = MoveWorkload(disk, dice)
        disk.on_boundary = stop
        with contextlib.suppress(StopError):
            workload.run(200)
        disk.on_boundary = lambda: None
        finished += workload.finished
        left_over = disk.after_crash(dice.choice(list(Loss)), dice)
        node = MovingNode(left_over, workload.assigned, workload.node.now_ms)
        check(node, workload, seed)
        resumed += node.move is not None
        # It goes on: the move ends, and the next one too.
        workload.node, workload.disk = node, left_over
        workload.histories = [node.content()]
        workload.epoch += 1
        for _ in range(2):
            workload.append()
            workload.begin()
            workload.copy()
            workload.finish()
            workload.finish()
            assert node.move is None, f"seed {seed}"
        assert node.content() == workload.history, f"seed {seed}"
        workload.tidy()
        node.now_ms += 1_000
        workload.tidy()
        names = [name for path in PATHS for name in left_over.list(path) if name.startswith("t-")]
        assert names == ["t-0"], f"seed {seed}"
    assert finished > CASES // 5
    assert resumed > 5


def check(node: MovingNode, workload: MoveWorkload, seed: int) -> None:
    found = node.content()
    assert any(found == history[: len(found)] for history in workload.histories), f"seed {seed}"
    assert len(found) >= workload.flushed, f"seed {seed}: flushed records are lost"


def test_a_target_that_fails_leaves_the_log_as_it_was() -> None:
    """The directory of the copy fails between the two renames: the log stays in the other one."""
    disk = CrashDisk()
    for path in PATHS:
        disk.make_directory(path)
    workload = MoveWorkload(disk, Random(1))
    for _ in range(20):
        workload.append()
    workload.begin()
    workload.finish()
    node, move = workload.node, workload.node.move
    assert move is not None
    target = node.other

    def fail_at_rename() -> None:
        if not any(name == "t-0" for path in PATHS for name in disk.list(path)):
            target.fail(StorageError("the device is gone"))

    disk.on_boundary = fail_at_rename
    with pytest.raises(StorageError, match="offline"):
        workload.finish()
    disk.on_boundary = lambda: None
    assert target.failure is not None
    node.moves.directory_failed(target.id)
    assert node.move is None
    assert node.content() == workload.history
    workload.append()
    assert node.content() == workload.history
    assert [report.directory for report in node.reports] == [node.partition.directory]


def test_records_read_after_a_cut_are_not_appended() -> None:
    """The bytes at the position of a part are those of other records: the copy would have a gap."""
    disk = CrashDisk()
    for path in PATHS:
        disk.make_directory(path)
    workload = MoveWorkload(disk, Random(1))
    node = workload.node

    def append(value: bytes, epoch: int) -> None:
        batch = RawBatch([RawRecord(value=value)])
        node.log.append_as_leader(bytearray(batch.encoded()), epoch)

    for _ in range(3):
        append(b"old", 1)
    workload.begin()
    move = node.move
    assert move is not None
    first = move.next_part(1)
    assert first is not None
    assert move.append(first, first.records.read())
    part = move.next_part(1)
    assert part is not None
    assert part.offset == 1
    node.partition.truncate_to(0)
    # Both batches begin where those of offsets 0 and 1 did.
    append(b"new", 2)
    append(b"new", 2)
    assert not move.append(part, part.records.read())
    workload.histories = [[b"new", b"new"]]
    workload.finish()
    workload.finish()
    assert node.move is None
    assert node.content() == [b"new", b"new"]


@pytest.mark.parametrize("source", [0, 1])
def test_a_source_that_fails_as_it_is_replaced_hides_no_log(source: int) -> None:
    """The directory of the log fails at its rename; the copy is the partition's log."""
    disk = CrashDisk()
    for path in PATHS:
        disk.make_directory(path)
    workload = MoveWorkload(disk, Random(1))
    for _ in range(source):
        workload.begin()
        workload.finish()
        workload.finish()
    for _ in range(20):
        workload.append()
    workload.begin()
    workload.finish()
    node = workload.node
    failing = node.log.directory
    assert failing is node.directories[source]

    def fail() -> None:
        disk.on_boundary = lambda: None
        raise StorageError("the device is gone")

    disk.on_boundary = fail
    workload.finish()
    node.moves.directory_failed(failing.id)
    assert failing.failure is not None
    assert node.move is None
    assert node.log.directory is not failing
    assert node.content() == workload.history
    assert node.manager.get("t", 0) is node.log
    assert not node.manager.is_offline("t", 0)
    node.store.delete(ID)
    assert node.manager.get("t", 0) is None
