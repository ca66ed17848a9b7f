"""The targets of the fuzzer: one module each, by name.

A target is a module with

- ``run(data)``: processes any bytes like the package does. It returns, or raises a finding: any
  exception except the ``KraftError`` family, which is the expected answer to bad input;
- ``seeds()``: initial inputs, made of Kafka's bytes;
- ``PREFIX``: how many bytes at the front of an input choose the operations;
- ``HOLDS_BATCHES``: whether record batches follow, so that a mutator may repair lengths and CRCs;
- optionally ``mutated(data, chance)``: a mutation of an input that keeps its form, and
  ``close()``: called once after the last input.

They import no fuzzer, because the regression tests run them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol, cast

NAMES = (
    *("batch", "values", "table", "twin", "replay", "log", "checkpoint", "directory", "text"),
    *("rpc", "bodies", "dispatch", "produced", "era"),
)


class Target(Protocol):
    """The interface of each module here."""

    PREFIX: int
    HOLDS_BATCHES: bool

    def run(self, data: bytes) -> None: ...

    def seeds(self) -> Iterator[bytes]: ...


@contextmanager
def opened(name: str) -> Iterator[Target]:
    """Return the target of this name; close it afterwards."""
    target = target_named(name)
    try:
        yield target
    finally:
        getattr(target, "close", lambda: None)()


def target_named(name: str) -> Target:
    """Return the target of this name; the ValueError for another name lists all."""
    if name not in NAMES:
        raise ValueError(f"there is no target {name!r}; there are: {', '.join(NAMES)}")
    return cast(Target, import_module(f"{__name__}.{name}"))
