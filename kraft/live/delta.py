"""``LiveDelta``: what changed between two states of a ``LiveMetadata``.

Finds the differences at the cost of what changed: from the deltas of ``kraft.image.publishing``,
and from the record batches in between, which name the causes. Where a snapshot replaced the state,
it compares both states with ``kraft.metadata.diff``, without causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from kraft._core.table.table import PartitionTable
from kraft.errors import InvalidRequestError
from kraft.image.diff import changes_between
from kraft.image.publishing import ImageDelta
from kraft.metadata.change_causes import ChangeCauses
from kraft.metadata.diff import KINDS, Difference, TopicShape
from kraft.metadata.log_records import LogRecord, read_records
from kraft.metadata.partition_diff import PARTITION_FIELDS
from kraft.metadata.partitions import PartitionInfo, info_of
from kraft.records import Uuid


class LiveDelta:
    """The changes from ``from_offset`` to ``offset``.

    ``image_delta`` has them as rows, topics and keys, for code that keeps state of its own. It
    ``is_full`` where a snapshot or a compaction gave all rows new numbers. A delta keeps the states
    on both sides in memory: drop it after use. If the table is compacted later, which drops the
    rows of removed topics, an older delta has its differences and records only.
    """

    def __init__(
        self,
        image_delta: ImageDelta,
        table: PartitionTable,
        from_offset: int,
        batches: Sequence[memoryview],
        full_differences: Callable[[], Sequence[Difference]] | None = None,
    ) -> None:
        """``full_differences`` returns the differences of a full delta."""
        self._image_delta: ImageDelta | None = image_delta
        self.is_full = image_delta.is_full
        self.from_offset = from_offset
        self.offset = image_delta.image.offset
        self._table = table
        self._batches = batches
        self._full_differences = full_differences

    @property
    def image_delta(self) -> ImageDelta:
        """The changes as rows, topics and keys.

        Raises InvalidRequestError after a compaction.
        """
        if self._image_delta is None:
            raise InvalidRequestError(
                f"the rows of the delta to offset {self.offset} have other numbers by now: read "
                "image_delta before the next poll"
            )
        return self._image_delta

    @cached_property
    def is_empty(self) -> bool:
        """True where no record changed the state, such as Kafka's NoOpRecord twice a second."""
        delta = self.image_delta
        return not (
            delta.is_full
            or len(delta.rows_changed)
            or delta.rows_added
            or delta.topics_added
            or delta.topics_removed
            or delta.changes
        )

    def settle(self) -> None:
        """Keep the differences only, because rows are about to change that they are read from."""
        if self._image_delta is not None:
            differences, _ = self.differences(), self.is_empty
            self._full_differences = lambda: differences
            self._image_delta = None

    def records(self) -> Iterator[LogRecord]:
        """Yield the records of this delta, control records included.

        After a snapshot replaced the state these are only the records behind the snapshot.
        """
        for batches in self._batches:
            yield from read_records(batches, since=self.from_offset)

    def differences(self) -> list[Difference]:
        """Return every difference, by kind, then by key, each with the record that caused it.

        Costs what changed. After a snapshot replaced the state it costs a comparison of both
        states, and no difference has a cause.
        """
        if self._full_differences is not None:
            return list(self._full_differences())
        before = self.image_delta.before
        assert before is not None
        found = [
            Difference(each.kind, each.key, each.field, each.before, each.after)
            for each in changes_between(before.state, self.image_delta.image.state)
        ]
        found += sorted(self._topics(), key=lambda each: (str(each.key), each.before is None))
        found += self._partitions()
        found.sort(key=lambda each: KINDS.index(each.kind))
        causes = self._causes()
        return [replace(each, cause=causes.of(each)) for each in found]

    def _topics(self) -> Iterator[Difference]:
        delta = self.image_delta
        assert delta.before is not None
        for image, numbers in (
            (delta.before.table, delta.topics_removed),
            (delta.image.table, delta.topics_added),
        ):
            for number in numbers:
                shape = TopicShape(Uuid(image.topic_id_of(number)), len(image.topic_rows(number)))
                name = image.topic_name(number)
                if image is delta.image.table:
                    yield Difference("topic", name, "", None, shape)
                else:
                    yield Difference("topic", name, "", shape, None)

    def _partitions(self) -> list[Difference]:
        """Return the differences of the partitions of topics that both states have, in order."""
        delta = self.image_delta
        assert delta.before is not None
        found: dict[tuple[str, int], list[Difference]] = {}
        for row in map(int, delta.rows_changed):
            _, name, partition = self._partition(row)
            old = info_of(delta.before.table, name, partition, delta.before.table.state_of(row))
            new = self._new_info(row, name, partition)
            for field in PARTITION_FIELDS:
                was, now = getattr(old, field), getattr(new, field)
                if was != now:
                    key = (name, partition)
                    found.setdefault(key, []).append(Difference("partition", key, field, was, now))
        new_topics = set(delta.topics_added)
        for first, end in delta.rows_added:
            for row in range(first, end):
                topic, name, partition = self._partition(row)
                if topic not in new_topics:
                    key = (name, partition)
                    info = self._new_info(row, name, partition)
                    found[key] = [Difference("partition", key, "", None, info)]
        return [each for key in sorted(found) for each in found[key]]

    def _new_info(self, row: int, name: str, partition: int) -> PartitionInfo:
        image = self.image_delta.image.table
        return info_of(image, name, partition, image.state_of(row))

    def _partition(self, row: int) -> tuple[int, str, int]:
        """Return number and name of the topic of a row, and its partition id."""
        number = int(self._table.column("topic")[row])
        if number < 0:
            # The topic was removed after this delta; its rows keep their values.
            number = -1 - number
        name = self.image_delta.image.table.topic_name(number)
        return number, name, int(self._table.column("partition")[row])

    def _causes(self) -> ChangeCauses:
        delta = self.image_delta
        assert delta.before is not None
        rows = [int(row) for row in delta.rows_changed]
        rows += [row for first, end in delta.rows_added for row in range(first, end)]
        images = [(delta.before.table, number) for number in delta.topics_removed]
        images += [
            (delta.image.table, number) for number in {self._partition(row)[0] for row in rows}
        ]
        names = {
            bytes(image.topic_id_of(number)): image.topic_name(number) for image, number in images
        }
        causes = ChangeCauses(names)
        for record in self.records():
            causes.add(record)
        return causes

    def __repr__(self) -> str:
        return f"LiveDelta(from {self.from_offset} to {self.offset})"
