"""A counted work, and the table of all works.

A maker returns a `Work`: it reads the input once, and defines how to create a fresh state, what is
counted, and the check afterwards. Nothing in a work may depend on time, on an address or on chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PARTITIONS = 50_000


@dataclass(frozen=True)
class Work:
    """`run` is counted, on `prepare`'s result; `check` receives that and the result of `run`."""

    unit: str
    count: int
    prepare: Callable[[], Any]
    run: Callable[[Any], Any]
    check: Callable[[Any, Any], None]


#: Makers by the name of their work.
WORKS: dict[str, Callable[[], Work]] = {}


def counted(maker: Callable[[], Work]) -> Callable[[], Work]:
    """Register a maker; its name is the work's."""
    assert maker.__name__ not in WORKS, maker.__name__
    WORKS[maker.__name__] = maker
    return maker
