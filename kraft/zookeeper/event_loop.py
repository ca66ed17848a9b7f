"""The thread that runs a `controller.ZkController`: a queue of events, some of them delayed.

`Expire` replaces all waiting events, as Kafka's ``clearAndPut``. An exception that is no KraftError
is a fault of the program: the loop logs it with its trace and makes the controller resign.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from typing import Protocol

from kraft.errors import KraftError
from kraft.zookeeper.events import ControllerEvent, Expire

_log = logging.getLogger(__name__)


class EventProcessor(Protocol):
    """What the loop runs, such as a `controller.ZkController`."""

    def process(self, event: ControllerEvent) -> None: ...
    def step_down(self) -> None: ...


class ControllerEventLoop:
    """Events in the order of their time, processed by one thread.

    `put` may be called by any thread, also before `start`.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, ControllerEvent]] = []
        self._sequence = 0
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def put(self, event: ControllerEvent, delay_ms: int = 0) -> None:
        """Process an event after a delay."""
        with self._changed:
            if isinstance(event, Expire):
                self._queue.clear()
            self._sequence += 1
            due_s = time.monotonic() + delay_ms / 1000
            heapq.heappush(self._queue, (due_s, self._sequence, event))
            self._changed.notify()

    def start(self, processor: EventProcessor) -> None:
        """Start the thread."""
        self._thread = threading.Thread(
            target=self._run, args=(processor,), name="zookeeper-controller", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Drop all waiting events and end the thread after the present one."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _next(self) -> ControllerEvent | None:
        """Wait for the next event that is due; None when the loop stops."""
        with self._changed:
            while not self._is_stopping:
                now_s = time.monotonic()
                if self._queue and self._queue[0][0] <= now_s:
                    return heapq.heappop(self._queue)[2]
                self._changed.wait(self._queue[0][0] - now_s if self._queue else None)
        return None

    def _run(self, processor: EventProcessor) -> None:
        while (event := self._next()) is not None:
            try:
                processor.process(event)
            except Exception:
                _log.exception("the controller failed to process %s", event)
                try:
                    processor.step_down()
                except KraftError as error:
                    _log.error("%s", error)
