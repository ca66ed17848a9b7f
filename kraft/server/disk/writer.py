"""The threads that perform the raft layer's writes, in order, with group commit.

Two threads write, one at a time:

- The group writer appends and syncs without the GIL (``kraft._core.log.group_writer``). Appends
  that arrive during a sync become durable together, with the next sync (group commit).
- The exclusive thread performs all other writes: election states, truncations, snapshots, and
  appends that begin a segment or an epoch.

The event loop dispatches the writes, and delivers events for those that are durable. It also writes
and syncs a small append itself when the node waits for it: waking a thread, and then the loop,
would cost almost as much as the sync.

Invariants: writes are performed in the order of submission; no event is delivered before its write
is on the device. A failed write or sync ends the process, since the content of the device is in
doubt then and an acknowledged record must not be lost. It is never retried, since the kernel may
have dropped the data that it could not write. Called by `driver`; calls `store`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

from kraft.errors import StorageError
from kraft.raft.interface import (
    AppendBatches,
    Event,
    InstallSnapshot,
    StoreSnapshotChunk,
    Write,
    Written,
)
from kraft.server.disk.store import MetadataStore

#: The largest append that is written and synced on the loop. After a sync slower than SLOW_S the
#: loop leaves all writes to the threads for SLOW_PAUSE_S, to serve the network.
MAX_BYTES_ON_LOOP = 64 * 1024
SLOW_S = 0.005
SLOW_PAUSE_S = 1.0
#: The writes of a download: a sync is not shared, so each is a job of its own, with its own event.
DOWNLOAD_WRITES = (StoreSnapshotChunk, InstallSnapshot)


class WriteJob(NamedTuple):
    """One write, or a function that returns an event.

    ``sequence`` is that of the ``RaftReady`` whose last write this is, else 0.
    """

    write: Write | Callable[[], Event]
    sequence: int


class WriterThread:
    """The writer of one node, from `start` to `close`.

    ``deliver`` is called on the loop with each event. ``on_failure`` is called with the error of a
    failed write, in the thread of that write; it should end the process and not return.
    """

    def __init__(
        self,
        store: MetadataStore,
        deliver: Callable[[Event], None],
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._deliver = deliver
        self._on_failure = on_failure
        self._signal_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._group = store.group_writer(self._signal_fd)
        #: Jobs not dispatched yet, and appends that the group writer has, with their sequence.
        self._waiting: deque[WriteJob] = deque()
        self._appending: deque[tuple[AppendBatches, int]] = deque()
        #: Lists of jobs that the exclusive thread has; above 0 only that thread may use the
        #: store's files.
        self._exclusive_count = 0
        self._has_failed = False
        self._exclusive_jobs: SimpleQueue[list[WriteJob] | None] = SimpleQueue()
        #: No append is written on the loop before this time.
        self._is_slow_until_s = 0.0
        #: When the writes under way last made progress, or began.
        self._progress_s = 0.0
        self._done: deque[tuple[list[Event], int]] = deque()
        self._threads = [
            threading.Thread(target=self._run_exclusive, name="kraft-writer", daemon=True)
        ]
        if self._group is not None:
            self._threads.append(
                threading.Thread(target=self._group.run, name="kraft-group-writer", daemon=True)
            )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._progress = asyncio.Event()

    def start(self) -> None:
        """Start the threads; events are delivered on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._signal_fd, self._take_done)
        for thread in self._threads:
            thread.start()

    @property
    def group_count(self) -> int:
        """Number of groups of appends synced so far, each by one sync."""
        return 0 if self._group is None else self._group.sync_count

    def submit(self, writes: Sequence[Write], sequence: int, *, is_awaited: bool = False) -> None:
        """Queue the writes of one ``RaftReady``.

        ``is_awaited``: the node can do nothing before they are durable. One small append is then
        durable and its event delivered at the return, if no other write is under way.
        """
        is_at_rest = not (self._waiting or self._appending or self._exclusive_count)
        if is_at_rest:
            self._progress_s = time.monotonic()
        last = len(writes) - 1
        for index, write in enumerate(writes):
            self._waiting.append(WriteJob(write, sequence if index == last else 0))
        if is_awaited and is_at_rest and last == 0:
            self._write_on_loop(writes[0])
        self._dispatch()

    def run(self, work: Callable[[], Event]) -> None:
        """Queue a function that changes the store; the event that it returns is delivered."""
        if not (self._waiting or self._appending or self._exclusive_count):
            self._progress_s = time.monotonic()
        self._waiting.append(WriteJob(work, 0))
        self._dispatch()

    def oldest_write_ms(self) -> float:
        """Return for how long no write has completed while one is under way; 0 if none is."""
        if not (self._waiting or self._appending or self._exclusive_count):
            return 0.0
        return (time.monotonic() - self._progress_s) * 1000

    async def close(self) -> None:
        """End the threads once every queued write is durable and its event delivered."""
        assert self._loop is not None, "not started"
        while (self._waiting or self._appending or self._exclusive_count) and not self._has_failed:
            self._progress.clear()
            await self._progress.wait()
        self._exclusive_jobs.put(None)
        if self._group is not None:
            self._group.close()
        for thread in self._threads:
            await self._loop.run_in_executor(None, thread.join)
        self._loop.remove_reader(self._signal_fd)
        os.close(self._signal_fd)

    # -- on the loop

    def _write_on_loop(self, write: Write) -> None:
        """Write and sync the only waiting write, if it is a small append."""
        group, begin_s = self._group, time.monotonic()
        if (
            group is None
            or self._has_failed
            or begin_s < self._is_slow_until_s
            or type(write) is not AppendBatches
            or len(write.batches) > MAX_BYTES_ON_LOOP
            or not self._store.stage(write, group)
        ):
            return
        self._appending.append((write, self._waiting.popleft().sequence))
        group.write_now()
        end_s = time.monotonic()
        if end_s - begin_s > SLOW_S:
            self._is_slow_until_s = end_s + SLOW_PAUSE_S
        self._take_done()

    def _dispatch(self) -> None:
        """Give waiting writes to the threads, as far as the order allows."""
        self._stage_waiting()
        if self._group is not None:
            self._group.hand_over()

    def _stage_waiting(self) -> None:
        """Queue appends in the group writer, other writes for the exclusive thread, in order."""
        waiting, group, store = self._waiting, self._group, self._store
        while waiting and not self._has_failed:
            write, sequence = waiting[0]
            if type(write) in DOWNLOAD_WRITES and not self._appending:
                self._submit_exclusive([waiting.popleft()])
            elif self._exclusive_count:
                return
            elif type(write) is AppendBatches and group is not None and store.stage(write, group):
                waiting.popleft()
                self._appending.append((write, sequence))
            elif self._appending:
                return
            else:
                jobs = [waiting.popleft()]
                while waiting and (group is None or type(waiting[0].write) is not AppendBatches):
                    jobs.append(waiting.popleft())
                self._submit_exclusive(jobs)

    def _submit_exclusive(self, jobs: list[WriteJob]) -> None:
        self._exclusive_count += 1
        self._exclusive_jobs.put(jobs)

    def _take_done(self) -> None:
        """Deliver the events of completed writes; called when a thread signals progress."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._signal_fd)
        events: list[Event] = []
        last_sequence = 0
        while self._done:
            done, sequence = self._done.popleft()
            events += done
            last_sequence = sequence or last_sequence
            self._exclusive_count -= 1
        try:
            while self._group is not None and (count := self._group.take_done()):
                for _ in range(count):
                    write, sequence = self._appending.popleft()
                    self._store.finish_append(write)
                    last_sequence = sequence or last_sequence
        except StorageError as error:
            self._fail(error)
        self._progress_s = time.monotonic()
        self._dispatch()
        for event in events:
            self._deliver(event)
        if last_sequence:
            self._deliver(Written(last_sequence))
        self._progress.set()

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        self._on_failure(error)

    # -- in the exclusive thread

    def _run_exclusive(self) -> None:
        try:
            while jobs := self._exclusive_jobs.get():
                self._done.append(self._perform(jobs))
                os.eventfd_write(self._signal_fd, 1)
                # An election waits for the first append of its epoch, and not for this file.
                self._store.write_epochs()
        except BaseException as error:
            self._fail(error)

    def _perform(self, jobs: list[WriteJob]) -> tuple[list[Event], int]:
        store = self._store
        events: list[Event] = []
        last_sequence = 0
        for write, sequence in jobs:
            event = write() if callable(write) else store.perform(write)
            if event is not None:
                events.append(event)
            last_sequence = sequence or last_sequence
        store.sync()
        return events, last_sequence
