"""Ledger: the metadata of the committed log by a slow, obvious reader, and its invariants.

`Ledger` applies each committed batch to plain dictionaries, a transaction only at its end, and also
to a replay by the code under test. `LedgerTree` passes each batch once; `controller_checks`
compares controllers and brokers with the ledger. Its invariants, by name:

nothing_between_the_records_of_a_transaction, the_next_controller_aborts_the_transaction,
a_leader_is_alive_and_in_sync, producer_ids_ascend, the_replay_equals_an_independent_log_reader.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from kraft import records
from kraft._core.bytes.batch_records import iterate
from kraft.image.configs import TOPIC
from kraft.image.replay import MetadataState
from kraft.raft.voters import VoterSet
from kraft.records import Record, decode_value
from kraft.simulation.batch_tree import Entry, Violation
from kraft.simulation.state_storage import StateTree

#: The records of a large operation: its transaction contains no others.
_OF_TOPICS = (records.Topic, records.Partition, records.Config, records.RemoveTopic)
_OF_THE_BOOTSTRAP = (records.FeatureLevel, records.Config)


class LedgerTopic:
    """A topic: its id and the ids of its partitions."""

    def __init__(self, id: bytes) -> None:
        self.id = id
        self.partitions: set[int] = set()


class Broker:
    """A broker registration."""

    def __init__(self, epoch: int, is_fenced: bool, incarnation_id: bytes) -> None:
        self.epoch = epoch
        self.is_fenced = is_fenced
        self.incarnation_id = incarnation_id


class Ledger:
    """The metadata of one cluster's committed log."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.topics: dict[str, LedgerTopic] = {}
        self._names: dict[bytes, str] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.brokers: dict[int, Broker] = {}
        self.next_producer_id = 0
        #: The first and last offsets of ended transactions, ascending.
        self._begins: list[int] = []
        self._ends: list[int] = []
        self.open_since: int | None = None
        self._open_epoch = -1
        self._waiting: list[Record] = []
        self.abort_count = self.transaction_count = 0
        #: The state of the code under test, which applies transactions as they come.
        self.replay = MetadataState(journaling=True)
        self._partitions: dict[tuple[str, int], Any] = {}
        self._partitions_at = -1

    # -- a batch is committed

    def take(self, entry: Entry) -> None:
        """Apply a committed batch."""
        self.replay.apply(entry.data)
        self.end_offset = entry.end_offset
        if not entry.is_control:
            touched: set[tuple[bytes, int]] = set()
            for batch in iterate(entry.data):
                for raw in batch:
                    assert raw.value is not None
                    self._take(decode_value(raw.value), raw.offset, entry, touched)
            self._check_leaders(touched, entry)
        self.replay.forget(entry.end_offset)

    def _take(
        self, record: Record, offset: int, entry: Entry, touched: set[tuple[bytes, int]]
    ) -> None:
        if self.open_since is not None:
            self._take_within(record, offset, entry, touched)
        elif isinstance(record, records.BeginTransaction):
            self.open_since, self._open_epoch = offset, entry.epoch
            self._waiting = []
        else:
            self._fold(record, touched)

    def _take_within(
        self, record: Record, offset: int, entry: Entry, touched: set[tuple[bytes, int]]
    ) -> None:
        if entry.epoch != self._open_epoch and not isinstance(record, records.AbortTransaction):
            raise Violation(
                "the_next_controller_aborts_the_transaction",
                f"{type(record).__name__} at {offset} of epoch {entry.epoch} is in the "
                f"transaction of {self.open_since}, epoch {self._open_epoch}",
            )
        if isinstance(record, (records.EndTransaction, records.AbortTransaction)):
            assert self.open_since is not None
            self._begins.append(self.open_since)
            self._ends.append(offset)
            self.open_since = None
            self.transaction_count += 1
            if isinstance(record, records.EndTransaction):
                for each in self._waiting:
                    self._fold(each, touched)
            else:
                self.abort_count += 1
            self._waiting = []
        elif isinstance(record, _OF_TOPICS if self.brokers else _OF_THE_BOOTSTRAP):
            self._waiting.append(record)
        else:
            raise Violation(
                "nothing_between_the_records_of_a_transaction",
                f"{type(record).__name__} at {offset} is in the transaction of {self.open_since}",
            )

    def _fold(self, record: Record, touched: set[tuple[bytes, int]]) -> None:
        if isinstance(record, records.Topic):
            self.topics[record.name] = LedgerTopic(bytes(record.topic_id))
            self._names[bytes(record.topic_id)] = record.name
        elif isinstance(record, records.Partition):
            self.topics[self._names[bytes(record.topic_id)]].partitions.add(record.partition_id)
            touched.add((bytes(record.topic_id), record.partition_id))
        elif isinstance(record, records.PartitionChange):
            touched.add((bytes(record.topic_id), record.partition_id))
        elif isinstance(record, records.RemoveTopic):
            name = self._names.pop(bytes(record.topic_id))
            del self.topics[name]
            self.configs.pop((TOPIC, name), None)
        elif isinstance(record, records.Config):
            self._set(record)
        elif isinstance(record, records.RegisterBroker):
            self.brokers[record.broker_id] = Broker(
                record.broker_epoch, record.fenced, bytes(record.incarnation_id)
            )
        elif isinstance(record, records.BrokerRegistrationChange):
            if record.fenced:
                self.brokers[record.broker_id].is_fenced = record.fenced > 0
                if record.fenced > 0:
                    self._touch_led_by(record.broker_id, touched)
        elif isinstance(record, records.ProducerIds):
            if record.next_producer_id <= self.next_producer_id:
                raise Violation(
                    "producer_ids_ascend",
                    f"{self.next_producer_id} is followed by {record.next_producer_id}",
                )
            self.next_producer_id = record.next_producer_id

    def _set(self, record: records.Config) -> None:
        key = (record.resource_type, record.resource_name)
        if record.value is None:
            self.configs.get(key, {}).pop(record.name, None)
            if not self.configs.get(key, True):
                del self.configs[key]
        else:
            self.configs.setdefault(key, {})[record.name] = record.value

    # -- checks at the end of each batch

    def _touch_led_by(self, broker_id: int, touched: set[tuple[bytes, int]]) -> None:
        table = self.replay.table
        topics, partitions = table.column("topic"), table.column("partition")
        for row in table.broker_rows(broker_id):
            touched.add((table.topic_id_of(int(topics[row])), int(partitions[row])))

    def _check_leaders(self, touched: set[tuple[bytes, int]], entry: Entry) -> None:
        for topic_id, partition in touched:
            if topic_id in self._names:
                self._check_leader(topic_id, partition, entry)

    def _check_leader(self, topic_id: bytes, partition: int, entry: Entry) -> None:
        table = self.replay.table
        topic = table.topic_number_by_id(topic_id)
        state = table.state_of(table.row_of(topic, partition))
        leader = state["leader"]
        if leader < 0:
            return
        broker = self.brokers.get(leader)
        if broker is None or broker.is_fenced or leader not in state["isr"]:
            raise Violation(
                "a_leader_is_alive_and_in_sync",
                f"after {entry} {self._names[topic_id]}-{partition} is led by {leader}, which is "
                f"{'not registered' if broker is None else 'fenced' if broker.is_fenced else 'up'}"
                f"; its state is {state}",
            )

    def is_inside_transaction(self, offset: int) -> bool:
        """Return whether a state that ends at ``offset`` contains a part of a transaction."""
        if self.open_since is not None and offset > self.open_since:
            return True
        index = bisect_left(self._begins, offset) - 1
        return index >= 0 and self._begins[index] < offset <= self._ends[index]

    # -- comparing

    def partitions(self) -> dict[tuple[str, int], Any]:
        """Return every partition of the replay; cached, as it is compared with several nodes."""
        if self._partitions_at != self.end_offset:
            self._partitions, self._partitions_at = partitions_of(self.replay), self.end_offset
        return self._partitions

    def summary(self) -> dict[str, Any]:
        """Return topics, configurations, brokers and producer ids, comparable with `summary_of`."""
        return {
            "topics": {
                name: (topic.id, len(topic.partitions)) for name, topic in self.topics.items()
            },
            "configs": self.configs,
            "brokers": {
                id: (broker.epoch, broker.is_fenced) for id, broker in self.brokers.items()
            },
            "next_producer_id": self.next_producer_id,
        }


def summary_of(cluster: MetadataState) -> dict[str, Any]:
    """Return the same as `Ledger.summary`, of a replayed state without an open transaction."""
    table, state = cluster.table, cluster.state
    return {
        "topics": {
            table.topic_name(number): (table.topic_id_of(number), len(table.topic_rows(number)))
            for number in table.topic_numbers()
        },
        "configs": {key: dict(values) for key, values in state.configs.items()},
        "brokers": {id: (broker.epoch, broker.fenced) for id, broker in state.brokers.items()},
        "next_producer_id": max(state.next_producer_id, 0),
    }


def partitions_of(cluster: MetadataState) -> dict[tuple[str, int], Any]:
    """Return every partition by topic name and partition id, with its directories' ids."""
    table = cluster.table
    found = {}
    directories: dict[int, bytes] = {}
    for number in table.topic_numbers():
        name = table.topic_name(number)
        for partition, row in enumerate(table.topic_rows(number)):
            state = table.state_of(int(row))
            for each in state["directories"]:
                if each not in directories:
                    directories[each] = table.directory_id(each)
            state["directories"] = [directories[each] for each in state["directories"]]
            found[name, partition] = state
    return found


class LedgerTree(StateTree):
    """A batch tree that applies committed batches to a ledger."""

    def __init__(self, voters: VoterSet | None, level: int) -> None:
        super().__init__(voters, level)
        self.ledger = Ledger()

    def commit(self, entry: Entry, epoch: int) -> None:
        super().commit(entry, epoch)
        self.ledger.take(entry)
