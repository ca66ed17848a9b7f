"""Apply metadata to the replica manager in steps, so that the event loop serves requests meanwhile.

`MetadataSteps` takes the published deltas in order. A small delta without new partitions is applied
within the call. Others are applied in slices of `TURN_MS`, and the logs of new partitions are
created in a thread before: each takes some writes to the device.

Invariants: a delta begins after the one before it has ended; before `begin` nothing is applied, and
the first delta is full; so is the next one after a failure. Used by ``replica_driver``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.replication.local_changes import LocalPartition
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.image.publishing import Image, ImageDelta

#: How long one slice lasts.
TURN_MS = 3.0

logger = logging.getLogger(__name__)


class MetadataSteps:
    """The deltas that wait for the replica manager.

    ``applied`` is called after each slice.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        store: PartitionLogStore,
        applied: Callable[[], None],
    ) -> None:
        self._manager = manager
        self._store = store
        self._applied = applied
        self._loop = asyncio.get_running_loop()
        self._is_begun = False
        self._is_closed = False
        #: The metadata from before `begin`.
        self._early: Image | None = None
        #: The end (exclusive) of the metadata that are applied; before `begin`, of those given.
        self.applied_offset = 0
        self._deltas: deque[tuple[ImageDelta, Image]] = deque()
        self._steps: Iterator[Sequence[LocalPartition]] | None = None
        #: Work in a thread, which the next step waits for.
        self._work: asyncio.Future[None] | None = None
        self._needs_full = False
        self.error_count = 0
        self._has_looked_for_strays = False
        self._settled: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything is applied."""
        return self._steps is None and not self._deltas and self._work is None

    def begin(self) -> None:
        """Apply the metadata from now on."""
        self._is_begun = True
        if self._early is not None:
            early, self._early = self._early, None
            self.add(ImageDelta(None, early), early)

    def add(self, delta: ImageDelta, image: Image) -> None:
        """Apply a delta, after those that wait."""
        if self._is_closed:
            return
        if not self._is_begun:
            self._early = image
            self.applied_offset = image.offset
            return
        if self._needs_full:
            self._needs_full = False
            delta = ImageDelta(None, image)
        was_idle = self.is_idle
        self._deltas.append((delta, image))
        if was_idle:
            self._go_on()

    def _go_on(self) -> None:
        """Apply one slice."""
        if self._is_closed:
            return
        self._manager.note_time(self._loop.time() * 1000)
        try:
            self._apply(time.perf_counter() + TURN_MS / 1000)
        except Exception:
            logger.exception("metadata were not applied: all of them are applied with the next")
            self.error_count += 1
            self._needs_full = True
            self._steps = None
            # As in Kafka, a failure does not hold back the brokers that wait for this one.
            self.applied_offset = self._deltas[-1][1].offset
            self._deltas.clear()
        self._applied()
        if self.is_idle:
            self._end_waiting()

    def _apply(self, end_s: float) -> None:
        """Apply steps until a time of ``perf_counter``, or until a thread has work for the next."""
        while self._steps is not None or self._deltas:
            if self._steps is None:
                self._steps = self._manager.delta_steps(*self._deltas[0])
            new = next(self._steps, None)
            if new is None:
                self._steps = None
                _, image = self._deltas.popleft()
                self.applied_offset = image.offset
                if not self._has_looked_for_strays:
                    self._has_looked_for_strays = True
                    strays = self._store.strays(self._manager.partitions.values())
                    if strays:
                        self._in_thread(partial(self._store.set_aside, strays))
                        return
            elif new:
                self._in_thread(partial(self._store.create_missing, new))
                return
            elif time.perf_counter() >= end_s:
                self._loop.call_soon(self._go_on)
                return

    def _in_thread(self, work: Callable[[], None]) -> None:
        self._work = self._loop.run_in_executor(None, work)
        self._work.add_done_callback(self._worked)

    def _worked(self, work: asyncio.Future[None]) -> None:
        self._work = None
        if not work.cancelled() and (error := work.exception()) is not None:
            logger.error("work on the logs of new partitions failed", exc_info=error)
        if self._is_closed:
            self._end_waiting()
        else:
            self._go_on()

    async def settled(self) -> None:
        """Wait until everything is applied; after `close`, for the work in a thread."""
        while self._work is not None or not (self._is_closed or self.is_idle):
            if self._settled is None:
                self._settled = self._loop.create_future()
            await asyncio.shield(self._settled)

    def _end_waiting(self) -> None:
        settled, self._settled = self._settled, None
        if settled is not None and not settled.done():
            settled.set_result(None)

    def close(self) -> None:
        """Apply nothing more."""
        self._is_closed = True
        if self._work is None:
            self._end_waiting()
