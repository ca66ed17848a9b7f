"""The difference between two metadata states by meaning, and the record that caused each change.

Compares topics, orders differences and finds causes: a cause is the last record between the two
states that set the changed field. ``kraft.metadata.partition_diff`` compares partitions as columns,
``kraft.image.diff`` everything else. Called by library users, ``kraft snapshot diff`` and
``verify``.

Invariants: swapping the two states swaps ``before`` and ``after`` of every difference and changes
nothing else but the causes; records of an aborted or open metadata transaction cause nothing; a
difference does not change when the states change later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import overload

import numpy as np
from numpy.typing import NDArray

from kraft.errors import InvalidRequestError
from kraft.image.diff import Change
from kraft.image.diff import diff as diff_states
from kraft.metadata.arguments import instance_of
from kraft.metadata.change_causes import ChangeCause, ChangeCauses
from kraft.metadata.log_records import LogRecord, read_records
from kraft.metadata.partition_diff import (
    PARTITION_FIELDS,
    PartitionDifferences,
    topic_numbers_by_id,
)
from kraft.metadata.source import MetadataSource
from kraft.metadata.view import MetadataView
from kraft.records import Uuid

#: The kinds of difference in the order of their output.
KINDS = (
    *("feature", "zk_migration", "broker", "controller", "topic", "partition", "config"),
    *("client_quota", "producer_ids", "acl", "scram_credential", "delegation_token", "quorum"),
)

_PARTITION = KINDS.index("partition")
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Difference(Change):
    """A :class:`kraft.image.diff.Change` with the record that caused it, where the log has that
    record.

    The kinds of ``Change``, and two more: for a ``topic`` the key is its name, for a ``partition``
    it is ``(topic, partition)`` and the field one of :class:`PartitionInfo`.
    """

    cause: ChangeCause | None = None

    def __str__(self) -> str:
        # super() fails here: the decorator of a slotted dataclass replaces the class.
        text = Change.__str__(self)
        return text if self.cause is None else f"{text}  [{self.cause}]"


@dataclass(frozen=True, slots=True)
class TopicShape:
    """The value of a topic in a difference; the id distinguishes topics of one name."""

    topic_id: Uuid
    partition_count: int


class Differences(Sequence[Difference]):
    """Differences by kind, then by key. Those of partitions become objects when they are read.

    ``partitions`` holds them as columns. Behaves like a list: length, indexes, slices (lists),
    iteration, equality with lists.
    """

    def __init__(
        self, before: MetadataView, after: MetadataView, log: MetadataSource | None
    ) -> None:
        self.partitions = PartitionDifferences(before.cluster.table, after.cluster.table)
        changes = [
            Difference(each.kind, each.key, each.field, each.before, each.after)
            for each in diff_states(before.state, after.state)
        ]
        changes.extend(_diff_topics(before, after))
        changes.sort(key=lambda change: KINDS.index(change.kind))
        #: The number of differences before those of partitions.
        self._leading = sum(KINDS.index(each.kind) < _PARTITION for each in changes)
        self._others = changes
        self._of_partitions = int(self.partitions.counts().sum(dtype=np.int64))
        self._offsets = before.next_offset, after.next_offset
        self._log = log
        self._causes: ChangeCauses | None = None
        # The two states; None once one has changed, when `_settled` has every difference.
        self._sides: tuple[MetadataView, MetadataView] | None = before, after
        self._settled: list[Difference] = []
        for side in self._sides:
            side._keep_differences(self)

    def counts(self) -> dict[str, int]:
        """Return the number of differences by kind, in the order of ``KINDS``, without zeros."""
        found = Counter(each.kind for each in self._others)
        found["partition"] = self._of_partitions
        return {kind: found[kind] for kind in KINDS if found[kind]}

    def settle(self) -> None:
        """Create every difference now, because one of the states is about to change."""
        if self._sides is not None:
            self._settled = list(self)
            self._sides = None

    def __len__(self) -> int:
        return len(self._others) + self._of_partitions

    @overload
    def __getitem__(self, index: int) -> Difference: ...
    @overload
    def __getitem__(self, index: slice) -> list[Difference]: ...
    def __getitem__(self, index: int | slice) -> Difference | list[Difference]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return list(islice(self._since(start), max(stop - start, 0)))
            return [self[each] for each in range(start, stop, step)]
        # As for a list: a negative index counts from the end; IndexError outside.
        return next(self._since(range(len(self))[index]))

    def __iter__(self) -> Iterator[Difference]:
        return self._since(0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, Differences)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if len(self) <= _MOST_SHOWN:
            return repr(list(self))
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.counts().items())
        return f"Differences({kinds})"

    def _since(self, position: int) -> Iterator[Difference]:
        """Yield the differences from index ``position`` on."""
        for difference in self._unsettled(position):
            if self._sides is None:
                # A state changed since the last difference was yielded.
                break
            yield difference
            position += 1
        yield from islice(self._settled, position, None)

    def _unsettled(self, position: int) -> Iterator[Difference]:
        if self._sides is None:
            return
        before, after = self._sides
        for change in self._others[position : self._leading]:
            yield self._with_cause(change)
        skipped = max(position - self._leading, 0)
        row = int(np.searchsorted(self._starts, skipped, side="right")) - 1
        skipped_in_row = skipped - int(self._starts[row])
        while row < len(self.partitions):
            for change in islice(self._of_partition(before, after, row), skipped_in_row, None):
                yield self._with_cause(change)
            row, skipped_in_row = row + 1, 0
        for change in self._others[self._leading + max(skipped - self._of_partitions, 0) :]:
            yield self._with_cause(change)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """The number of partition differences before each row, and in total: i64 (rows + 1,)."""
        counts = self.partitions.counts()
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        return starts

    def _of_partition(
        self, before: MetadataView, after: MetadataView, row: int
    ) -> Iterator[Difference]:
        if (before.next_offset, after.next_offset) != self._offsets:
            raise InvalidRequestError(
                "a compared state was changed by other means than apply and revert: "
                "read the differences before the change"
            )
        old_row, new_row = self.partitions.before_rows[row], self.partitions.after_rows[row]
        old = before.partitions.row(old_row) if old_row >= 0 else None
        new = after.partitions.row(new_row) if new_row >= 0 else None
        some = old or new
        assert some is not None
        key = (some.topic, some.partition)
        if old is None or new is None:
            yield Difference("partition", key, "", old, new)
            return
        changed = int(self.partitions.fields[row])
        for bit, name in enumerate(PARTITION_FIELDS):
            if changed >> bit & 1:
                yield Difference("partition", key, name, getattr(old, name), getattr(new, name))

    def _with_cause(self, change: Difference) -> Difference:
        if self._log is None:
            return change
        if self._causes is None:
            assert self._sides is not None
            self._causes = _causes_between(self._log, *self._sides)
        return replace(change, cause=self._causes.of(change))


def diff(
    before: MetadataView, after: MetadataView, *, log: MetadataSource | None = None
) -> Differences:
    """Return every difference from ``before`` to ``after``, by kind, then by key.

    A topic that only one state has is one difference, not one for each partition; a topic that was
    deleted and created again under its name is two. Costs one pass over the columns; a partition's
    differences become objects when they are read (``Differences.partitions`` has the columns).

    Where ``before`` is the older state, each difference names the last record that set it: the
    records between the two states are read from ``log`` when the first difference is read. The
    default is the log that ``after`` or ``before`` was opened from, if it has these records and
    both states have the same cluster id. Raises :class:`InvalidArgumentError`.
    """
    instance_of(before, MetadataView, "before")
    instance_of(after, MetadataView, "after")
    if log is not None:
        instance_of(log, MetadataSource, "log")
    source = log if log is not None else _log_between(before, after)
    if source is not None and not _covers(source, before.next_offset, after.next_offset):
        source = None
    return Differences(before, after, source)


# -- topics


def _diff_topics(before: MetadataView, after: MetadataView) -> Iterator[Difference]:
    old, new = (topic_numbers_by_id(side.cluster.table) for side in (before, after))
    gone = [(before, number, True) for topic_id, number in old.items() if topic_id not in new]
    come = [(after, number, False) for topic_id, number in new.items() if topic_id not in old]
    found = []
    for side, number, is_old in gone + come:
        table = side.cluster.table
        name = table.topic_name(number)
        shape = TopicShape(Uuid(table.topic_id_of(number)), len(table.topic_rows(number)))
        found.append((name, not is_old, shape))
    for name, is_new, shape in sorted(found, key=lambda each: each[:2]):
        if is_new:
            yield Difference("topic", name, "", None, shape)
        else:
            yield Difference("topic", name, "", shape, None)


# -- causes


def _log_between(before: MetadataView, after: MetadataView) -> MetadataSource | None:
    """Return a log of the two states' cluster that has every record between them, or None."""
    if before.cluster_id != after.cluster_id:
        return None
    for side in (after, before):
        source = side.source
        # From the offset where a state was opened on, applied records may differ from the log's.
        is_of_log = not side.has_applied or after.next_offset <= side.opened_offset
        if (
            source is not None
            and is_of_log
            and _covers(source, before.next_offset, after.next_offset)
        ):
            return source
    return None


def _covers(source: MetadataSource, since: int, until: int) -> bool:
    replacing = source.replacing_snapshot
    if replacing is not None and until >= replacing.end_offset:
        return False
    return 0 <= source.log_start_offset <= since < until <= source.log_end_offset


def _causes_between(
    source: MetadataSource, before: MetadataView, after: MetadataView
) -> ChangeCauses:
    causes = ChangeCauses({bytes(topic.id): name for name, topic in before.topics.items()})
    for record in _records_between(source, before.next_offset, after.next_offset):
        causes.add(record)
    return causes


def _records_between(source: MetadataSource, since: int, until: int) -> Iterator[LogRecord]:
    for data, path, position in source.slices(since):
        for record in read_records(data, since=since, path=path, base_position=position):
            if record.offset >= until:
                return
            yield record
