"""The order of Java's HashMap, which decides between equals in Kafka's group coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraft.broker.groups.partitioning import java_hash

_SMALLEST_TABLE = 16


class JavaHashMap(dict[str, Any]):
    """A dict whose keys are in the order of a `java.util.HashMap` with the same history."""

    def __init__(self) -> None:
        super().__init__()
        self._table = _SMALLEST_TABLE

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        while len(self) > self._table * 3 // 4:
            self._table *= 2

    def _bucket(self, key: str) -> int:
        hashed = java_hash(key) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & (self._table - 1)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__(), key=self._bucket))

    def values(self) -> list[Any]:  # type: ignore[override]
        return [self[key] for key in self]

    def items(self) -> list[tuple[str, Any]]:  # type: ignore[override]
        return [(key, self[key]) for key in self]
