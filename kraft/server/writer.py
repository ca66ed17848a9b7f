"""The thread that writes: what the raft layer asks for, in order, and one sync for many.

Owns the thread and the order of its jobs. While a sync runs, further writes gather; then all of
them are done, and one sync makes them durable together (group commit). What became durable is told
on the event loop.

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
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from kraft.raft.ready import Event, Write, Written
from kraft.server.store import MetadataStore

logger = logging.getLogger(__name__)

#: Bytes of appends that one sync may make durable: what comes later waits for the next.
MAX_GROUP_SIZE = 64 * 1024 * 1024

_EXIT_CODE = 1


class WriteJob:
    """The writes of one ``Ready``, or a piece of work between them that ends in an event."""

    __slots__ = ("sequence", "work", "writes")

    def __init__(
        self, writes: Sequence[Write], sequence: int, work: Callable[[], Event] | None = None
    ) -> None:
        self.writes = writes
        self.sequence = sequence
        self.work = work


def end_process(error: BaseException) -> None:
    """Says why and leaves at once: nothing of this process may run on."""
    logger.critical("the disk failed, this node stops: %s", error, exc_info=error)
    logging.shutdown()
    os._exit(_EXIT_CODE)


class WriterThread:
    """Started by `start`, ended by `close`. ``deliver`` is called on the loop with each event."""

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
        self._thread = threading.Thread(target=self._run, name="kraft-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begins to write; the running loop is the one that hears of it."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def submit(self, writes: Sequence[Write], sequence: int) -> None:
        """Queues the writes of one ``Ready``."""
        self._jobs.put(WriteJob(writes, sequence))

    def run(self, work: Callable[[], Event]) -> None:
        """Queues work that changes the store; the event that it gives, if any, is delivered."""
        self._jobs.put(WriteJob((), 0, work))

    async def close(self) -> None:
        """Ends the thread once everything that was queued is done and durable."""
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        try:
            while self._do_group(self._jobs.get()):
                pass
        except BaseException as error:
            self._on_failure(error)

    def _do_group(self, job: WriteJob | None) -> bool:
        """Does this job and those that wait behind it, and one sync; False: that was the last."""
        store, jobs = self._store, self._jobs
        events: list[Event] = []
        sequence = 0
        start_size = store.log.size
        while job is not None:
            for write in job.writes:
                event = store.perform(write)
                if event is not None:
                    events.append(event)
            if job.work is not None:
                events.append(job.work())
            sequence = job.sequence or sequence
            if store.log.size - start_size > MAX_GROUP_SIZE:
                break
            try:
                job = jobs.get_nowait()
            except Empty:
                break
        store.sync()
        if sequence:
            events.append(Written(sequence))
        if events:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._tell, events)
        return job is not None

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            if event is not None:
                self._deliver(event)
