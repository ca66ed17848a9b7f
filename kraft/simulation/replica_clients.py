"""Producers and consumers of replicated partitions in a simulated cluster.

`VerifiedProducer` is an idempotent producer with acks=all and up to three batches in flight, each
sent again until it is acknowledged. `VerifiedConsumer` reads a partition, with the epochs that it
knows (KIP-320), and asks for the partition's end. `Administrator` deletes records, creates and
deletes topics, reassigns partitions and elects leaders. `replica_checks` compares what they get
with the committed records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kraft._core.bytes.batch import BatchBuilder
from kraft.broker.replication.messages import (
    LATEST,
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchPartition,
    ListedOffset,
    PartitionId,
    ProducedPartition,
)
from kraft.broker.replication.partition import ALL_IN_SYNC
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.topic_creation import NewTopic
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    INVALID_PRODUCER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    KraftError,
    NotControllerError,
)
from kraft.records import Uuid
from kraft.simulation.batch_tree import Violation
from kraft.simulation.environment import ControllerApi, Environment, Finder, OnAnswer
from kraft.simulation.replica_brokers import ReplicaBroker
from kraft.simulation.replica_checks import CommittedPartition, ReplicaChecks
from kraft.simulation.replica_log import BatchHeader, ReplicaBatch, ReplicaSlice

RETRY_MS = 800.0
MAX_IN_FLIGHT = 3
#: A batch may be out of order a few times: an earlier answer was lost.
MAX_DOUBTS = 200

Reply = Callable[[Any], None]


class BrokerAccess:
    """A client's access to the brokers; ``id`` is the client's address in the network."""

    def __init__(self, cluster: Environment, id: int, brokers: Mapping[int, ReplicaBroker]) -> None:
        self.cluster = cluster
        self.id = id
        self._brokers = brokers

    @property
    def broker_ids(self) -> list[int]:
        return list(self._brokers)

    def leader_of(self, id: PartitionId) -> tuple[int, int] | None:
        """Return leader and epoch as any running broker knows them, perhaps out of date."""
        up = [broker for broker in self._brokers.values() if broker.is_up]
        if not up:
            return None
        table = self.cluster.random.choice(up).view.table
        topic = table.topic_number_by_id(id.topic_id)
        row = -1 if topic < 0 else table.row_of(topic, id.partition)
        if row < 0:
            return None
        return int(table.column("leader")[row]), int(table.column("leader_epoch")[row])

    def ask(
        self,
        broker_id: int,
        request: Callable[[ReplicaManager, float, Reply], None],
        on_answer: Callable[[Any], None],
    ) -> None:
        broker = self._brokers.get(broker_id)
        if broker is not None:
            self.cluster.send(self.id, broker_id, broker.ask, self.id, request, on_answer)


class VerifiedProducer:
    """An idempotent producer of one partition at a time."""

    def __init__(self, brokers: BrokerAccess, checks: ReplicaChecks) -> None:
        self.cluster = brokers.cluster
        self.id = brokers.id
        self._brokers = brokers
        self._checks = checks
        self._target: PartitionId | None = None
        self._generation = 0
        self._producer_id = self.id * 1_000
        self._next_sequence = 0
        #: Batches that are not acknowledged, by their first sequence, ascending.
        self._open: dict[int, ReplicaBatch] = {}
        self._sent_at: dict[int, float] = {}
        #: Batches since the first open one: brokers remember the last five of a producer.
        self._window = 0
        self.is_quiet = False
        self.last_acknowledged_ms = 0.0
        #: How often the first open batch was out of order though no record was lost.
        self._doubt_count = 0

    def act(self, number: int | None = None, _b: None = None, _c: None = None) -> None:
        """Send new batches and those without an answer, then wait."""
        cluster = self.cluster
        wait_ms = cluster.conditions.append_interval_ms * (0.5 + cluster.draw())
        cluster.at(cluster.now + wait_ms, self.act)
        known = self._checks.partitions
        if self._target is None or self._target not in known:
            if not known:
                return
            self._begin(cluster.random.choice(list(known)))
        elif cluster.draw() < 0.004 and not self._open:
            self._begin(cluster.random.choice(list(known)))
        if not self._open:
            self._window = 0
        if self._window < MAX_IN_FLIGHT and not self.is_quiet:
            self._add()
        due = cluster.now - RETRY_MS
        if any(self._sent_at.get(sequence, due) <= due for sequence in self._open):
            self._send()

    @property
    def is_idle(self) -> bool:
        """Whether no batch is open, or none can be acknowledged now."""
        known = None if self._target is None else self._checks.partitions.get(self._target)
        return not self._open or known is None or known.state["leader"] < 0

    @property
    def target(self) -> PartitionId | None:
        return self._target

    def describe(self) -> str:
        return f"producer {self._producer_id} of {self._target} has open {list(self._open)}"

    def _begin(self, target: PartitionId) -> None:
        """Produce to a partition with a new producer id."""
        self._target = target
        self._generation = self._checks.partitions[target].generation
        self._producer_id += 1
        self._next_sequence = 0
        self._doubt_count = 0
        self._open.clear()
        self._sent_at.clear()

    def _add(self) -> None:
        self._window += 1
        count = 1 + int(self.cluster.draw() * 3)
        builder = BatchBuilder(
            timestamp_ms=int(self.cluster.now),
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._next_sequence,
        )
        for number in range(count):
            builder.append(b"%d.%d" % (self._producer_id, self._next_sequence + number))
        data = bytes(builder.finish())
        self._open[self._next_sequence] = ReplicaBatch(BatchHeader.of(data), data)
        self._next_sequence += count

    def _send(self) -> None:
        """Send all open batches in their order, as over one connection."""
        assert self._target is not None
        leader = self._brokers.leader_of(self._target)
        if leader is None:
            return
        target, producer_id, cluster = self._target, self._producer_id, self.cluster
        batches = dict(self._open)
        self._sent_at = dict.fromkeys(batches, cluster.now)
        acks = ALL_IN_SYNC if cluster.draw() < 0.97 else 1

        def produce(manager: ReplicaManager, now: float, reply: Reply) -> None:
            partition = manager.partitions.get(target)
            epoch = -1 if partition is None else partition.leader_epoch
            for sequence, batch in batches.items():
                token = partial(self._reply, reply, sequence, epoch)
                manager.produce(token, {target: batch.data}, acks, 1_000.0, now)

        def answered(answer: tuple[int, int, Any]) -> None:
            sequence, epoch, response = answer
            if producer_id == self._producer_id and sequence in self._open:
                self._answered(sequence, epoch, acks, response[target])

        self._brokers.ask(leader[0], produce, answered)

    @staticmethod
    def _reply(reply: Reply, sequence: int, epoch: int, response: Any) -> None:
        reply((sequence, epoch, response))

    def _answered(self, sequence: int, epoch: int, acks: int, result: ProducedPartition) -> None:
        counts = self.cluster.counts
        assert self._target is not None
        counts[f"produced_{result.error}"] += 1
        known = self._checks.partitions.get(self._target)
        if result.error == NONE:
            batch = self._open[sequence]
            if acks != ALL_IN_SYNC:
                # The batch is written, but an answer to acks=all must confirm it.
                return
            del self._open[sequence]
            counts["acknowledged_batches"] += 1
            self.last_acknowledged_ms = self.cluster.now
            if known is not None and known.generation == self._generation:
                self._checks.acknowledged(self._target, epoch, batch, result.base_offset)
            return
        self._sent_at[sequence] = self.cluster.now - RETRY_MS * self.cluster.draw()
        if result.error in (OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH):
            is_first = sequence == next(iter(self._open))
            if is_first:
                self._lost(known)

    def _lost(self, known: CommittedPartition | None) -> None:
        """Begin anew if the partition lost records; else the leader has lost them."""
        if known is None:
            return
        if known.generation == self._generation and not known.is_unsettled:
            self._doubt_count += 1
            if self._doubt_count > MAX_DOUBTS:
                raise Violation(
                    "acknowledged_is_committed",
                    f"{known}: the first open batch of producer {self._producer_id} is out of "
                    "order",
                )
            return
        self.cluster.counts["producers_that_lost_records"] += 1
        self._begin(known.id)


class VerifiedConsumer:
    """A consumer of one partition at a time, from its beginning on."""

    def __init__(self, brokers: BrokerAccess, checks: ReplicaChecks) -> None:
        self.cluster = brokers.cluster
        self.id = brokers.id
        self._brokers = brokers
        self._checks = checks
        self._target: PartitionId | None = None
        self._generation = 0
        self._position = 0
        self._epoch = -1
        self._end = -1
        self._number = 0

    def act(self, number: int | None = None, _b: None = None, _c: None = None) -> None:
        if number is not None and number != self._number:
            return
        self._number += 1
        cluster = self.cluster
        cluster.at(cluster.now + 1_500.0, self.act, self._number)
        known = self._checks.partitions
        target = self._target
        if (
            target is None
            or target not in known
            or known[target].generation != self._generation
            or known[target].is_unsettled
            or cluster.draw() < 0.01
        ):
            if not known:
                return
            target = self._target = cluster.random.choice(list(known))
            self._generation = known[target].generation
            self._position, self._epoch, self._end = 0, -1, -1
        leader = self._brokers.leader_of(target)
        if leader is None or leader[0] < 0:
            return
        self._epoch = max(self._epoch, leader[1])
        if cluster.draw() < 0.2:
            self._ask_end(target, leader[0], self._number)
        else:
            self._fetch(target, leader[0], self._number)

    def _go_on(self, number: int) -> None:
        if number == self._number:
            self._number += 1
            self.cluster.at(self.cluster.now + 20.0, self.act, self._number)

    def _fetch(self, target: PartitionId, leader: int, number: int) -> None:
        request = BrokerFetchRequest(
            [FetchPartition(target, self._position, 2_000, self._epoch)], max_wait_ms=300
        )

        def fetch(manager: ReplicaManager, now: float, reply: Reply) -> None:
            manager.fetch(reply, request, now)

        def answered(response: BrokerFetchResponse) -> None:
            if number == self._number:
                self._fetched(target, response)
            self._go_on(number)

        self._brokers.ask(leader, fetch, answered)

    def _known(self, target: PartitionId) -> CommittedPartition | None:
        """Return the partition's committed records; None if this consumer may have others."""
        known = self._checks.partitions.get(target)
        if (
            known is None
            or known.generation != self._generation
            or known.is_unsettled
            or self._epoch < known.lost_in_epoch
        ):
            return None
        return known

    def _fetched(self, target: PartitionId, response: BrokerFetchResponse) -> None:
        (fetched,) = response.partitions
        known = self._known(target)
        if known is None:
            return
        self.cluster.counts[f"consumed_{fetched.error}"] += 1
        if fetched.error == OFFSET_OUT_OF_RANGE:
            if self._position < known.end_offset and not known.has_deleted(self._position):
                raise Violation(
                    "consumers_read_only_committed",
                    f"{known}: position {self._position} is out of range",
                )
            self._position = max(self._position, known.deleted_below)
        if fetched.error or fetched.records is None:
            return
        records = fetched.records
        assert isinstance(records, ReplicaSlice)
        self._checks.consumed(target, records.batches)
        self.cluster.counts["consumed_batches"] += len(records.batches)
        self._position = records.batches[-1].header.last_offset + 1

    def _ask_end(self, target: PartitionId, leader: int, number: int) -> None:
        epoch = self._epoch

        def ask(manager: ReplicaManager, now: float, reply: Reply) -> None:
            reply(manager.list_offset(target, LATEST, leader_epoch=epoch))

        def answered(listed: ListedOffset) -> None:
            known = self._known(target)
            if number == self._number and known is not None:
                self.cluster.counts[f"listed_{listed.error}"] += 1
                if listed.error == NONE:
                    if listed.offset < max(self._end, self._position):
                        raise Violation(
                            "the_end_never_goes_back_for_consumers",
                            f"{known}: {listed.offset} after {self._end}, position "
                            f"{self._position}, epoch {epoch}",
                        )
                    self._end = listed.offset
            self._go_on(number)

        self._brokers.ask(leader, ask, answered)


class Administrator:
    """An operator: topics, reassignments, elections, deletion of records."""

    def __init__(
        self,
        brokers: BrokerAccess,
        checks: ReplicaChecks,
        finder: Finder,
        topic_count: int,
    ) -> None:
        self.cluster = brokers.cluster
        self.id = brokers.id
        self._brokers = brokers
        self._checks = checks
        self._finder = finder
        self._topic_count = topic_count
        self._created = 0
        self.is_quiet = False

    def act(self, number: int | None = None, _b: None = None, _c: None = None) -> None:
        cluster = self.cluster
        cluster.at(cluster.now + 400.0 + cluster.draw() * 1_600.0, self.act)
        ledger = cluster.ledger
        if len(ledger.topics) < self._topic_count:
            if len(ledger.brokers) >= 3:
                self._create()
            return
        if self.is_quiet:
            return
        draw = cluster.draw()
        if draw < 0.35:
            self._reassign()
        elif draw < 0.55:
            self._submit(requests.elect_leaders(ElectionType.PREFERRED))
        elif draw < 0.6:
            self._submit(requests.elect_leaders(ElectionType.UNCLEAN))
        elif draw < 0.63:
            name = cluster.random.choice(list(ledger.topics))
            cluster.counts["deleted_topics"] += 1
            self._submit(requests.delete_topics([TopicToDelete(name)]))
        elif draw < 0.8:
            self._delete_records()

    def _create(self) -> None:
        self._created += 1
        topic_id = Uuid(b"\6" + self.cluster.random.randbytes(15))
        count = self.cluster.random.randint(1, 3)
        # A deleted topic's name comes back.
        name = f"topic-{self._created % (self._topic_count + 1)}"
        self._submit(requests.create_topics([NewTopic(name, topic_id, count, 3)]))

    def _reassign(self) -> None:
        random = self.cluster.random
        name = random.choice(list(self.cluster.ledger.topics))
        target = random.sample(self._brokers.broker_ids, 3)
        self.cluster.counts["reassignments"] += 1
        self._submit(requests.alter_partition_reassignments({(name, 0): target}))

    def cancel_reassignments(self) -> None:
        """Cancel the reassignments that are under way."""
        table = self.cluster.ledger.replay.table
        cancelled: dict[tuple[str, int], None] = {}
        for topic in table.topic_numbers():
            for number, row in enumerate(table.topic_rows(topic)):
                state = table.state_of(int(row))
                if state["adding_replicas"] or state["removing_replicas"]:
                    cancelled[table.topic_name(topic), number] = None
        if cancelled:
            self._submit(requests.alter_partition_reassignments(cancelled))

    def _delete_records(self) -> None:
        if not self._checks.partitions:
            return
        id = self.cluster.random.choice(list(self._checks.partitions))
        known = self._checks.partitions[id]
        leader = self._brokers.leader_of(id)
        if leader is None:
            return
        offset = int(known.end_offset * self.cluster.draw())
        known.deleted_below = max(known.deleted_below, offset)

        def delete(manager: ReplicaManager, now: float, reply: Reply) -> None:
            manager.delete_records(reply, {id: offset}, 1_000.0, now)

        def answered(response: Any) -> None:
            self.cluster.counts[f"deleted_records_{response[id].error}"] += 1

        self._brokers.ask(leader[0], delete, answered)

    def _submit(self, operation: Operation) -> None:
        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            runner.submit(operation, on_answer, 3_000.0)

        def answered(response: Any, error: KraftError | None, epoch: int) -> None:
            if isinstance(error, NotControllerError):
                self._finder.try_next()

        self.cluster.call(self.id, self._finder.target, submit, answered)
