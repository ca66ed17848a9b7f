"""Partition states and replica states of the controllers before KRaft, as columns.

Derives these states from the metadata, and the transitions of rows between two images. No record
holds such a state, and no decision depends on one.

A partition is
  ``NON_EXISTENT``  if the row holds no partition: not yet, or its topic was removed
  ``NEW``           without a leader at leader epoch 0: it never had a leader
  ``ONLINE``        with a leader
  ``OFFLINE``       without a leader at a later leader epoch: it had a leader before

A replica, a broker in the partition's replicas, is
  ``NON_EXISTENT``  if the broker is not in the replicas
  ``OFFLINE``       on a broker that is fenced or not registered, or in a directory that is lost or
                    not among the broker's online directories (KIP-858)
  ``NEW``           being added by a reassignment and not in sync yet, on an online broker
  ``ONLINE``        in every other case, in sync or not, also while the broker shuts down

The old states ReplicaDeletionStarted, -Successful and -Ineligible cannot be derived: no broker
reports that it has deleted a replica. Here a replica of a removed topic, or one that a reassignment
has removed, goes to ``NON_EXISTENT`` at once.

Invariants: states cost the rows asked for, transitions cost what changed (for a broker that comes
or goes, the rows that it holds). Reads images through ``kraft._core.table.image_rows``.
Sources: Kafka's ``PartitionState``, ``ReplicaState`` (3.x), ``BrokerRegistration.hasOnlineDir``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.image_rows import ADDING, IN_ISR, leaders_of, replicas_of
from kraft._core.table.images import TableDelta
from kraft.image.nodes import BrokerRegistration
from kraft.image.publishing import Image, ImageDelta
from kraft.image.replay import MetadataState

# Numbers of the reserved directory ids: migrating, unassigned, lost (``DirectoryId``).
_MIGRATING, _UNASSIGNED, _LOST = range(3)

Rows = NDArray[np.int32]
States = NDArray[np.int8]


class PartitionState(IntEnum):
    """The state of a row's partition; see the module's docstring."""

    NON_EXISTENT = 0
    NEW = 1
    ONLINE = 2
    OFFLINE = 3


class ReplicaState(IntEnum):
    """The state of a broker's replica in a row; see the module's docstring."""

    NON_EXISTENT = 0
    NEW = 1
    ONLINE = 2
    OFFLINE = 3


class PartitionTransitions(NamedTuple):
    """The rows whose state changed, ascending, with both `PartitionState` as i8."""

    rows: Rows
    before: States
    after: States


class ReplicaTransitions(NamedTuple):
    """One entry a replica whose state is another one now, by row and broker: `ReplicaState`."""

    rows: Rows
    brokers: NDArray[np.int32]
    before: States
    after: States


def partition_states(image: Image, rows: Rows | None = None) -> States:
    """Return the `PartitionState` of ``rows``, by default of all ``image.table.row_count`` rows."""
    there, leader, leader_epoch = leaders_of(image.table, _wanted(image, rows))
    states = np.where(
        leader >= 0,
        np.int8(PartitionState.ONLINE),
        np.where(leader_epoch == 0, np.int8(PartitionState.NEW), np.int8(PartitionState.OFFLINE)),
    )
    states[~there] = PartitionState.NON_EXISTENT
    return states


def replica_states(
    image: Image, rows: Rows | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return brokers and their `ReplicaState`, each ``(rows, widest)``, as ordered in the replicas.

    Unused entries have broker -1 and ``NON_EXISTENT``.
    """
    brokers, directories, marks = replicas_of(image.table, _wanted(image, rows))
    states = np.full(brokers.shape, ReplicaState.ONLINE, np.int8)
    states[(marks & (ADDING | IN_ISR)) == ADDING] = ReplicaState.NEW
    # Judge each distinct (broker, directory) once: they are few, the replicas many.
    places, which = np.unique(
        brokers.astype(np.int64) << 32 | directories.astype(np.int64), return_inverse=True
    )
    online = np.array([_is_online(image, int(place)) for place in places.tolist()], np.bool_)
    states[~online[which].reshape(brokers.shape)] = ReplicaState.OFFLINE
    states[brokers < 0] = ReplicaState.NON_EXISTENT
    return brokers, states


def partition_transitions(delta: ImageDelta) -> PartitionTransitions:
    """Return the rows whose state changed; in a full delta all come from ``NON_EXISTENT``."""
    rows = _rows_named(delta)
    after = partition_states(delta.image, rows)
    before = (
        np.zeros(len(rows), np.int8)
        if delta.before is None
        else partition_states(delta.before, rows)
    )
    differs = before != after
    return PartitionTransitions(rows[differs], before[differs], after[differs])


def replica_transitions(delta: ImageDelta, cluster: MetadataState) -> ReplicaTransitions:
    """Return the replicas whose state changed, ascending by row and broker.

    Includes replicas that no record names, whose broker came, went, or has other directories
    online. ``cluster`` is the state of the two images; the first call that needs its index from
    brokers to rows builds it. Raises OffsetOutOfRangeError for images from before a compaction of
    ``cluster``, whose rows have other numbers.
    """
    rows = np.union1d(_rows_named(delta), _rows_of_brokers(delta, cluster)).astype(np.int32)
    keys, now = _replicas(delta.image, rows)
    if delta.before is None:
        old_keys, old = keys[:0], now[:0]
    else:
        old_keys, old = _replicas(delta.before, rows)
    every = np.union1d(keys, old_keys)
    before, after = _spread(every, old_keys, old), _spread(every, keys, now)
    differs = before != after
    every = every[differs]
    return ReplicaTransitions(
        (every >> 32).astype(np.int32),
        (every & 0xFFFFFFFF).astype(np.int32),
        before[differs],
        after[differs],
    )


def _wanted(image: Image, rows: Rows | None) -> Rows:
    if rows is None:
        return np.arange(image.table.row_count, dtype=np.int32)
    return np.ascontiguousarray(rows, np.int32)


def _is_online(image: Image, place: int) -> bool:
    """Return whether replicas on a broker (upper half), directory (lower half), are online."""
    broker = image.state.brokers.get(place >> 32)
    number = place & 0xFFFFFFFF
    if broker is None or broker.fenced or number == _LOST:
        return False
    if number in (_MIGRATING, _UNASSIGNED) or not broker.log_dirs:
        return True
    return image.table.directory_id(number) in broker.log_dirs


def _rows_named(delta: ImageDelta) -> Rows:
    """Return the rows that records changed, added or removed, ascending."""
    parts = [delta.rows_changed, *(np.arange(*each, dtype=np.int32) for each in delta.rows_added)]
    if delta.before is not None:
        parts.extend(delta.before.table.topic_rows(topic) for topic in delta.topics_removed)
    return np.unique(np.concatenate(parts)).astype(np.int32)


def _rows_of_brokers(delta: ImageDelta, cluster: MetadataState) -> Rows:
    """Return the rows that list a broker that came, went, or has other directories."""
    if delta.before is None:
        return np.empty(0, np.int32)
    moved = [
        (change.after or change.before).id
        for change in delta.changes.get("broker", {}).values()
        if _places(change.before) != _places(change.after)
    ]
    if not moved:
        return np.empty(0, np.int32)
    # The index describes the present table, so rows that changed since the image are added.
    to_tip = TableDelta(delta.before.table, cluster.table.image(cluster.next_offset))
    parts = [cluster.table.broker_rows(broker_id) for broker_id in moved]
    parts.append(to_tip.rows_changed)
    since = TableDelta(delta.image.table, to_tip.after)
    parts.extend(delta.image.table.topic_rows(topic) for topic in since.topics_removed)
    parts.append(since.rows_changed)
    rows = np.unique(np.concatenate(parts)).astype(np.int32)
    return rows[rows < delta.image.table.row_count]


def _places(broker: BrokerRegistration | None) -> tuple[object, ...] | None:
    """Return the part of a registration that decides which of its replicas are online."""
    return None if broker is None or broker.fenced else broker.log_dirs


def _replicas(image: Image, rows: Rows) -> tuple[NDArray[np.int64], States]:
    """Return distinct (row, broker) pairs as one number each, ascending, and their states."""
    brokers, states = replica_states(image, rows)
    is_replica = brokers >= 0
    keys = (rows.astype(np.int64)[:, None] << 32 | brokers)[is_replica]
    unique, first = np.unique(keys, return_index=True)
    return unique, states[is_replica][first]


def _spread(every: NDArray[np.int64], keys: NDArray[np.int64], states: States) -> States:
    spread = np.zeros(len(every), np.int8)
    spread[np.searchsorted(every, keys)] = states
    return spread
