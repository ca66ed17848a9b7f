"""Run coroutines that often need no wait, without a task for those."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any


def started(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
) -> asyncio.Task[None] | None:
    """Run ``work`` up to its first wait; return the task of the rest, None where it is done."""
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_continued(work, awaited))


async def _continued(work: Coroutine[Any, Any, None], awaited: Any) -> None:
    """Continue ``work``, which began outside of a task and waits for ``awaited``."""
    await _awaiting(work, awaited)


@types.coroutine
def _awaiting(work: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            value = yield awaited
        except BaseException as raised:
            step = partial(work.throw, raised)
        else:
            step = partial(work.send, value)
        try:
            awaited = step()
        except StopIteration:
            return
