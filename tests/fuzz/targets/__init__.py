"""The targets of the fuzzer: one module each, by name.

A target is a module with

- ``run(data)``: does with any bytes what the package would do with them. It returns, or raises
  what is a finding: everything but the ``KraftError`` family, which it takes as the answer to bad
  input;
- ``seeds()``: inputs to begin with, made of what Kafka wrote;
- ``PREFIX``: how many bytes of an input choose what is done, before the bytes that are read;
- ``HOLDS_BATCHES``: whether record batches follow, so that a mutator may mend lengths and CRCs.

They import no fuzzer: the regression tests run them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol, cast

NAMES = (
    *("batch", "values", "table", "twin", "replay", "log", "checkpoint", "directory", "text"),
    "rpc",
)


class Target(Protocol):
    """What each module here is."""

    PREFIX: int
    HOLDS_BATCHES: bool

    def run(self, data: bytes) -> None: ...

    def seeds(self) -> Iterator[bytes]: ...


def target_named(name: str) -> Target:
    """The target of this name; ValueError names those that there are."""
    if name not in NAMES:
        raise ValueError(f"there is no target {name!r}; there are: {', '.join(NAMES)}")
    return cast(Target, import_module(f"{__name__}.{name}"))
