"""What the 2018 controller knows of its cluster: brokers, and partitions in compiled columns.

Replicas, leaders, ISRs and epochs are rows of ``PartitionTable``, the same as in a KRaft node: its
partition epoch is the version of the partition's znode. The states of the partitions are one byte a
row; those of replicas, which change with the replicas, one entry of a dict a replica. The tuples
with which the state machines ask and send are kept beside the columns: a failover asks for each of
them ten times.

Pure; the controller's thread is the only one that uses it.

Rules: ``ControllerContext.scala`` of Kafka 1.1.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kraft._core.table.table import PartitionTable
from kraft.records import Partition, RemoveTopic, Topic, Uuid
from kraft.records.batches import encode_records
from kraft.zookeeper.states import PartitionKey, ReplicaKey, ZkPartitionState, ZkReplicaState
from kraft.zookeeper.znodes import BrokerZnode

NO_LEADER = -1


class Leadership(NamedTuple):
    """Leader and ISR of a partition, as in its znode, and the znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    zk_version: int


_NO_LEADERSHIP = Leadership(NO_LEADER, -1, (), -1, -1)
_NON_EXISTENT = ZkReplicaState.NON_EXISTENT
#: By number: looked up, they cost a fifth of a call of the enumeration.
_PARTITION_STATES = tuple(ZkPartitionState)


class ControllerContext:
    """The state of the active controller. A new one is empty, as after a resignation."""

    def __init__(self) -> None:
        #: The last controller epoch that was read or written, and its znode's version.
        self.epoch = 0
        self.epoch_version = 0
        #: The registered brokers, those in controlled shutdown included.
        self.brokers: dict[int, BrokerZnode] = {}
        self.shutting_down: set[int] = set()
        #: Broker -> its partitions in failed log directories.
        self.offline_directories: dict[int, set[PartitionKey]] = {}
        self.topics: set[str] = set()
        #: The replicas that partitions in reassignment will have.
        self.reassigned: dict[PartitionKey, tuple[int, ...]] = {}
        self._table = PartitionTable()
        self._last_topic_id = 0
        self._states = bytearray()
        self._rows: dict[PartitionKey, int] = {}
        #: By row; those of removed topics stay.
        self._assignments: list[tuple[int, ...]] = []
        self._leaderships: list[Leadership | None] = []
        #: By topic.
        self._replica_states: dict[str, dict[ReplicaKey, ZkReplicaState]] = {}

    # -- brokers

    def is_live(self, broker: int) -> bool:
        """Return whether a broker is registered and not shutting down."""
        return broker in self.brokers and broker not in self.shutting_down

    def live_brokers(self) -> frozenset[int]:
        """Return the brokers that are registered and not shutting down."""
        return frozenset(self.brokers.keys() - self.shutting_down)

    def is_online(self, broker: int, key: PartitionKey) -> bool:
        """Return whether a broker is live and its replica's log directory has not failed."""
        return self.is_live(broker) and key not in self.offline_directories.get(broker, ())

    # -- assignments and leaders

    def add_partitions(
        self,
        topic: str,
        assignment: Mapping[int, Sequence[int]],
        leaderships: Mapping[PartitionKey, Leadership] | None = None,
    ) -> None:
        """Add partitions; the topic may be new. Those without a leadership have no leader yet."""
        number = self._table.topic_number(topic)
        records: list[Topic | Partition] = []
        if number < 0:
            self._last_topic_id += 1
            topic_id = Uuid(self._last_topic_id.to_bytes(16, "big"))
            records.append(Topic(name=topic, topic_id=topic_id))
        else:
            topic_id = Uuid(self._table.topic_id_of(number))
        added = sorted(assignment.items())
        for partition, replicas in added:
            leadership = None if leaderships is None else leaderships.get((topic, partition))
            records.append(_record(partition, topic_id, replicas, leadership))
            self._assignments.append(tuple(replicas))
            self._leaderships.append(leadership)
        first = self._table.row_count
        self._table.apply(encode_records(records))
        # The table adds a row for each record, in their order.
        assert self._table.row_count == first + len(added)
        self._rows |= {(topic, partition): first + i for i, (partition, _) in enumerate(added)}
        self._states.extend(bytes(len(added)))

    def has_partition(self, key: PartitionKey) -> bool:
        return key in self._rows

    def assignment(self, key: PartitionKey) -> tuple[int, ...]:
        """Return the replicas of a partition, the preferred leader first. KeyError: unknown."""
        return self._assignments[self._row(key)]

    def set_assignment(self, key: PartitionKey, replicas: Sequence[int]) -> None:
        """Replace the replicas of a partition."""
        self._change([(key, tuple(replicas), self.leadership(key))])

    def leadership(self, key: PartitionKey) -> Leadership | None:
        """Return leader and ISR; None before the first leader, or for an unknown partition."""
        row = self._rows.get(key)
        return None if row is None else self._leaderships[row]

    def set_leaderships(self, changes: Iterable[tuple[PartitionKey, Leadership]]) -> None:
        """Replace leaders and ISRs of known partitions."""
        self._change([(key, self.assignment(key), leadership) for key, leadership in changes])

    def _change(
        self, changes: Sequence[tuple[PartitionKey, tuple[int, ...], Leadership | None]]
    ) -> None:
        records = []
        topic_ids: dict[str, Uuid] = {}
        for key, replicas, leadership in changes:
            row = self._row(key)
            topic, partition = key
            if topic not in topic_ids:
                topic_ids[topic] = Uuid(self._table.topic_id_of(self._table.topic_number(topic)))
            self._assignments[row] = replicas
            self._leaderships[row] = leadership
            records.append(_record(partition, topic_ids[topic], replicas, leadership))
        if records:
            self._table.apply(encode_records(records))

    def remove_topic(self, topic: str) -> None:
        """Forget a topic and its partitions."""
        self.topics.discard(topic)
        number = self._table.topic_number(topic)
        if number >= 0:
            for key in self.partitions_of(topic):
                del self._rows[key]
            self._replica_states.pop(topic, None)
            self._table.apply(
                encode_records([RemoveTopic(topic_id=Uuid(self._table.topic_id_of(number)))])
            )

    # -- questions about many partitions

    @property
    def partition_count(self) -> int:
        return self._table.partition_count

    def partitions(self) -> list[PartitionKey]:
        """Return all partitions."""
        return self._keys(self._table.live_rows())

    def partitions_of(self, topic: str) -> list[PartitionKey]:
        """Return the partitions of a topic, by number; none for an unknown topic."""
        number = self._table.topic_number(topic)
        return [] if number < 0 else self._keys(self._table.topic_rows(number))

    def replicas_of(self, topic: str) -> list[ReplicaKey]:
        """Return the replicas of a topic."""
        return [
            (key, broker) for key in self.partitions_of(topic) for broker in self.assignment(key)
        ]

    def replicas_on(self, brokers: Iterable[int]) -> list[ReplicaKey]:
        """Return the replicas on these brokers. Costs the rows that they hold."""
        return [
            (key, broker)
            for broker in brokers
            for key in self._keys(self._table.broker_rows(broker))
            if broker in self.assignment(key)
        ]

    def partitions_with_leader(self) -> list[PartitionKey]:
        """Return the partitions that ever had a leader."""
        rows = self._table.live_rows()
        return self._keys(rows[self._table.column("leader_epoch")[rows] >= 0])

    def partitions_led_by(self, broker: int) -> list[PartitionKey]:
        """Return the partitions whose leader is a broker."""
        rows = self._table.live_rows()
        return self._keys(rows[self._table.column("leader")[rows] == broker])

    def partitions_with_offline_leader(self) -> list[PartitionKey]:
        """Return the partitions that had a leader which is not online now."""
        rows = self._table.live_rows()
        live = [broker for broker in self.brokers if broker not in self.shutting_down]
        leaders = self._table.column("leader")[rows]
        had_one = self._table.column("leader_epoch")[rows] >= 0
        found = self._keys(rows[had_one & ~np.isin(leaders, live)])
        # Few: directories fail rarely.
        for broker, keys in self.offline_directories.items():
            if broker in live:
                found += [
                    key
                    for key in keys
                    if (known := self.leadership(key)) is not None and known.leader == broker
                ]
        return found

    def topics_with_offline_replicas(self) -> set[str]:
        """Return the topics with a replica that is not online."""
        live = self.live_brokers()
        return {
            key[0]
            for key, row in self._rows.items()
            if not live.issuperset(self._assignments[row])
            or (
                self.offline_directories
                and not all(self.is_online(broker, key) for broker in self._assignments[row])
            )
        }

    def partitions_in(self, *states: ZkPartitionState) -> list[PartitionKey]:
        """Return the partitions in one of these states."""
        rows = self._table.live_rows()
        values = np.frombuffer(bytes(self._states), np.uint8)[rows]
        return self._keys(rows[np.isin(values, [int(one) for one in states])])

    def _keys(self, rows: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> list[PartitionKey]:
        topics = self._table.column("topic")[rows].tolist()
        partitions = self._table.column("partition")[rows].tolist()
        names = {number: self._table.topic_name(number) for number in set(topics)}
        return [
            (names[topic], partition) for topic, partition in zip(topics, partitions, strict=True)
        ]

    # -- states

    def partition_state(self, key: PartitionKey) -> ZkPartitionState:
        row = self._rows.get(key)
        return _PARTITION_STATES[self._states[row] if row is not None else 0]

    def set_partition_state(self, key: PartitionKey, state: ZkPartitionState) -> None:
        self._states[self._row(key)] = state

    def replica_state(self, replica: ReplicaKey) -> ZkReplicaState:
        states = self._replica_states.get(replica[0][0])
        return _NON_EXISTENT if states is None else states.get(replica, _NON_EXISTENT)

    def set_replica_state(self, replica: ReplicaKey, state: ZkReplicaState) -> None:
        key = replica[0]
        self._row(key)
        states = self._replica_states.setdefault(key[0], {})
        if state == _NON_EXISTENT:
            states.pop(replica, None)
        else:
            states[replica] = state

    def replicas_in(self, topic: str, state: ZkReplicaState) -> Iterator[ReplicaKey]:
        """Yield the replicas of a topic in a state."""
        return (one for one in self.replicas_of(topic) if self.replica_state(one) == state)

    def _row(self, key: PartitionKey) -> int:
        row = self._rows.get(key)
        if row is None:
            raise KeyError(f"there is no partition {key[0]}-{key[1]}")
        return row


def _record(
    partition: int, topic_id: Uuid, replicas: Sequence[int], leadership: Leadership | None
) -> Partition:
    known = leadership or _NO_LEADERSHIP
    return Partition(
        partition_id=partition,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(known.isr),
        leader=known.leader,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.zk_version,
    )
