"""The threads that write: what the raft layer asks for, in order, and one sync for many.

Owns two threads that take turns at the store (``kraft._core.sync_turns``): while one syncs, the
other does the writes that have come since, and its sync follows at once. All writes that waited
share one sync (group commit). What became durable is told on the event loop, by an eventfd that is
written as soon as the device has answered.

Only appends to one file go side by side with a sync. Whatever else is written (an election state, a
truncation, a snapshot, a new segment) waits until the sync under way is done, and is then done,
synced and told before anything else.

Invariants: jobs are done in the order in which they came; nothing is told before it is on the
device. A write or a sync that fails ends the process: what lies on the device is in doubt then, and
an acknowledgement that was given must hold. It is never tried again, as the kernel may have dropped
what it could not write. Fed by `driver`; feeds on `store`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from kraft._core.sync_turns import SyncTurns
from kraft.raft.ready import AppendBatches, Event, Write, Written
from kraft.server.store import MetadataStore

logger = logging.getLogger(__name__)

#: Bytes of appends that one sync may make durable: what comes later waits for the next.
MAX_GROUP_SIZE = 16 * 1024 * 1024

_EXIT_CODE = 1


class WriteJob(NamedTuple):
    """The writes of one ``Ready``, or a piece of work between them that ends in an event."""

    writes: Sequence[Write]
    sequence: int
    work: Callable[[], Event] | None = None

    @property
    def is_plain(self) -> bool:
        """Appends and nothing else."""
        return self.work is None and all(type(write) is AppendBatches for write in self.writes)


def end_process(error: BaseException) -> None:
    """Says why and leaves at once: nothing of this process may run on."""
    logger.critical("a write failed, this node stops: %s", error, exc_info=error)
    logging.shutdown()
    os._exit(_EXIT_CODE)


class WriterThread:
    """Started by `start`, ended by `close`. ``deliver`` is called on the loop with each event.

    ``on_failure`` hears of a disk that refused, in the thread that met it; it should not return.
    """

    def __init__(
        self,
        store: MetadataStore,
        deliver: Callable[[Event], None],
        *,
        on_failure: Callable[[BaseException], None] = end_process,
    ) -> None:
        self._store = store
        self._deliver = deliver
        self._on_failure = on_failure
        self._jobs: SimpleQueue[WriteJob | None] = SimpleQueue()
        self._next: WriteJob | None = None
        self._is_closing = False
        self._signal_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._turns = SyncTurns(self._signal_fd)
        self._events: deque[Event] = deque()
        self._told_sequence = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"kraft-writer-{number}", daemon=True)
            for number in range(2)
        ]
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begins to write; the running loop is the one that hears of it."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._signal_fd, self._tell)
        for thread in self._threads:
            thread.start()

    def submit(self, writes: Sequence[Write], sequence: int) -> None:
        """Queues the writes of one ``Ready``."""
        self._jobs.put(WriteJob(writes, sequence))

    def run(self, work: Callable[[], Event]) -> None:
        """Queues work that changes the store; the event that it gives, if any, is delivered."""
        self._jobs.put(WriteJob((), 0, work))

    async def close(self) -> None:
        """Ends the threads once everything that was queued is done, durable and told."""
        assert self._loop is not None, "not started"
        self._jobs.put(None)
        for thread in self._threads:
            await self._loop.run_in_executor(None, thread.join)
        self._loop.remove_reader(self._signal_fd)
        self._tell()
        os.close(self._signal_fd)

    # -- on the loop

    def _tell(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._signal_fd)
        sequence = self._turns.synced_sequence
        while self._events:
            self._deliver(self._events.popleft())
        if sequence > self._told_sequence:
            self._told_sequence = sequence
            self._deliver(Written(sequence))

    # -- in the two threads

    def _run(self) -> None:
        try:
            while self._take_turn():
                pass
        except BaseException as error:
            self._turns.fail()
            self._on_failure(error)

    def _take_turn(self) -> bool:
        """Does the jobs that wait, and one sync for them; False: there will be no more."""
        turns = self._turns
        turns.take()
        is_held = True
        try:
            if self._is_closing or turns.failed:
                return False
            job = self._next or self._jobs.get()
            self._next = None
            if job is None:
                self._is_closing = True
                return False
            if not job.is_plain:
                self._do_alone(job)
                return True
            sequence = self._append_group(job)
            pending = self._store.begin_sync()
            if pending is None:
                self._sync_alone(sequence)
                return True
            is_held = False
            if turns.sync(pending.file, sequence):
                self._store.end_sync(pending)
            return not turns.failed
        finally:
            if is_held:
                turns.release()

    def _append_group(self, job: WriteJob) -> int:
        """Does this job and the plain ones behind it; the sequence of the last."""
        store, jobs = self._store, self._jobs
        size = 0
        while True:
            for write in job.writes:
                store.perform(write)
                size += len(write.batches)  # type: ignore[union-attr]
            if size >= MAX_GROUP_SIZE:
                return job.sequence
            try:
                following = jobs.get_nowait()
            except Empty:
                return job.sequence
            if following is None:
                # The end: for the next turn, which finds it first.
                jobs.put(None)
                return job.sequence
            if not following.is_plain:
                self._next = following
                return job.sequence
            job = following

    def _sync_alone(self, sequence: int) -> None:
        turns = self._turns
        turns.take_sync()
        try:
            if not turns.failed:
                self._store.sync()
                turns.tell(sequence)
        finally:
            turns.release_sync()

    def _do_alone(self, job: WriteJob) -> None:
        """Does a job that is more than appends while no sync runs; it is told before the next."""
        store, turns = self._store, self._turns
        turns.take_sync()
        try:
            if turns.failed:
                return
            events: list[Event] = [store.perform(write) for write in job.writes]
            if job.work is not None:
                events.append(job.work())
            store.sync()
            self._events.extend(event for event in events if event is not None)
            turns.tell(job.sequence)
        finally:
            turns.release_sync()
