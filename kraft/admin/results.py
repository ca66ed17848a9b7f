"""Results of requests that name several items: a value or an error for each.

Kafka's Admin returns a ``KafkaFuture`` for each item. `ItemResults` is the same after the response
has arrived: ``results[item].get()`` returns the value or raises the item's error, as
``KafkaFuture.get`` does, and ``results.all()`` does so for all items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from kraft.errors import NONE, UNKNOWN_SERVER_ERROR
from kraft.network.quorum_client import QuorumRefusedError

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ItemResult(Generic[V]):
    """The outcome for one item of a request.

    ``error`` is None where the controller accepted the item. ``is_repeated``: an earlier attempt of
    the request had no response, so that the quorum may have carried out the item before.
    """

    value: V | None = None
    error: QuorumRefusedError | None = None
    is_repeated: bool = False

    def get(self) -> V:
        """Return the value. Raises the item's QuorumRefusedError."""
        if self.error is not None:
            raise self.error
        return cast(V, self.value)


class ItemResults(Mapping[K, ItemResult[V]]):
    """The outcome of each item of a request, in the order of the request."""

    __slots__ = ("_results",)

    def __init__(self, results: Mapping[K, ItemResult[V]]) -> None:
        self._results = dict(results)

    def __getitem__(self, item: K) -> ItemResult[V]:
        return self._results[item]

    def __iter__(self) -> Iterator[K]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"ItemResults({self._results!r})"

    def all(self) -> dict[K, V]:
        """Return the value of each item. Raises the error of the first item that has one."""
        return {item: result.get() for item, result in self._results.items()}

    def errors(self) -> dict[K, QuorumRefusedError]:
        """Return the error of each item that has one."""
        return {
            item: result.error for item, result in self._results.items() if result.error is not None
        }


def in_order(
    wanted: Iterable[K], results: Mapping[K, ItemResult[V]], asked: Callable[[K], str]
) -> ItemResults[K, V]:
    """Return the outcomes in the order of the request.

    An item that the response lacks fails with UNKNOWN_SERVER_ERROR; ``asked`` names it.
    """
    found: dict[K, ItemResult[V]] = {}
    for item in wanted:
        result = results.get(item)
        if result is None:
            message = "the controller's response has no result for it"
            error = QuorumRefusedError(UNKNOWN_SERVER_ERROR, asked(item), message)
            result = ItemResult(None, error)
        found[item] = result
    return ItemResults(found)


def result_of(
    code: int,
    message: str | None,
    asked: str,
    value: V,
    is_repeated: bool = False,
) -> ItemResult[V]:
    """Return the outcome of an item with Kafka's error ``code``; ``asked`` names the item."""
    if code == NONE:
        return ItemResult(value, None, is_repeated)
    return ItemResult(None, QuorumRefusedError(code, asked, message), is_repeated)
