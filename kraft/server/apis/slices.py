"""Translate the entries of large requests and responses in slices.

The listener serves heartbeats and the quorum's own requests between two slices. Called by the APIs
whose requests have many entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

#: Entries that are translated before the event loop runs: 1 to 2 ms.
ENTRIES_PER_SLICE = 1_000

T = TypeVar("T")
R = TypeVar("R")


async def in_slices(translate: Callable[[T], R], entries: Iterable[T]) -> list[R]:
    """Return ``translate`` of each entry; the event loop runs after each `ENTRIES_PER_SLICE`."""
    rest = iter(entries)
    made: list[R] = []
    while True:
        before = len(made)
        made.extend(map(translate, islice(rest, ENTRIES_PER_SLICE)))
        if len(made) < before + ENTRIES_PER_SLICE:
            return made
        await asyncio.sleep(0)
