"""The threads that write: what the raft layer asks for, in order, and one sync for many.

Owns two threads. One appends and syncs without the interpreter's lock
(``kraft._core.group_writer``): while a sync runs, further appends gather, and the next sync makes
them durable together (group commit). The other does whatever is more than an append to the last
segment: an election state, a truncation, a snapshot, a new segment or epoch. They take turns: the
one begins when the other has nothing under way.

Everything else happens on the event loop: it hands out the writes, takes up what is on the device,
and tells it. A small append that the node waits for is written and synced on the loop too: waking
a thread, and then the loop, would cost almost as much as the sync.

Invariants: writes are done in the order in which they came; nothing is told before it is on the
device. A write or a sync that fails ends the process: what lies on the device is in doubt then, and
an acknowledgement that was given must hold. It is never tried again, as the kernel may have dropped
what it could not write. Fed by `driver`; feeds on `store`.
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
from kraft.raft.ready import (
    AppendBatches,
    Event,
    InstallSnapshot,
    StoreSnapshotChunk,
    Write,
    Written,
)
from kraft.server.disk.store import MetadataStore

#: Of appends that are written and synced on the loop itself. After a sync that took long the loop,
#: which has others to answer, leaves the disk to the thread for a while.
MOST_BYTES_ON_LOOP = 64 * 1024
SLOW_S = 0.005
SLOW_PAUSE_S = 1.0
#: Of a download: no sync makes them durable together, so that each is told when it is done.
OF_DOWNLOAD = (StoreSnapshotChunk, InstallSnapshot)


class Job(NamedTuple):
    """One write, or work that gives an event; ``sequence`` of the ``Ready`` it is the last of."""

    write: Write | Callable[[], Event]
    sequence: int


class WriterThread:
    """Started by `start`, ended by `close`. ``deliver`` is called on the loop with each event.

    ``on_failure`` hears of a disk that refused, in the thread that met it; it should end the
    process and not return.
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
        #: What is not handed out yet, and what the group writer has.
        self._waiting: deque[Job] = deque()
        self._appending: deque[tuple[AppendBatches, int]] = deque()
        #: How many lists of jobs the other thread has; above 0 nobody else touches the store's
        #: files.
        self._alone_count = 0
        self._has_failed = False
        self._alone: SimpleQueue[list[Job] | None] = SimpleQueue()
        #: Until then nothing is written on the loop.
        self._is_slow_until_s = 0.0
        self._done: deque[tuple[list[Event], int]] = deque()
        self._threads = [threading.Thread(target=self._run_alone, name="kraft-writer", daemon=True)]
        if self._group is not None:
            self._threads.append(
                threading.Thread(target=self._group.run, name="kraft-group-writer", daemon=True)
            )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_news = asyncio.Event()

    def start(self) -> None:
        """Begins to write; the running loop is the one that hears of it."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._signal_fd, self._take_done)
        for thread in self._threads:
            thread.start()

    @property
    def group_count(self) -> int:
        """How many groups of appends were synced, each by one sync."""
        return 0 if self._group is None else self._group.sync_count

    def submit(self, writes: Sequence[Write], sequence: int, *, is_awaited: bool = False) -> None:
        """Queues the writes of one ``Ready``.

        ``is_awaited``: there is nothing to do before they are durable. Where they are one small
        append, and the disk is at rest, they are durable and told at the return.
        """
        is_at_rest = not (self._waiting or self._appending or self._alone_count)
        last = len(writes) - 1
        for index, write in enumerate(writes):
            self._waiting.append(Job(write, sequence if index == last else 0))
        if is_awaited and is_at_rest and last == 0:
            self._write_now(writes[0])
        self._hand_out()

    def run(self, work: Callable[[], Event]) -> None:
        """Queues work that changes the store; the event that it gives, if any, is delivered."""
        self._waiting.append(Job(work, 0))
        self._hand_out()

    async def close(self) -> None:
        """Ends the threads once everything that was queued is done, durable and told."""
        assert self._loop is not None, "not started"
        while (self._waiting or self._appending or self._alone_count) and not self._has_failed:
            self._is_news.clear()
            await self._is_news.wait()
        self._alone.put(None)
        if self._group is not None:
            self._group.close()
        for thread in self._threads:
            await self._loop.run_in_executor(None, thread.join)
        self._loop.remove_reader(self._signal_fd)
        os.close(self._signal_fd)

    # -- on the loop

    def _write_now(self, write: Write) -> None:
        """Writes and syncs the only write that waits, if it may be done here."""
        group, begin_s = self._group, time.monotonic()
        if (
            group is None
            or self._has_failed
            or begin_s < self._is_slow_until_s
            or type(write) is not AppendBatches
            or len(write.batches) > MOST_BYTES_ON_LOOP
            or not self._store.stage(write, group)
        ):
            return
        self._appending.append((write, self._waiting.popleft().sequence))
        group.write_now()
        end_s = time.monotonic()
        if end_s - begin_s > SLOW_S:
            self._is_slow_until_s = end_s + SLOW_PAUSE_S
        self._take_done()

    def _hand_out(self) -> None:
        """Gives the waiting writes to the threads, as far as their turn has come."""
        self._stage_waiting()
        if self._group is not None:
            self._group.hand_over()

    def _stage_waiting(self) -> None:
        """Puts appends to the group writer; what is none goes to the other thread in its turn."""
        waiting, group, store = self._waiting, self._group, self._store
        while waiting and not self._has_failed:
            write, sequence = waiting[0]
            if type(write) in OF_DOWNLOAD and not self._appending:
                self._leave_alone([waiting.popleft()])
            elif self._alone_count:
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
                self._leave_alone(jobs)

    def _leave_alone(self, jobs: list[Job]) -> None:
        self._alone_count += 1
        self._alone.put(jobs)

    def _take_done(self) -> None:
        """Something is on the device, or was refused."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._signal_fd)
        events: list[Event] = []
        last_sequence = 0
        while self._done:
            done, sequence = self._done.popleft()
            events += done
            last_sequence = sequence or last_sequence
            self._alone_count -= 1
        try:
            while self._group is not None and (count := self._group.take_done()):
                for _ in range(count):
                    write, sequence = self._appending.popleft()
                    self._store.take_in(write)
                    last_sequence = sequence or last_sequence
        except StorageError as error:
            self._fail(error)
        self._hand_out()
        for event in events:
            self._deliver(event)
        if last_sequence:
            self._deliver(Written(last_sequence))
        self._is_news.set()

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        self._on_failure(error)

    # -- in the thread of what is not appended

    def _run_alone(self) -> None:
        try:
            while jobs := self._alone.get():
                self._done.append(self._do_alone(jobs))
                os.eventfd_write(self._signal_fd, 1)
        except BaseException as error:
            self._fail(error)

    def _do_alone(self, jobs: list[Job]) -> tuple[list[Event], int]:
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
