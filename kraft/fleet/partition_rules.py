"""What partitions of a fleet owe to each other: histories that obey the rules, ISRs; pure.

`check_rows` checks a state: the leader is in the ISR. `check_steps` checks the records of a change,
one by one: epochs rise by one. `isr_targets` returns the ISRs that leaders
would propose: a replica that runs belongs to the ISR, one that lags too long does not (Kafka's
``Partition.maybeExpandIsr``, ``maybeShrinkIsr``). `RowCount` keeps a count of rows up to date.
`table_digest` is the same for equal tables, whatever row, topic and directory numbers they use.

All functions work on columns of the rows that they are given: no Python object a partition.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.image_rows import IN_ISR, isrs_of, leaders_of, places_of, replicas_of
from kraft._core.table.images import TableImage
from kraft._core.table.table import PartitionTable
from kraft.image.publishing import ImageDelta
from kraft.metadata.partitions import IRREGULAR, Partitions

Rows = NDArray[np.int32]


class BrokenRule(NamedTuple):
    """A rule of partitions' histories, and the rows that broke it."""

    rule: str
    rows: Rows


class RuleBreach(NamedTuple):
    """A partition whose history breaks a rule."""

    rule: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.rule}"


def check_rows(image: TableImage, rows: Rows) -> list[BrokenRule]:
    """Return the rows whose state breaks a rule: the leader is in the ISR.

    An ISR may be empty: the ELR feature allows it (KIP-966).
    """
    is_live, leaders, _ = leaders_of(image, rows)
    brokers, _, marks = replicas_of(image, rows)
    in_isr = (marks & IN_ISR) != 0
    led = is_live & (leaders >= 0)
    leader_in_isr = ((brokers == leaders[:, None]) & in_isr).any(axis=1)
    outside = rows[led & ~leader_in_isr]
    return [BrokenRule("the leader is not in the ISR", outside)] if len(outside) else []


def check_steps(delta: ImageDelta, rows: Rows) -> list[BrokenRule]:
    """Return the rows whose epochs did not rise as Kafka's rules say, with any of their records.

    Each record that changes a partition raises its partition epoch by one, and its leader epoch by
    one if it names a leader, which may be the old one (``PartitionRegistration.merge``). A delta
    has several records of a partition: their net change may be right where one of them is wrong.
    A new partition begins with epoch 0. ``rows`` are all that the delta changed or added.

    Not for a full delta, which has no records.
    """
    table = delta.image.table
    _, leaders, leader_epochs = leaders_of(table, rows)
    partition_epochs, _ = isrs_of(table, rows)
    stepped, *found = delta.row_steps()
    # The states of each row one after the other: what each record found, and the last one.
    every = np.concatenate([stepped, rows])
    order = np.argsort(every, kind="stable")
    every = every[order]
    leader, leader_epoch, partition_epoch = (
        np.concatenate(columns)[order]
        for columns in zip(found, (leaders, leader_epochs, partition_epochs), strict=True)
    )
    is_step = every[1:] == every[:-1]
    stepped = every[1:]
    rise = np.diff(leader_epoch)
    fell, jumped = is_step & (rise < 0), is_step & (rise > 1)
    same = is_step & (np.diff(leader) != 0) & (rise == 0)
    uneven = is_step & (np.diff(partition_epoch) != 1)
    is_first = np.concatenate([[True], ~is_step])[: len(every)]
    assert delta.before is not None
    is_new = is_first & (every >= delta.before.table.row_count)
    late = is_new & ((leader_epoch != 0) | (partition_epoch != 0))
    broken = [
        BrokenRule("the leader epoch fell", np.unique(stepped[fell])),
        BrokenRule("the leader epoch rose by more than one", np.unique(stepped[jumped])),
        BrokenRule("the leader changed, and its epoch did not rise", np.unique(stepped[same])),
        BrokenRule("the partition epoch did not rise by one", np.unique(stepped[uneven])),
        BrokenRule("a new partition does not begin with epoch 0", every[late]),
    ]
    return [each for each in broken if len(each.rows)]


def breaches_of(image: TableImage, found: list[BrokenRule], limit: int) -> list[RuleBreach]:
    """Return the first ``limit`` partitions that broke a rule, by their names."""
    breaches: list[RuleBreach] = []
    for rule, rows in found:
        rows = rows[: max(0, limit - len(breaches))]
        breaches += [
            RuleBreach(rule, image.topic_name(topic), partition)
            for topic, partition in zip(
                *map(np.ndarray.tolist, places_of(image, rows)), strict=True
            )
        ]
    return breaches


class IsrTargets(NamedTuple):
    """ISRs that the leaders of rows would propose; arrays of as many rows.

    ``isrs`` is ``(rows, widest)``, with -1 behind the last member.
    """

    rows: Rows
    leaders: NDArray[np.int32]
    leader_epochs: NDArray[np.int32]
    partition_epochs: NDArray[np.int32]
    isrs: NDArray[np.int32]

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> IsrTargets:
        """Return the chosen ones, by a mask or by their places."""
        return IsrTargets(*(column[chosen] for column in self))


def isr_targets(
    image: TableImage,
    rows: Rows,
    *,
    led_by: NDArray[np.int32],
    joining: NDArray[np.int32],
    leaving: NDArray[np.int32],
) -> IsrTargets:
    """Return the changed ISRs of those ``rows`` that one of ``led_by`` leads.

    ``joining`` are the brokers that keep up: replicas among them enter the ISR, at its end.
    ``leaving`` are the brokers that lag too long: they leave it, except for the leader.
    """
    is_live, leaders, leader_epochs = leaders_of(image, rows)
    mine = is_live & np.isin(leaders, led_by)
    rows, leaders, leader_epochs = rows[mine], leaders[mine], leader_epochs[mine]
    brokers, _, marks = replicas_of(image, rows)
    in_isr = (marks & IN_ISR) != 0
    enters = (brokers >= 0) & ~in_isr & np.isin(brokers, joining)
    leaves = in_isr & np.isin(brokers, leaving) & (brokers != leaders[:, None])
    changed = np.flatnonzero((enters | leaves).any(axis=1))
    rows, leaders, leader_epochs = rows[changed], leaders[changed], leader_epochs[changed]
    partition_epochs, isrs = isrs_of(image, rows)
    is_kept = ~np.isin(isrs, leaving) | (isrs == leaders[:, None])
    kept = np.where(is_kept, isrs, np.int32(-1))
    entered = np.where(enters[changed], brokers[changed], np.int32(-1))
    members = np.concatenate([kept, entered], axis=1)
    # A stable sort by "is unused" keeps the order of the members.
    order = np.argsort(members < 0, axis=1, kind="stable")
    members = np.take_along_axis(members, order, axis=1)
    return IsrTargets(rows, leaders, leader_epochs, partition_epochs, members)


def changed_rows(delta: ImageDelta) -> Rows:
    """Return the rows that a delta changed or added, ascending."""
    added = [np.arange(first, end, dtype=np.int32) for first, end in delta.rows_added]
    return np.concatenate([np.asarray(delta.rows_changed, np.int32), *added])


class RowCount:
    """The number of partitions for which a condition holds, kept up to date by deltas.

    ``holds`` returns whether it holds for each of the given rows of a table. `note` costs the rows
    of a delta, and not those of the table: a scan for each delta would cost more than all else at
    a million partitions.
    """

    def __init__(
        self, holds: Callable[[PartitionTable, Rows], NDArray[np.bool_]], table: PartitionTable
    ) -> None:
        self._holds = holds
        self._count(table)

    def _count(self, table: PartitionTable) -> None:
        self._marks = self._holds(table, np.arange(table.row_count, dtype=np.int32))
        self.count = int(np.count_nonzero(self._marks))

    def note(self, delta: ImageDelta, rows: Rows, table: PartitionTable) -> None:
        """Count again what a delta has changed: ``rows``, and those of its removed topics."""
        if delta.before is None or delta.is_renumbered:
            self._count(table)
            return
        before = delta.before.table
        gone = [before.topic_rows(topic) for topic in delta.topics_removed]
        rows = np.concatenate([rows, *gone])
        missing = table.row_count - len(self._marks)
        if missing > 0:
            # Twice as many at once: each delta would copy all marks otherwise.
            spare = max(missing, len(self._marks))
            self._marks = np.concatenate([self._marks, np.zeros(spare, np.bool_)])
        marks = self._holds(table, rows)
        self.count += int(np.count_nonzero(marks)) - int(np.count_nonzero(self._marks[rows]))
        self._marks[rows] = marks


def are_led_by(
    brokers: NDArray[np.int32],
) -> Callable[[PartitionTable, Rows], NDArray[np.bool_]]:
    """Return the condition that one of these brokers leads a live partition."""

    def holds(table: PartitionTable, rows: Rows) -> NDArray[np.bool_]:
        is_live = table.column("topic")[rows] >= 0
        led: NDArray[np.bool_] = is_live & np.isin(table.column("leader")[rows], brokers)
        return led

    return holds


def are_out_of_sync(table: PartitionTable, rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are live, and have a replica outside of the ISR or are reassigned."""
    is_live = table.column("topic")[rows] >= 0
    packed = table.column("isr")[rows]
    members = np.zeros(len(packed), np.int8)
    for place in range(table.stride):
        members += (packed >> np.uint32(4 * place) & np.uint32(15)) > 0
    replicas = (table.column("replicas")[rows] >= 0).sum(axis=1)
    waiting: NDArray[np.bool_] = is_live & ((members < replicas) | (packed == IRREGULAR))
    return waiting


def table_digest(table: PartitionTable) -> str:
    """Return a digest of every topic and partition, 32 hex digits."""
    digest = blake2b(digest_size=16)
    partitions = Partitions(table)
    topics = sorted((table.topic_id_of(each), each) for each in table.topic_numbers())
    if not topics:
        return digest.hexdigest()
    for id, number in topics:
        digest.update(id + table.topic_name(number).encode() + b"\0")
    rows = np.concatenate([table.topic_rows(number) for _, number in topics])
    for name in (
        *("partition", "leader", "leader_epoch", "partition_epoch", "leader_recovery_state"),
    ):
        digest.update(np.ascontiguousarray(table.column(name)[rows]).tobytes())
    lists = [partitions.replica_matrix()[rows]]
    lists += [partitions.members(name)[rows] for name in ("isr", "elr", "last_known_elr")]
    for columns in lists:
        digest.update(_trimmed(columns))
    digest.update(_directories(table, rows))
    return digest.hexdigest()


def _directories(table: PartitionTable, rows: Rows) -> bytes:
    """Return the begin of the directory ids of regular rows; other rows are being reassigned."""
    regular = table.column("isr")[rows] != IRREGULAR
    numbers = table.column("directories")[rows[regular]]
    known, places = np.unique(
        numbers[table.column("replicas")[rows[regular]] >= 0], return_inverse=True
    )
    ids = [table.directory_id(number)[:8] for number in known.tolist()]
    codes: NDArray[np.uint64] = np.frombuffer(b"".join(ids), np.uint64)
    named: NDArray[np.uint64] = codes[places]
    return named.tobytes()


def _trimmed(lists: NDArray[np.int32]) -> bytes:
    """Return lists that are padded with -1 as bytes that do not depend on the padding."""
    lengths: NDArray[np.int32] = (lists >= 0).sum(axis=1).astype(np.int32)
    members: NDArray[np.int32] = lists[lists >= 0]
    return lengths.tobytes() + members.tobytes()
