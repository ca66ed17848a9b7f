"""Reads ahead: answers to fetches that have not come yet, and what makes them wrong.

A connection may hold the answers to a consumer's next fetches (``kraft.broker.apis.fetches_ahead``)
and give them without asking again. Each change of a partition ends that: `BrokerFetches` calls
`changed` where it lets waiting fetches see a change. Called by `broker_fetches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraft.broker.replication.messages import PartitionId

Withdraw = Callable[[], None]


class ReadsAhead:
    """Who withdraws answers when a partition changes."""

    def __init__(self) -> None:
        self._watches: dict[PartitionId, set[Withdraw]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watches.values()))

    def watch(self, ids: Iterable[PartitionId], withdraw: Withdraw) -> None:
        """Have ``withdraw`` called once, at the next change of any of the partitions."""
        for id in ids:
            self._watches.setdefault(id, set()).add(withdraw)

    def forget(self, ids: Iterable[PartitionId], withdraw: Withdraw) -> None:
        """End a watch; unknown ones are ignored."""
        for id in ids:
            watches = self._watches.get(id)
            if watches is not None:
                watches.discard(withdraw)
                if not watches:
                    del self._watches[id]

    def changed(self, id: PartitionId) -> None:
        """Withdraw the answers with records or offsets of a partition."""
        for withdraw in self._watches.pop(id, ()):
            withdraw()

    def all_changed(self) -> None:
        """Withdraw all answers."""
        for id in list(self._watches):
            self.changed(id)
