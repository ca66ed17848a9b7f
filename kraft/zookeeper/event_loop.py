"""A thread that processes a queue of events, some of them delayed.

The controller of 2018 has one, that of 0.8 several. `Expire` replaces all waiting events, as
Kafka's ``clearAndPut``. An exception that is no KraftError is a fault of the program: the loop logs
it with its trace and makes the controller resign.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from typing import Generic, Protocol, TypeVar

from kraft.errors import KraftError
from kraft.zookeeper.events import Expire, ListenerEvent

_log = logging.getLogger(__name__)


E = TypeVar("E", bound=ListenerEvent)
E_contra = TypeVar("E_contra", contravariant=True)


class EventProcessor(Protocol[E_contra]):
    """A controller that processes events, such as a `controller.ZkController`."""

    def process(self, event: E_contra) -> None: ...
    def step_down(self) -> None: ...


def process_guarded(processor: EventProcessor[E], event: E) -> None:
    """Process an event; after a fault of the program log it and make the controller resign."""
    try:
        processor.process(event)
    except Exception:
        _log.exception("the controller failed to process %s", event)
        try:
            processor.step_down()
        except KraftError as error:
            _log.error("%s", error)


class ControllerEventLoop(Generic[E]):
    """Events in the order of their time, processed by one thread.

    `put` may be called by any thread, also before `start`.
    """

    def __init__(self, name: str = "zookeeper-controller") -> None:
        self._name = name
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, E]] = []
        self._sequence = 0
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def put(self, event: E, delay_ms: int = 0) -> None:
        """Process an event after a delay."""
        with self._changed:
            if isinstance(event, Expire):
                self._queue.clear()
            self._sequence += 1
            due_s = time.monotonic() + delay_ms / 1000
            heapq.heappush(self._queue, (due_s, self._sequence, event))
            self._changed.notify()

    def start(self, processor: EventProcessor[E]) -> None:
        """Start the thread."""
        self._thread = threading.Thread(
            target=self._run, args=(processor,), name=self._name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Drop all waiting events and end the thread after the present one."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _next(self) -> E | None:
        """Wait for the next event that is due; None when the loop stops."""
        with self._changed:
            while not self._is_stopping:
                now_s = time.monotonic()
                if self._queue and self._queue[0][0] <= now_s:
                    return heapq.heappop(self._queue)[2]
                self._changed.wait(self._queue[0][0] - now_s if self._queue else None)
        return None

    def _run(self, processor: EventProcessor[E]) -> None:
        while (event := self._next()) is not None:
            process_guarded(processor, event)
