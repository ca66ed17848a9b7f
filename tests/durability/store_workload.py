"""The workload of a node's disk on real files, recorded while it runs.

A variant of `Workload`: every write goes through the threads of ``server.disk.writer``, each kind
of snapshot writer is used, column checkpoints are saved, processes end without closing anything,
and Kafka writes the log in between. After each operation its system calls are replayed one by one
and checked by `Rules`, and the disk stops after each call in every way of `Loss`: the remaining
files must keep every promise.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from random import Random

from kraft._core.log.disk import Disk, OsDisk
from kraft._core.log.partition_directory import LOG
from kraft._core.snapshot.column_checkpoint import columns_path, save_columns
from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft._core.table.table import PartitionTable
from kraft.raft.election_state import FILE_NAME as QUORUM_STATE
from kraft.raft.interface import (
    AppendBatches,
    Event,
    SnapshotRejected,
    SnapshotStored,
    Write,
    Written,
)
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records import Record, Uuid, control, control_type, encode_control
from kraft.records.batches import encode_records
from kraft.records.classes import NoOp, Partition, Topic
from kraft.server.disk.snapshot_output import SnapshotOutput
from kraft.server.disk.writer import WriterThread
from tests.durability.recording import Kind, Recording
from tests.durability.replayed_disk import ReplayedDisk
from tests.durability.rules import Rules
from tests.harness.crash_disk import CrashDisk, Loss
from tests.harness.disk_workload import NOW_MS, BrokenPromiseError, Snapshot, Workload

PATIENCE_S = 60.0
#: One in this many crashes is written as files, and one in this many recoveries crashes too.
LAID_OUT = 25
CRASHED_RESTARTS = 100
#: After any other call a crash leaves the same states as after the previous call.
CHANGES = (Kind.WRITE, Kind.TRUNCATE, Kind.CREATE, Kind.RENAME, Kind.UNLINK, Kind.MKDIR)


class RecordedWorkload(Workload):
    """``root`` is the recorded directory, ``scratch`` another directory."""

    def __init__(self, root: Path, recording: Recording, scratch: Path, random: Random) -> None:
        super().__init__(OsDisk(), random, str(root))
        self._recording = recording
        self._scratch = scratch
        self._fate = Random(random.random())
        self.replayed = ReplayedDisk(str(root))
        self.rules = Rules(self.replayed, self.directory)
        self.calls: Counter[str] = Counter()
        self.crashes = 0
        self._loop = asyncio.new_event_loop()
        self._writer: WriterThread | None = None
        self._sequence = self._written = 0
        self._events: list[Event] = []
        self._failures: list[BaseException] = []
        #: Column checkpoints by path, as promised; and one in progress.
        self._columns: dict[str, bytes] = {}
        self._coming_columns: dict[str, bytes] = {}
        #: Kafka has written without a sync: a crash may leave a log that does not open.
        self._is_of_kafka = False

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().choices(), (self._write_as_kafka, 2)]

    # -- the threads that write

    def _start(self) -> None:
        self._end_writer()
        super()._start()
        self._is_of_kafka = False
        self._writer = WriterThread(self.store, self._hear, on_failure=self._failures.append)
        self._loop.run_until_complete(self._begin(self._writer))

    async def _begin(self, writer: WriterThread) -> None:
        writer.start()

    def _stop(self) -> None:
        self._end_writer()
        super()._stop()
        self._settle()
        differences = self.replayed.differences()
        if differences:
            raise BrokenPromiseError(f"calls that change {differences} were not recorded")

    def _end_writer(self) -> None:
        if self._writer is not None:
            self._loop.run_until_complete(self._writer.close())
            self._writer = None

    def _hear(self, event: Event) -> None:
        if isinstance(event, Written):
            self._written = event.write_sequence
        else:
            self._events.append(event)

    def _do(self, write: Write) -> SnapshotStored | SnapshotRejected | None:
        assert self._writer is not None
        self._sequence += 1
        is_awaited = self.random.random() < 0.5
        self._writer.submit([write], self._sequence, is_awaited=is_awaited)
        if isinstance(write, AppendBatches):
            return None
        self._await_sync()
        self._settle()
        events, self._events = self._events, []
        stored = [each for each in events if isinstance(each, SnapshotStored | SnapshotRejected)]
        return stored[0] if stored else None

    def _await_sync(self) -> None:
        self._loop.run_until_complete(asyncio.wait_for(self._until(self._sequence), PATIENCE_S))

    async def _until(self, sequence: int) -> None:
        while self._written < sequence:
            if self._failures:
                raise self._failures[0]
            await asyncio.sleep(0.0002)

    # -- other writers of files

    def _write_snapshot(self, id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        way = self.random.randrange(3)
        if way == 0:
            super()._write_snapshot(id, snapshot)
        elif way == 1:
            self._output_snapshot(id, snapshot)
        else:
            self._make_own_snapshot(id, snapshot)

    def _output_snapshot(self, id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        """Write a snapshot as a controller does, while it runs."""
        output = SnapshotOutput(self.disk, self.directory, id)
        content = memoryview(snapshot.content)
        step = self.random.randint(50, 1500)
        for start in range(0, len(content), step):
            output.write([content[start : start + step]])
        finished: Future[None] = Future()
        output.finish(lambda done: finished.set_result(done.result()))
        finished.result(PATIENCE_S)

    def _make_own_snapshot(self, id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        """Write a snapshot as the library does, with a column checkpoint."""
        controls: list[Record] = []
        if snapshot.voters is not None:
            controls = [control.KRaftVersion(kraft_version=1), snapshot.voters.to_record()]
        with self.store.snapshot_writer(
            id,
            last_contained_log_timestamp_ms=NOW_MS,
            timestamp_ms=NOW_MS,
            control_records=[(control_type(each), encode_control(each)) for each in controls],
        ) as writer:
            writer.append_batches(encode_records([NoOp()] * self.random.randint(0, 2000)))
            path = writer.finish()
        self.unsure[id] = Snapshot(Path(path).read_bytes(), snapshot.voters)
        self._settle()
        self.snapshots[id] = self.unsure[id]
        save_columns(path, table_of(self.random), records=b"", disk=self.disk)
        columns = columns_path(path)
        self._coming_columns[columns] = Path(columns).read_bytes()
        self._settle()
        self._columns[columns] = self._coming_columns.pop(columns)

    def _write_as_kafka(self) -> None:
        """Write as Kafka does, which syncs a segment some time after rolling it, and ignores
        ``synced-offset-checkpoint``. Then reopen the store.
        """
        self._end_writer()
        self.store.close()
        self._settle()
        self._is_of_kafka = True
        self.known_synced = -1
        state = Path(self.directory, QUORUM_STATE)
        if not state.exists():
            self._is_of_kafka = False
            return self._start()
        content = state.read_bytes()
        temporary = state.with_suffix(".tmp")
        write_plainly(temporary, content[: content.rindex(b',"crc32c"')] + b"}", is_synced=True)
        os.rename(temporary, state)
        self.disk.sync_directory(self.directory)
        for path in sorted(Path(self.directory).glob(f"*{LOG}")):
            content = path.read_bytes()
            path.unlink()
            write_plainly(path, content)
        for call in self._recording.new():
            self.replayed.take(call)
        return self._start()

    # -- the proof

    def _settle(self) -> None:
        if not self._is_of_kafka:
            # Promises made since the last call hold from now on.
            self._crash()
        for call in self._recording.new():
            self.calls[call.kind.name] += 1
            self.rules.check(call)
            self.replayed.take(call)
            self.rules.check_after(call)
            if call.kind in CHANGES and not self._is_of_kafka:
                self._crash()

    def _crash(self) -> None:
        for loss in Loss:
            self.crashes += 1
            left = self.replayed.after_crash(loss, self._fate)
            try:
                if self.crashes % LAID_OUT == 0:
                    self._check_laid_out(left)
                elif self.crashes % CRASHED_RESTARTS == 1:
                    self._crash_restart(left)
                else:
                    self.check(left)
            except BrokenPromiseError as violation:
                raise BrokenPromiseError(
                    f"crash {self.crashes}, loss {loss.value}: {violation}"
                ) from violation

    def _check_laid_out(self, left: CrashDisk) -> None:
        """Write the state after the crash as files, and open it like a real start."""
        root, self.root = self.root, str(self._scratch)
        directory, self.directory = self.directory, self.directory.replace(root, self.root)
        shutil.rmtree(self._scratch, ignore_errors=True)
        try:
            self._scratch.mkdir()
            for path, content in left.files().items():
                if path.startswith(root):
                    place = Path(path.replace(root, self.root))
                    place.parent.mkdir(exist_ok=True)
                    place.write_bytes(content)
            self.check(OsDisk())
        finally:
            self.root, self.directory = root, directory

    def _crash_restart(self, disk: CrashDisk) -> None:
        """Crash the recovery of a crashed disk at each of its steps."""
        stopped = CrashDisk.of(disk.files())
        lefts: list[CrashDisk] = []
        stopped.on_boundary = lambda: lefts.append(
            stopped.after_crash(self._fate.choice(list(Loss)), self._fate)
        )
        self.open(stopped)
        for left in lefts:
            self.check(left)

    def check(self, disk: Disk) -> None:
        super().check(disk)
        for promised, is_unsure in ((self._columns, False), (self._coming_columns, True)):
            for path, content in promised.items():
                id = next((id for id in self.snapshots if snapshot_name(*id)[:-11] in path), None)
                path = path.replace(os.path.dirname(path), self.directory)
                if not disk.exists(path):
                    if id is not None and not is_unsure:
                        raise BrokenPromiseError(f"the columns of {id} are lost")
                elif disk.open(path, read_only=True).read_at(0, len(content) + 1) != content:
                    raise BrokenPromiseError(f"{path} is not what was saved")


def table_of(random: Random) -> PartitionTable:
    """Return a table of a few topics with a few partitions each."""
    records: list[Record] = []
    for number in range(random.randint(1, 4)):
        id = Uuid(random.randbytes(16))
        records.append(Topic(name=f"topic-{number}", topic_id=id))
        records += [
            Partition(
                partition_id=partition,
                topic_id=id,
                replicas=[1, 2, 3],
                isr=[1, 2],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
            for partition in range(random.randint(1, 40))
        ]
    table = PartitionTable()
    table.apply(encode_records(records))
    return table


def write_plainly(path: Path, content: bytes, *, is_synced: bool = False) -> None:
    with path.open("xb") as file:
        file.write(content)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())
