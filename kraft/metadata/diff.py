"""The difference of two clusters' metadata by meaning, and the records that made it.

Owns the comparison of topics and partitions (over columns: a row is spread out only where
something in it differs) and the search for causes: the last record of the log, between the two
states, that set what is different. Everything else is compared by ``kraft.image.diff``. Fed by
two ``Metadata``; read by library users and ``kraft snapshot diff``.

Invariants: swapping the two states swaps ``before`` and ``after`` of every difference and changes
nothing else but the causes; records of an aborted or open metadata transaction are nobody's
cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from kraft._core.table import PartitionTable
from kraft.image.diff import Change
from kraft.image.diff import diff as diff_states
from kraft.metadata.arguments import instance_of
from kraft.metadata.causes import Cause, Causes
from kraft.metadata.facade import Metadata
from kraft.metadata.partitions import IRREGULAR, PartitionInfo
from kraft.metadata.reading import LogRecord, read_records
from kraft.metadata.source import MetadataSource
from kraft.records import Uuid

#: The kinds of difference in the order in which they are told.
KINDS = (
    *("feature", "zk_migration", "broker", "controller", "topic", "partition", "config"),
    *("client_quota", "producer_ids", "acl", "scram_credential", "delegation_token", "quorum"),
)

_PARTITION_FIELDS = tuple(
    each.name for each in fields(PartitionInfo) if each.name not in ("topic", "partition")
)
_SCALARS = ("leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
_PACKED = ("isr", "elr", "last_known_elr")


@dataclass(frozen=True, slots=True)
class Difference(Change):
    """A :class:`kraft.image.diff.Change`, and what caused it where the log has that.

    The kinds of ``Change``, and two more: of a ``topic`` the key is its name, of a ``partition``
    it is ``(topic, partition)`` and the field one of :class:`PartitionInfo`.
    """

    cause: Cause | None = None

    def __str__(self) -> str:
        # A slotted dataclass is made anew by its decorator, which leaves super() without its class.
        text = Change.__str__(self)
        return text if self.cause is None else f"{text}  [{self.cause}]"


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic as a difference shows it; its id tells it from another of the same name."""

    topic_id: Uuid
    partition_count: int


def diff(
    before: Metadata, after: Metadata, *, log: MetadataSource | None = None
) -> list[Difference]:
    """Every difference from ``before`` to ``after``, by kind, then by key.

    A topic that only one side has is one difference, not one a partition; a topic that was
    deleted and made anew under its name is two. Where ``before`` is the older state, the records
    between the two are looked up in ``log`` (by default the log that ``after`` or ``before`` was
    opened from, if it covers them and both are of one cluster), and each difference names the
    last record that set it. Costs one pass over the columns and what differs; with causes, one
    pass over those records.
    """
    instance_of(before, Metadata, "before")
    instance_of(after, Metadata, "after")
    if log is not None:
        instance_of(log, MetadataSource, "log")
    changes = [
        Difference(each.kind, each.key, each.field, each.before, each.after)
        for each in diff_states(before.state, after.state)
    ]
    changes.extend(_diff_topics(before, after))
    changes.extend(_diff_partitions(before, after))
    changes.sort(key=lambda change: KINDS.index(change.kind))
    source = log if log is not None else _log_between(before, after)
    if source is None or not changes:
        return changes
    return _with_causes(changes, source, before, after)


# -- topics and partitions


def _diff_topics(before: Metadata, after: Metadata) -> Iterator[Difference]:
    old, new = _topic_numbers(before.cluster.table), _topic_numbers(after.cluster.table)
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


def _diff_partitions(before: Metadata, after: Metadata) -> Iterator[Difference]:
    """The partitions of topics that both sides have."""
    old_rows, new_rows = _rows_of_common_topics(before.cluster.table, after.cluster.table)
    differ = (old_rows < 0) | (new_rows < 0)
    both = np.flatnonzero(~differ)
    differ[both] = _rows_that_differ(
        before.cluster.table, old_rows[both], after.cluster.table, new_rows[both]
    )
    for place in map(int, np.flatnonzero(differ)):
        old = before.partitions.row(int(old_rows[place])) if old_rows[place] >= 0 else None
        new = after.partitions.row(int(new_rows[place])) if new_rows[place] >= 0 else None
        some = old or new
        assert some is not None
        key = (some.topic, some.partition)
        if old is None or new is None:
            yield Difference("partition", key, "", old, new)
            continue
        for name in _PARTITION_FIELDS:
            was, now = getattr(old, name), getattr(new, name)
            if was != now:
                yield Difference("partition", key, name, was, now)


def _topic_numbers(table: PartitionTable) -> dict[bytes, int]:
    return {bytes(table.topic_id_of(number)): number for number in table.topic_numbers()}


def _rows_of_common_topics(
    before: PartitionTable, after: PartitionTable
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of every partition of common topics, by topic name; -1 where a side lacks it."""
    old, new = _topic_numbers(before), _topic_numbers(after)
    common = sorted(old.keys() & new.keys(), key=lambda each: before.topic_name(old[each]))
    pairs = [
        _paired(before, before.topic_rows(old[each]), after, after.topic_rows(new[each]))
        for each in common
    ]
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return (
        np.concatenate([olds for olds, _ in pairs]),
        np.concatenate([news for _, news in pairs]),
    )


def _paired(
    before: PartitionTable,
    old_rows: NDArray[np.int32],
    after: PartitionTable,
    new_rows: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One topic's rows side by side, by partition id."""
    old_ids = before.column("partition")[old_rows]
    new_ids = after.column("partition")[new_rows]
    if len(old_ids) == len(new_ids) and bool((old_ids == new_ids).all()):
        return old_rows.astype(np.int64), new_rows.astype(np.int64)
    ids = np.union1d(old_ids, new_ids)
    olds, news = np.full(len(ids), -1, np.int64), np.full(len(ids), -1, np.int64)
    olds[np.searchsorted(ids, old_ids)] = old_rows
    news[np.searchsorted(ids, new_ids)] = new_rows
    return olds, news


def _rows_that_differ(
    before: PartitionTable,
    old_rows: NDArray[np.int64],
    after: PartitionTable,
    new_rows: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Marks each pair of rows in which something may differ; whether it does, the rows tell."""
    differ = np.zeros(len(old_rows), np.bool_)
    for name in _SCALARS + _PACKED:
        differ |= before.column(name)[old_rows] != after.column(name)[new_rows]
    # The lists of an irregular row lie elsewhere.
    differ |= before.column("isr")[old_rows] == IRREGULAR
    differ |= after.column("isr")[new_rows] == IRREGULAR
    old, new = before.column("replicas"), after.column("replicas")
    common = min(old.shape[1], new.shape[1])
    differ |= (old[old_rows, :common] != new[new_rows, :common]).any(axis=1)
    differ |= (old[old_rows, common:] >= 0).any(axis=1)
    differ |= (new[new_rows, common:] >= 0).any(axis=1)
    numbers = _directory_numbers(before, after)
    old, new = before.column("directories"), after.column("directories")
    holds = before.column("replicas")[old_rows, :common] >= 0
    mapped = numbers[old[old_rows, :common]]
    differ |= ((mapped != new[new_rows, :common]) & holds).any(axis=1)
    return differ


def _directory_numbers(before: PartitionTable, after: PartitionTable) -> NDArray[np.int64]:
    """For each directory number in ``before`` the one in ``after``, or -1."""
    used = np.unique(before.column("directories"))
    numbers = np.full(int(used.max(initial=0)) + 1, -1, np.int64)
    for number in used.tolist():
        numbers[number] = after.directory_number(before.directory_id(number))
    return numbers


# -- causes


def _log_between(before: Metadata, after: Metadata) -> MetadataSource | None:
    """A log of the two states' own cluster that holds every record between them."""
    if before.cluster_id != after.cluster_id:
        return None
    for side in (after, before):
        source = side.source
        if source is not None and _covers(source, before.next_offset, after.next_offset):
            return source
    return None


def _covers(source: MetadataSource, since: int, until: int) -> bool:
    return 0 <= source.log_start_offset <= since < until <= source.log_end_offset


def _with_causes(
    changes: list[Difference], source: MetadataSource, before: Metadata, after: Metadata
) -> list[Difference]:
    if not _covers(source, before.next_offset, after.next_offset):
        return changes
    causes = Causes({bytes(topic.id): name for name, topic in before.topics.items()})
    for record in _records_between(source, before.next_offset, after.next_offset):
        causes.add(record)
    return [replace(change, cause=causes.of(change)) for change in changes]


def _records_between(source: MetadataSource, since: int, until: int) -> Iterator[LogRecord]:
    for data, path, position in source.slices(since):
        for record in read_records(data, since=since, path=path, base_position=position):
            if record.offset >= until:
                return
            yield record
