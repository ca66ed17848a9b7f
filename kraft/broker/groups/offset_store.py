"""The committed offsets of groups, as the values of their records.

An offset is kept as the bytes of its record's value, about 80 bytes, and decoded when somebody asks
for it: a million of them load without a Python object for each field. Changes are visible at once
to decisions, and to those who fetch offsets when the high watermark has passed their records.
Source: ``OffsetMetadataManager.Offsets``, a ``TimelineHashMap`` there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

_NONE: Mapping[str, dict[int, bytes]] = {}


class OffsetStore:
    """Group -> topic -> partition -> value of the record, with the changes since the last commit.

    ``topics`` of a group are as they are now; ``committed`` ones are below the high watermark.
    """

    __slots__ = ("_changes", "_groups", "_previous")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, bytes]]] = {}
        #: Group -> (topic, partition) -> its committed value and those after it but the present.
        self._previous: dict[str, dict[tuple[str, int], deque[bytes | None]]] = {}
        self._changes: deque[tuple[int, str, tuple[str, int]]] = deque()

    def __len__(self) -> int:
        return sum(
            map(len, (parts for topics in self._groups.values() for parts in topics.values()))
        )

    def groups(self) -> Iterator[tuple[str, dict[str, dict[int, bytes]]]]:
        """Return all groups with their topics as they are now."""
        return iter(self._groups.items())

    def topics(self, group: str) -> Mapping[str, dict[int, bytes]]:
        """Return the offsets of a group by topic and partition, as they are now."""
        return self._groups.get(group, _NONE)

    def partitions(self, group: str, topic: str) -> dict[int, bytes]:
        """Return the offsets of a topic, added if the group has none; for loading."""
        return self._groups.setdefault(group, {}).setdefault(topic, {})

    def group_ids(self) -> list[str]:
        """Return the ids of all groups as they are now."""
        return list(self._groups)

    def drop_empty(self, group: str) -> None:
        """Remove topics without offsets, which loading leaves, and a group without topics."""
        topics = self._groups[group]
        for topic in [name for name, partitions in topics.items() if not partitions]:
            del topics[topic]
        if not topics:
            del self._groups[group]

    def load(self, group: str, topic: str, partition: int, value: bytes | None) -> None:
        """Set or remove an offset by a record that is committed."""
        if value is not None:
            self.partitions(group, topic)[partition] = value
            return
        topics = self._groups.get(group)
        partitions = topics.get(topic) if topics else None
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group]

    def set(
        self, group: str, topic: str, partition: int, value: bytes | None, last_offset: int
    ) -> None:
        """Set or remove an offset by a record of the batch that ends at ``last_offset``."""
        key = (topic, partition)
        before = self.topics(group).get(topic, {}).get(partition)
        self._previous.setdefault(group, {}).setdefault(key, deque()).append(before)
        self._changes.append((last_offset, group, key))
        self.load(group, topic, partition, value)

    def committed(self, group: str, topic: str, partition: int) -> bytes | None:
        """Return the committed value of an offset, or None."""
        previous = self._previous.get(group)
        if previous is not None and (values := previous.get((topic, partition))):
            return values[0]
        partitions = self.topics(group).get(topic)
        return None if partitions is None else partitions.get(partition)

    def committed_topics(self, group: str) -> Mapping[str, dict[int, bytes]]:
        """Return the committed offsets of a group by topic and partition."""
        previous = self._previous.get(group)
        if previous is None:
            return self.topics(group)
        topics = {topic: dict(partitions) for topic, partitions in self.topics(group).items()}
        for (topic, partition), values in previous.items():
            if values[0] is not None:
                topics.setdefault(topic, {})[partition] = values[0]
            elif topic in topics:
                topics[topic].pop(partition, None)
        return {topic: partitions for topic, partitions in topics.items() if partitions}

    def commit(self, high_watermark: int) -> None:
        """Forget the past of changes below the high watermark."""
        while self._changes and self._changes[0][0] < high_watermark:
            _, group, key = self._changes.popleft()
            previous = self._previous[group]
            values = previous[key]
            values.popleft()
            if not values:
                del previous[key]
                if not previous:
                    del self._previous[group]
