"""Measure the time that a request takes on the event loop, for request quotas."""

from __future__ import annotations

import time
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

Result = TypeVar("Result")


class RequestTimer:
    """The time of one request; waiting for other work does not count."""

    __slots__ = ("taken_ms",)

    def __init__(self) -> None:
        self.taken_ms = 0.0

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, Result]) -> Generator[Any, Any, Result]:
        """Return the result of ``work``, which runs as if it was awaited itself."""
        value: Any = None
        error: BaseException | None = None
        while True:
            begin_s = time.perf_counter()
            try:
                awaited = work.send(value) if error is None else work.throw(error)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                self.taken_ms += 1000 * (time.perf_counter() - begin_s)
            value = error = None
            try:
                value = yield awaited
            except BaseException as raised:
                error = raised
