"""What partitions of a fleet owe to each other: histories that obey the rules, ISRs; pure.

`check_rows` compares the rows of a change before and after it: the leader is in the ISR, epochs
rise. `isr_targets` returns the ISRs that leaders would propose: a replica that runs belongs to the
ISR, one that lags too long does not (Kafka's ``Partition.maybeExpandIsr``, ``maybeShrinkIsr``).
`table_digest` is the same for equal tables, whatever row, topic and directory numbers they use.

All functions work on columns: no Python object a partition, except for ISRs that change.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.image_rows import IN_ISR, leaders_of, replicas_of
from kraft._core.table.images import TableImage
from kraft._core.table.table import PartitionTable
from kraft.metadata.partitions import IRREGULAR, Partitions

Rows = NDArray[np.int32]


class RuleBreach(NamedTuple):
    """A partition whose history breaks a rule."""

    rule: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.rule}"


def check_rows(before: TableImage | None, after: TableImage, rows: Rows) -> list[RuleBreach]:
    """Return the broken rules of rows that changed from ``before`` to ``after``.

    Without ``before``, and for rows that it lacks, only the state itself is checked. An ISR may be
    empty: the ELR feature allows it (KIP-966).
    """
    breaches: list[RuleBreach] = []
    is_live, leaders, leader_epochs = leaders_of(after, rows)
    brokers, _, marks = replicas_of(after, rows)
    in_isr = (marks & IN_ISR) != 0
    led = is_live & (leaders >= 0)
    leader_in_isr = ((brokers == leaders[:, None]) & in_isr).any(axis=1)
    _note(breaches, after, rows[led & ~leader_in_isr], "the leader is not in the ISR")
    if before is not None:
        is_known = rows < before.row_count
        known = rows[is_known]
        was_live, old_leaders, old_epochs = leaders_of(before, known)
        both = was_live & is_live[is_known]
        rises = leader_epochs[is_known] - old_epochs
        fell = both & (rises < 0)
        _note(breaches, after, known[fell], "the leader epoch fell")
        same = both & (leaders[is_known] != old_leaders) & (rises == 0)
        _note(breaches, after, known[same], "the leader changed, and its epoch did not rise")
    return breaches


def _note(breaches: list[RuleBreach], image: TableImage, rows: Rows, rule: str) -> None:
    for row in map(int, rows):
        topic = int(image.topics_of(np.array([row], np.int32))[0])
        name = image.topic_name(topic if topic >= 0 else -1 - topic)
        breaches.append(RuleBreach(rule, name, image.partition_of(row)))


class IsrTarget(NamedTuple):
    """An ISR that the leader of a row would propose."""

    row: int
    leader: int
    isr: list[int]


def isr_targets(
    image: TableImage,
    rows: Rows,
    *,
    led_by: NDArray[np.int32],
    joining: NDArray[np.int32],
    leaving: NDArray[np.int32],
) -> list[IsrTarget]:
    """Return the changed ISRs of those ``rows`` that one of ``led_by`` leads.

    ``joining`` are the brokers that keep up: replicas among them enter the ISR, at its end.
    ``leaving`` are the brokers that lag too long: they leave it, except for the leader.
    """
    is_live, leaders, _ = leaders_of(image, rows)
    mine = is_live & np.isin(leaders, led_by)
    rows, leaders = rows[mine], leaders[mine]
    if not len(rows):
        return []
    brokers, _, marks = replicas_of(image, rows)
    there = brokers >= 0
    in_isr = (marks & IN_ISR) != 0
    enters = there & ~in_isr & np.isin(brokers, joining)
    leaves = in_isr & np.isin(brokers, leaving) & (brokers != leaders[:, None])
    changed = np.flatnonzero((enters | leaves).any(axis=1))
    targets = []
    for at in map(int, changed):
        row = int(rows[at])
        isr = image.state_of(row)["isr"]
        gone = set(brokers[at][leaves[at]].tolist())
        new = [each for each in isr if each not in gone] + brokers[at][enters[at]].tolist()
        targets.append(IsrTarget(row, int(leaders[at]), new))
    return targets


def rows_led_by(table: PartitionTable, brokers: NDArray[np.int32]) -> int:
    """Return how many live partitions one of these brokers leads."""
    led = np.isin(table.column("leader"), brokers)
    return int((led & (table.column("topic") >= 0)).sum())


def rows_out_of_sync(table: PartitionTable) -> int:
    """Return how many live partitions have a replica outside of the ISR, or are reassigned."""
    live = table.column("topic") >= 0
    packed = table.column("isr")
    members = np.zeros(len(packed), np.int8)
    for place in range(table.stride):
        members += (packed >> np.uint32(4 * place) & np.uint32(15)) > 0
    replicas = (table.column("replicas") >= 0).sum(axis=1)
    return int((live & ((members < replicas) | (packed == IRREGULAR))).sum())


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
