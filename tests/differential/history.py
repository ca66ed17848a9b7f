"""State of partitions that Kafka's indexes keep by mistake, derived from the log of a sequence.

It takes every record in order. The known differences (`remaining`, `quorum_remaining`) read the
exact partition, broker and directory from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kraft import records
from kraft.records import Uuid, decode_value

PartitionKey = tuple[Uuid, int]


@dataclass
class _State:
    """The part of a partition's state that Kafka indexes."""

    replicas: list[int]
    isr: list[int]
    elr: list[int]
    directories: list[Uuid]


@dataclass
class History:
    """The log of one sequence, record by record."""

    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    #: Every name that a topic ever had.
    names: set[str] = field(default_factory=set)
    partitions: dict[PartitionKey, _State] = field(default_factory=dict)
    #: Members of an ELR that ClearElr emptied: Kafka's index still has them.
    cleared_elrs: set[tuple[PartitionKey, int]] = field(default_factory=set)
    #: Directories of a partition whose topic was removed while its ISR was empty: Kafka's index
    #: still has them.
    left_directories: set[tuple[Uuid, Uuid]] = field(default_factory=set)
    removed: set[Uuid] = field(default_factory=set)

    @classmethod
    def of(cls, values: Iterable[bytes]) -> History:
        history = cls()
        for value in values:
            history.add(decode_value(value))
        return history

    def add(self, record: Any) -> None:
        """Add the next record of the log."""
        if isinstance(record, records.Topic):
            self.topic_ids[record.name] = record.topic_id
            self.names.add(record.name)
        elif isinstance(record, records.Partition):
            self.partitions[record.topic_id, record.partition_id] = _State(
                list(record.replicas),
                list(record.isr),
                list(record.eligible_leader_replicas or ()),
                list(record.directories or ()),
            )
        elif isinstance(record, records.PartitionChange):
            self._change(self.partitions[record.topic_id, record.partition_id], record)
        elif isinstance(record, records.ClearElr):
            self._clear(record.topic_name)
        elif isinstance(record, records.RemoveTopic):
            self._remove(record.topic_id)

    @staticmethod
    def _change(state: _State, record: Any) -> None:
        for field_name, target in (
            ("replicas", "replicas"),
            ("isr", "isr"),
            ("eligible_leader_replicas", "elr"),
            ("directories", "directories"),
        ):
            value = getattr(record, field_name)
            if value is not None:
                setattr(state, target, list(value))

    def _clear(self, topic_name: str) -> None:
        for key, state in self.partitions.items():
            if not topic_name or self.topic_ids.get(topic_name) == key[0]:
                self.cleared_elrs |= {(key, broker) for broker in state.elr}
                state.elr = []

    def _remove(self, topic_id: Uuid) -> None:
        self.removed.add(topic_id)
        self.topic_ids = {name: id for name, id in self.topic_ids.items() if id != topic_id}
        for key in [key for key in self.partitions if key[0] == topic_id]:
            state = self.partitions.pop(key)
            if not state.isr:
                self.left_directories |= {(topic_id, each) for each in state.directories}

    def names_no_replica(self, key: PartitionKey, broker: int | None = None) -> bool:
        """Return whether the ISR or ELR of a partition contains a broker (with ``broker``: this
        one) that is not a replica.
        """
        state = self.partitions.get(key)
        if state is None:
            return False
        odd = {*state.isr, *state.elr} - {*state.replicas}
        return bool(odd) if broker is None else broker in odd
