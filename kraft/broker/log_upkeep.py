"""The periodic work on a broker's logs, in one thread, by timers of the event loop.

One job runs at a time: flushes, checkpoints, removals and compaction wait for the disk, and two of
them on one directory would overtake each other. Retention changes logs, which is the event loop's
part: it runs on the loop, one log after the other, with pauses.
Source: Kafka's ``LogManager.startup``, ``ReplicaManager.startHighWatermarkCheckPointThread``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from kraft.broker.config import BrokerSettings
from kraft.broker.log.log_cleaner import LogCleaner
from kraft.broker.log.log_manager import LogManager
from kraft.server.driver import now_ms

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: How often rolled segments are flushed, and deleted files are removed, at least.
_FLUSH_MS, _REMOVAL_MS = 3000.0, 1000.0
#: How long retention works before the loop serves the network again.
_TURN_MS = 2.0


class LogUpkeep:
    """The upkeep of ``logs``.

    ``note_high_watermarks`` gives them those of the replication; ``retained`` is called after
    retention has removed records.
    """

    def __init__(
        self,
        logs: LogManager,
        settings: BrokerSettings,
        note_high_watermarks: Callable[[], None],
        retained: Callable[[], None],
    ) -> None:
        self._logs = logs
        self._settings = settings
        self._note_high_watermarks = note_high_watermarks
        self._retained = retained
        self._thread = ThreadPoolExecutor(1, "log upkeep")
        self._cleaner = LogCleaner(logs, memory=settings.log_cleaner_dedupe_buffer_size)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin the work, on the running loop."""
        settings = self._settings
        checkpoint_ms = settings.replica_high_watermark_checkpoint_interval_ms
        self._begin(lambda: checkpoint_ms, self._checkpoint)
        flush_ms = min(settings.log_flush_scheduler_interval_ms, _FLUSH_MS)
        self._begin(lambda: flush_ms, self._flush)
        self._begin(lambda: _REMOVAL_MS, self._remove)
        retention_ms = settings.log_retention_check_interval_ms
        self._begin(lambda: retention_ms, self._apply_retention)
        if settings.log_cleaner_enable:
            self._begin(lambda: self._settings.log_cleaner_backoff_ms, self._compact)

    def set_settings(self, settings: BrokerSettings) -> None:
        """Use other settings of compaction: the pause from the next one on, the memory after it."""
        self._settings = settings
        self._cleaner.memory = settings.log_cleaner_dedupe_buffer_size

    def _begin(self, pause_ms: Callable[[], float], work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work`` again and again, after a pause each time; a failure is logged."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(pause_ms() / 1000)
                try:
                    await work()
                except Exception:
                    logger.exception("a part of the upkeep of logs failed")

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    async def _checkpoint(self) -> None:
        self._note_high_watermarks()
        await self._in_thread(self._logs.write_checkpoints)

    async def _flush(self) -> None:
        await self._in_thread(lambda: self._logs.flush_due(int(now_ms())))
        await self._in_thread(self._logs.flush_rolled)

    async def _remove(self) -> None:
        await self._in_thread(lambda: self._logs.remove_due(int(now_ms())))

    async def _apply_retention(self) -> None:
        self._note_high_watermarks()
        began = now_ms()
        has_removed = False
        for removed in self._logs.apply_retention(int(began)):
            if removed:
                has_removed = True
                logger.info("retention removed %d segments", removed)
            if now_ms() > began + _TURN_MS:
                await asyncio.sleep(0.001)
                began = now_ms()
        if has_removed:
            self._retained()

    async def _compact(self) -> None:
        """Compact one log after the other; a step that changes a log runs on the loop."""
        self._note_high_watermarks()
        cleaner, has_more = self._cleaner, True
        while has_more:
            now = int(now_ms())
            if cleaner.changes_log:
                has_more = cleaner.step(now)
                await asyncio.sleep(0)
            else:
                has_more = await self._in_thread(partial(cleaner.step, now))

    async def close(self) -> None:
        """End the work; wait for the job in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        self._cleaner.abandon()
