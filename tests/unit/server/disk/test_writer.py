"""The writer threads: order, group commit, and failures of the disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from kraft.errors import StorageError
from kraft.raft.interface import (
    AppendBatches,
    Event,
    InstallSnapshot,
    SnapshotRejected,
    SnapshotsCleaned,
    SnapshotStored,
    StoreSnapshotChunk,
    TruncateLog,
    Write,
    WriteElectionState,
    Written,
)
from kraft.raft.rpc import LogSlice, OffsetAndEpoch
from kraft.records import control
from kraft.server.disk import writer
from kraft.server.disk.store import MetadataStore
from kraft.server.disk.writer import WriterThread
from kraft.simulation.memory_disk import MemoryDisk
from tests.harness.metadata_store import append_of, open_store, snapshot_bytes, stamped

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Heard:
    """A writer with its delivered events; `until` waits for a write sequence.

    An unexpected failure ends `until`.
    """

    def __init__(
        self, store: MetadataStore, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self.store = store
        self.events: list[Event] = []
        self._is_news = asyncio.Event()
        self.failures: list[BaseException] = []
        self.writer = WriterThread(store, self._hear, on_failure=on_failure or self.failures.append)
        self.writer.start()

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._is_news.set()

    async def until(self, sequence: int) -> None:
        while not any(isinstance(e, Written) and e.write_sequence >= sequence for e in self.events):
            self._is_news.clear()
            await asyncio.wait_for(self._is_news.wait(), 60)
            assert not self.failures

    def append(self, sequence: int, base: int, count: int = 10) -> bytes:
        data = append_of(count, base, 1)
        self.writer.submit([AppendBatches(base, base + count, data)], sequence)
        return data


def begin(base: int, epoch: int) -> AppendBatches:
    data = stamped([control.LeaderChange(leader_id=1)], base, epoch, is_control=True)
    return AppendBatches(base, base + 1, data)


def run(scenario: Callable[[], Awaitable[None]], loop: str = "asyncio") -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS)
def test_events_come_in_order_after_the_log_has_the_writes(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path, segment_bytes=5000)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        wanted = b""
        for number in range(200):
            wanted += heard.append(number + 2, 1 + 10 * number)
            if number % 7 == 0:
                await heard.until(number + 1)
        await heard.until(201)
        sequences = [e.write_sequence for e in heard.events if isinstance(e, Written)]
        assert sequences == sorted(set(sequences))
        await heard.writer.close()
        store.close()
        store = open_store(tmp_path)
        found, offset = b"", 1
        while data := store.read(LogSlice(offset, 2001, 1 << 20)):
            found += data
            offset = store.view.end_offset if len(found) == len(wanted) else offset_behind(data)
        assert found == wanted
        store.close()

    run(scenario, loop)


def offset_behind(data: memoryview) -> int:
    end, position = 0, 0
    while position < len(data):
        head = data[position : position + 27]
        end = int.from_bytes(head[:8], "big") + int.from_bytes(head[23:27], "big") + 1
        position += 12 + int.from_bytes(head[8:12], "big")
    return end


def test_waiting_appends_share_a_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path, segment_bytes=1 << 20)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        await heard.until(1)
        for number in range(500):
            heard.append(number + 2, 1 + 10 * number)
        await heard.until(501)
        assert len([e for e in heard.events if isinstance(e, Written)]) < 250
        await heard.writer.close()
        store.close()

    run(scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_event_of_a_snapshot_precedes_that_of_its_sequence(loop: str, tmp_path: Path) -> None:
    id = OffsetAndEpoch(50, 4)
    content = snapshot_bytes(tmp_path / "other", id, None)

    async def scenario() -> None:
        store = open_store(tmp_path)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        heard.append(2, 1)
        heard.writer.submit([StoreSnapshotChunk(id, 0, content), InstallSnapshot(id)], 3)
        heard.writer.submit([AppendBatches(50, 60, append_of(10, 50, 4))], 4)
        await heard.until(4)
        stored = next(e for e in heard.events if isinstance(e, SnapshotStored))
        assert stored.is_installed
        at = heard.events.index(stored)
        assert all(e.write_sequence < 3 for e in heard.events[:at] if isinstance(e, Written))
        await heard.writer.close()
        store.close()

    run(scenario, loop)


def test_each_chunk_of_a_download_has_its_event_before_the_next_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node requests the next chunk after this event; a shared event would delay it."""
    id = OffsetAndEpoch(50, 4)
    content = snapshot_bytes(tmp_path / "other", id, None)
    is_told = threading.Event()
    perform = MetadataStore.perform

    def perform_late(store: MetadataStore, write: Write) -> Event | None:
        if isinstance(write, StoreSnapshotChunk) and write.position == 200:
            assert is_told.wait(60)
        return perform(store, write)

    monkeypatch.setattr(MetadataStore, "perform", perform_late)

    async def scenario() -> None:
        store = open_store(tmp_path)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        for sequence, position in enumerate((0, 100, 200), 2):
            end = position + 100 if position < 200 else len(content)
            chunk = StoreSnapshotChunk(id, position, content[position:end])
            heard.writer.submit([chunk], sequence)
        heard.writer.submit([InstallSnapshot(id)], 5)
        heard.writer.submit([AppendBatches(50, 60, append_of(10, 50, 4))], 6)
        await heard.until(3)
        assert store.log.log_end_offset == 1
        is_told.set()
        await heard.until(6)
        assert [type(e) for e in heard.events[-3:]] == [SnapshotStored, Written, Written]
        assert store.log.log_end_offset == 60
        await heard.writer.close()
        store.close()

    run(scenario)


def test_a_rejected_snapshot_is_reported_and_the_writer_continues(tmp_path: Path) -> None:
    id = OffsetAndEpoch(50, 4)

    async def scenario() -> None:
        store = open_store(tmp_path)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        heard.writer.submit([StoreSnapshotChunk(id, 0, b"none"), InstallSnapshot(id)], 2)
        heard.append(3, 1)
        await heard.until(3)
        refused = next(e for e in heard.events if isinstance(e, SnapshotRejected))
        assert refused.snapshot_id == id
        assert heard.events.index(refused) < heard.events.index(Written(3))
        await heard.writer.close()
        store.close()

    run(scenario)


def test_other_writes_wait_for_the_sync_and_later_appends_for_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path, segment_bytes=2000)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        base, sequence = 1, 1
        for epoch in range(2, 40):
            for _ in range(3):
                sequence += 1
                data = append_of(10, base, epoch - 1)
                heard.writer.submit([AppendBatches(base, base + 10, data)], sequence)
                base += 10
            sequence += 1
            base -= 10
            state = WriteElectionState(epoch, 1, -1, None, kraft_version=1)
            heard.writer.submit([TruncateLog(base), state, begin(base, epoch)], sequence)
            base += 1
        await heard.until(sequence)
        await heard.writer.close()
        store.close()
        store = open_store(tmp_path)
        assert (store.view.end_offset, store.view.last_epoch) == (base, 39)
        assert store.election.epoch == 39
        store.close()

    run(scenario)


def test_a_small_awaited_append_is_durable_at_the_return(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        await heard.until(1)
        base = 1
        for sequence in range(2, 60):
            data = append_of(10, base, 1)
            heard.writer.submit([AppendBatches(base, base + 10, data)], sequence, is_awaited=True)
            base += 10
            if heard.events[-1] != Written(sequence):
                # The threads write the first append of a segment, and after a slow sync any append.
                await heard.until(sequence)
            assert store.log.synced_offset == base
        sequences = [e.write_sequence for e in heard.events if isinstance(e, Written)]
        assert sequences == list(range(1, 60))
        await heard.writer.close()
        store.close()
        assert open_store(tmp_path).view.end_offset == base

    run(scenario)


def test_an_awaited_append_overtakes_no_other_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path, segment_bytes=1 << 20)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        await heard.until(1)
        heard.append(2, 1)
        data = append_of(10, 11, 1)
        heard.writer.submit([AppendBatches(11, 21, data)], 3, is_awaited=True)
        assert store.log.log_end_offset == 1
        await heard.until(3)
        state = WriteElectionState(2, 1, -1, None, kraft_version=1)
        heard.writer.submit([state], 4, is_awaited=True)
        large = append_of(7000, 21, 1)
        heard.writer.submit([AppendBatches(21, 7021, large)], 5, is_awaited=True)
        assert store.log.log_end_offset == 21
        await heard.until(5)
        await heard.writer.close()
        store.close()

    run(scenario)


def test_after_a_slow_sync_the_threads_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop must serve the network, so it does not wait for a second slow sync."""
    monkeypatch.setattr(writer, "SLOW_S", 0.0)

    async def scenario() -> None:
        store = open_store(tmp_path)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        await heard.until(1)
        for sequence, base, is_on_loop in ((2, 1, True), (3, 11, False)):
            append = AppendBatches(base, base + 10, append_of(10, base, 1))
            heard.writer.submit([append], sequence, is_awaited=True)
            assert (heard.events[-1] == Written(sequence)) == is_on_loop
            await heard.until(sequence)
        await heard.writer.close()
        store.close()

    run(scenario)


def test_cleaning_delivers_an_event(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path)
        heard = Heard(store)
        cleaned = SnapshotsCleaned(0, OffsetAndEpoch(0, 0))
        heard.writer.run(lambda: None)
        heard.writer.run(lambda: cleaned)
        await heard.writer.close()
        assert heard.events == [cleaned]
        store.close()

    run(scenario)


def test_a_disk_without_group_writer_works_too() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        store = MetadataStore.open("/node", disk=disk)
        heard = Heard(store)
        heard.writer.submit([begin(0, 1)], 1)
        for number in range(20):
            heard.append(number + 2, 1 + 10 * number)
        await heard.until(21)
        await heard.writer.close()
        assert store.log.synced_offset == 201
        store.close()

    run(scenario)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_ends_the_writer_without_further_events(operation: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        store = MetadataStore.open("/node", disk=disk)
        failures: list[BaseException] = []
        is_over = threading.Event()

        def note(error: BaseException) -> None:
            failures.append(error)
            is_over.set()

        heard = Heard(store, on_failure=note)
        heard.writer.submit([begin(0, 1)], 1)
        await heard.until(1)
        disk.refuse(operation)
        heard.append(2, 1)
        assert await asyncio.get_running_loop().run_in_executor(None, is_over.wait, 20)
        heard.append(3, 11)
        await heard.writer.close()
        assert [type(error) for error in failures] == [StorageError]
        assert heard.events == [Written(1)]

    run(scenario)


def test_a_sync_that_fails_ends_the_process(tmp_path: Path) -> None:
    """Run a process on a disk whose next sync fails."""
    script = """
import asyncio, sys
from functools import partial

from kraft.server.disk.writer import WriterThread
from kraft.server.process import end_process
from kraft.records import control
from kraft.server.disk.store import MetadataStore
from tests.unit.server.disk.test_writer import begin
from kraft.simulation.memory_disk import MemoryDisk

async def main():
    memory = MemoryDisk()
    store = MetadataStore.open("/node", disk=memory)
    on_failure = partial(end_process, "a write failed")
    writer = WriterThread(store, print, on_failure=on_failure)
    writer.start()
    memory.refuse("sync")
    writer.submit([begin(0, 1)], 1)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[4],
        check=False,
    )
    assert done.returncode == 1
    assert "a write failed, this node stops" in done.stderr
    assert "cannot sync" in done.stderr
    assert done.stdout == ""


def test_a_failed_write_on_the_loop_ends_the_process_too(tmp_path: Path) -> None:
    """Run a process whose files are limited to 100 kB; it waits for every append."""
    script = """
import asyncio, resource, sys
from functools import partial
from pathlib import Path

from kraft.raft.interface import AppendBatches, Written
from kraft.server.process import end_process
from tests.harness.metadata_store import append_of, open_store
from tests.unit.server.disk.test_writer import Heard, begin

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

async def main():
    store = open_store(Path(sys.argv[1]), segment_bytes=1 << 20)
    heard = Heard(store, on_failure=partial(end_process, "a write failed"))
    heard.writer.submit([begin(0, 1)], 1)
    await heard.until(1)
    for number in range(1000):
        base = 1 + 10 * number
        append = AppendBatches(base, base + 10, append_of(10, base, 1))
        heard.writer.submit([append], number + 2, is_awaited=True)
        await heard.until(number + 2)
        print(base + 10, flush=True)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[4],
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("a write failed, this node stops") == 1
    assert "File too large" in done.stderr
    store = open_store(tmp_path, segment_bytes=1 << 20)
    assert store.view.end_offset == int(done.stdout.split()[-1])
    store.close()


def test_a_killed_process_loses_no_reported_write(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from kraft.server.disk.writer import WriterThread
from tests.harness.metadata_store import append_of, open_store
from tests.unit.server.disk.test_writer import Heard, begin
from pathlib import Path

async def main():
    heard = Heard(open_store(Path(sys.argv[1]), segment_bytes=20000))
    heard.writer.submit([begin(0, 1)], 1)
    for number in range(1_000_000):
        heard.append(number + 2, 1 + 10 * number)
        if number % 10 == 0:
            await heard.until(number - 20)
            print(heard.events[-1].write_sequence, flush=True)

asyncio.run(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    assert process.stdout is not None
    acknowledged = 0
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged > 500:
            break
    os.kill(process.pid, signal.SIGKILL)
    acknowledged = max(
        [acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))]
    )
    process.wait(60)
    store = open_store(tmp_path)
    assert store.view.end_offset >= 1 + 10 * (acknowledged - 1)
    store.close()
