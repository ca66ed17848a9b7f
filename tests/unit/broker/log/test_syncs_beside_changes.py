"""Syncs of a log in one thread, while the event loop deletes the log, or replaces it by a copy.

The disk calls the test at each boundary of the sync; there the log goes. The directory must stay
online: the files that the sync does not find any more are no failure of the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from kraft.errors import StorageError
from tests.harness.commands import PATIENCE_S
from tests.harness.crash_disk import CrashDisk
from tests.harness.partition_logs import TOPIC_ID, Logs, produced

SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=100)
SYNCS = [PartitionLog.flush, PartitionLog.flush_rolled]


class SyncedLog:
    """A log of several segments that are not synced, and its copy in another directory."""

    def __init__(self, most_open: int) -> None:
        self.disk = CrashDisk()
        for path in ("/a", "/b"):
            self.disk.make_directory(path)
        self.logs = Logs("/a", "/b", settings=SMALL, disk=self.disk, most_open=most_open)
        self.source, self.target = self.logs.directories
        self.log = self.logs.manager.create("t", 0, TOPIC_ID, self.source)
        for sequence in range(30):
            self.log.append_as_leader(produced(producer_id=3, sequence=sequence), 1)

    def copy(self) -> None:
        copy = self.logs.manager.create_future("t", 0, TOPIC_ID, self.target)
        while copy.end_offset < self.log.end_offset:
            part = self.log.read(copy.end_offset, 5000, self.log.end_offset)
            copy.append_as_follower(part.read())

    def at_boundary(self, number: int, work: Callable[[], object]) -> Callable[[], bool]:
        """Do ``work`` at a boundary; return a function that tells whether it was done."""
        left = number

        def count() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                work()

        self.disk.on_boundary = count
        return lambda: left < 0


def each_boundary(
    prepare: Callable[[SyncedLog], None],
    sync: Callable[[PartitionLog], None],
    work: Callable[[SyncedLog], object],
    most_open: int,
) -> list[SyncedLog]:
    """Sync new logs, with ``work`` at each boundary of a sync; return the logs."""
    found: list[SyncedLog] = []
    while True:
        synced = SyncedLog(most_open)
        prepare(synced)
        is_done = synced.at_boundary(len(found), partial(work, synced))
        sync(synced.log)
        synced.disk.on_boundary = lambda: None
        if not is_done():
            return found
        found.append(synced)


@pytest.mark.parametrize("most_open", [1, 100])
@pytest.mark.parametrize("sync", SYNCS)
def test_a_log_that_is_deleted_while_it_is_synced(
    sync: Callable[[PartitionLog], None], most_open: int
) -> None:
    cases = each_boundary(
        lambda one: None, sync, lambda one: one.logs.manager.delete("t", 0), most_open
    )
    assert len(cases) > 5
    for one in cases:
        assert one.logs.failed == []
        assert one.logs.manager.get("t", 0) is None
        assert [name.endswith("-delete") for name in _names(one.disk, one.source)] == [True]


@pytest.mark.parametrize("most_open", [1, 100])
@pytest.mark.parametrize("sync", SYNCS)
def test_a_log_that_is_replaced_while_it_is_synced(
    sync: Callable[[PartitionLog], None], most_open: int
) -> None:
    cases = each_boundary(
        SyncedLog.copy, sync, lambda one: one.logs.manager.promote("t", 0), most_open
    )
    assert len(cases) > 5
    for one in cases:
        assert one.logs.failed == []
        log = one.logs.manager.get("t", 0)
        assert log is not None
        assert log.directory is one.target
        assert log.end_offset == 30


def test_a_copy_is_synced_by_the_mover_alone() -> None:
    """A sync that goes on while the copy gets its name would miss its files."""
    synced = SyncedLog(100)
    synced.copy()
    manager = synced.logs.manager
    copy = manager.future("t", 0)
    assert copy is not None
    assert copy.has_unflushed_segments
    assert manager.flush_rolled() == 1
    assert manager.flush_due(synced.logs.now_ms + SMALL.flush_ms) <= 1
    assert copy.has_unflushed_segments


def test_a_failure_of_the_device_is_one_for_a_log_that_stays() -> None:
    synced = SyncedLog(100)

    def fail() -> None:
        raise StorageError("the device is gone")

    synced.disk.on_boundary = fail
    with pytest.raises(StorageError):
        synced.log.flush()
    assert synced.logs.failed == ["/a"]


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("number", range(12))
def test_two_threads_sync_a_log_at_once(sync: Callable[[PartitionLog], None], number: int) -> None:
    """With flush.messages=1 the event loop syncs a log after each append, beside the upkeep.

    Both wrote the same snapshots of producers, and the second one removed what was not written.
    """
    synced = SyncedLog(100)
    may_go_on, is_reached = threading.Event(), threading.Event()

    def wait() -> None:
        is_reached.set()
        assert may_go_on.wait(PATIENCE_S)

    is_done = synced.at_boundary(number, wait)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(sync, synced.log)
        assert is_reached.wait(PATIENCE_S)
        second = threads.submit(PartitionLog.flush, synced.log)
        # Long enough for the second one to do what it can beside the first.
        futures.wait([second], 0.05)
        may_go_on.set()
        first.result(PATIENCE_S)
        second.result(PATIENCE_S)
    assert is_done()
    assert synced.logs.failed == []
    segments = [name for name in synced.disk.list(synced.log.path) if name.endswith(".log")]
    snapshots = [name for name in synced.disk.list(synced.log.path) if name.endswith(".snapshot")]
    assert [name.split(".")[0] for name in snapshots] == [
        name.split(".")[0] for name in segments[1:]
    ]


def _names(disk: CrashDisk, directory: LogDirectory) -> list[str]:
    return [name for name in disk.list(directory.path) if name.startswith("t-")]
