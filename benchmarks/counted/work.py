"""A counted work, and the table of all of them.

A maker gives a `Work`: it reads the input once, and says how to come to a fresh state, what is
counted, and what must be true afterwards. Nothing in a work may depend on time, on an address or on
chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PARTITIONS = 50_000


@dataclass(frozen=True)
class Work:
    """`run` is counted, on what `prepare` gives; `check` sees both that and the result."""

    unit: str
    count: int
    prepare: Callable[[], Any]
    run: Callable[[Any], Any]
    check: Callable[[Any, Any], None]


#: Makers by the name of their work.
WORKS: dict[str, Callable[[], Work]] = {}


def counted(maker: Callable[[], Work]) -> Callable[[], Work]:
    """The maker's name is the work's."""
    assert maker.__name__ not in WORKS, maker.__name__
    WORKS[maker.__name__] = maker
    return maker
