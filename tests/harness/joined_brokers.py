"""Brokers with replica managers that a test joins by hand: metadata, fetches, answers, time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.file_slice import FileSlice
from kraft.broker.replication.leader_fetcher import FetcherSettings
from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    BrokerFetchResponse,
    CommittedIsr,
    FetchedPartition,
    FetchPartition,
    IsrChangeResponse,
    PartitionId,
    ProducedPartition,
)
from kraft.broker.replication.partition import ALL_IN_SYNC, HostedPartition
from kraft.broker.replication.ports import LogStore
from kraft.broker.replication.replica_fetching import FetchToSend
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.replication.replication_output import ReplicationOutput
from kraft.broker.replication.settings import ReplicationSettings
from kraft.image.publishing import Image, ImageDelta, ImagePublishing, Phase
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records
from kraft.simulation.replica_brokers import SimulatedTopics, received_fetch
from kraft.simulation.replica_log import ReplicaLog, ReplicaSlice, ReplicaStore, batches_of

TOPIC = Uuid(b"t" * 16)
DIRECTORY = Uuid(b"d" * 15 + b"1")
P0 = PartitionId(bytes(TOPIC), 0)
MAX_LAG_MS = 10_000.0


class FirstChoice:
    """A random source without chance: the store takes the first directory."""

    def choice(self, values: Any) -> Any:
        return values[0]


def batch(*values: bytes, producer_id: int = -1, sequence: int = -1) -> bytes:
    builder = BatchBuilder(
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    for value in values or (b"value",):
        builder.append(value)
    return bytes(builder.finish())


class JoinedBroker:
    """A broker with its own copy of the metadata; `JoinedBrokers.deliver` updates it."""

    name = "replica manager"

    def __init__(
        self, id: int, min_isr: int, settings: ReplicationSettings, store: LogStore | None
    ) -> None:
        self.id = id
        self.store = ReplicaStore(FirstChoice(), lambda partition, epoch: None)  # type: ignore
        self.store.use([bytes(DIRECTORY), b"d" * 15 + b"2"])
        self.logs: LogStore = self.store if store is None else store
        self._min_isr = min_isr
        self._settings = settings
        self.answers: dict[Any, Any] = {}
        self.now = 0.0
        self._sessions = 0
        self.start()

    def start(self) -> None:
        """Begin a process; `JoinedBrokers.deliver` brings the metadata."""
        self.state = MetadataState(journaling=True)
        self.images = ImagePublishing(self.state, self._failed)
        self.manager = ReplicaManager(
            self.id,
            self.logs,
            SimulatedTopics(self._min_isr),
            self._next_session,
            self._settings,
        )
        self.manager.set_broker_epoch(self.id)
        self.images.register(self, Phase.REPLICA_MANAGER)
        self.delivered = 0
        self.output = ReplicationOutput()
        #: Fetch requests that `JoinedBrokers.replicate` has not carried yet.
        self.in_flight: list[FetchToSend] = []

    def _next_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def _failed(self, name: str, error: Exception) -> None:
        raise error

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        self.manager.apply_delta(delta, image, self.now)

    def apply(self, *changes: Record) -> None:
        """Apply records to the state, without publishing them."""
        self.state.apply(encode_records(changes, base_offset=self.state.next_offset))

    def compact(self) -> None:
        """Compact the table, all of which is published."""
        self.state.compact()
        self.images.publish_renumbered()
        self.output = self.take()

    def partition(self, id: PartitionId = P0) -> HostedPartition:
        return self.manager.partitions[id]

    def log(self, id: PartitionId = P0) -> ReplicaLog:
        return self.store.logs[id]

    def values(self, id: PartitionId = P0) -> list[tuple[int, int]]:
        """Return offset and epoch of each batch."""
        return [(each.header.base_offset, each.header.epoch) for each in self.log(id).batches]

    def take(self) -> ReplicationOutput:
        output = self.manager.take_output(self.now)
        for answer in output.answers:
            self.answers[answer.token] = answer.response
        self.in_flight += output.fetches
        return output

    # -- requests

    def produce(
        self,
        token: Any = "produce",
        data: bytes | None = None,
        *,
        acks: int = ALL_IN_SYNC,
        timeout_ms: float = 1_000.0,
        id: PartitionId = P0,
    ) -> ProducedPartition | None:
        """Return the answer if there is one at once."""
        self.manager.produce(token, {id: data or batch()}, acks, timeout_ms, self.now)
        self.take()
        answer: dict[PartitionId, ProducedPartition] | None = self.answers.pop(token, None)
        return None if answer is None else answer[id]

    def fetch(
        self,
        offset: int,
        *,
        replica: int = -1,
        replica_epoch: int | None = None,
        epoch: int = -1,
        last_epoch: int = -1,
        token: Any = "fetch",
        id: PartitionId = P0,
        log_start: int = 0,
        max_bytes: int = 1_000_000,
        **named: Any,
    ) -> FetchedPartition | None:
        """Fetch one partition; return the answer if there is one at once."""
        fetch = FetchPartition(id, offset, max_bytes, epoch, last_epoch, log_start)
        known = replica if replica_epoch is None else replica_epoch
        request = BrokerFetchRequest([fetch], replica, known, **named)
        self.manager.fetch(token, request, self.now)
        self.take()
        return self.fetched(token)

    def fetched(self, token: Any = "fetch") -> FetchedPartition | None:
        answer: BrokerFetchResponse | None = self.answers.pop(token, None)
        return None if answer is None else answer.partitions[0]


class JoinedBrokers:
    """Brokers and the metadata log between them; ``stores`` returns a broker's logs by its id.

    Without ``stores`` the logs are simulated.
    """

    def __init__(
        self,
        *ids: int,
        min_isr: int = 1,
        settings: ReplicationSettings | None = None,
        stores: Callable[[int], LogStore] | None = None,
    ) -> None:
        settings = settings or ReplicationSettings(
            max_lag_ms=MAX_LAG_MS, fetcher=FetcherSettings(backoff_ms=100.0)
        )
        self.brokers = {
            id: JoinedBroker(id, min_isr, settings, stores and stores(id)) for id in ids
        }
        self._records: list[Record] = [broker_record(id) for id in ids]
        self._records.append(records.Topic(name="a", topic_id=TOPIC))

    def __getitem__(self, id: int) -> JoinedBroker:
        return self.brokers[id]

    def wait(self, ms: float) -> None:
        for broker in self.brokers.values():
            broker.now += ms

    # -- metadata

    def append(self, *changes: Record, to: tuple[int, ...] | None = None) -> None:
        """Append records, and deliver them to all brokers or to those in ``to``."""
        self._records += changes
        for id in self.brokers if to is None else to:
            self.deliver(id)

    def create(
        self,
        leader: int,
        isr: list[int] | None = None,
        partition: int = 0,
        epoch: int = 0,
        directory: bytes = DIRECTORY,
    ) -> None:
        """Create a partition with all brokers as replicas, in ``directory`` of each."""
        replicas = list(self.brokers)
        self.append(
            records.Partition(
                partition_id=partition,
                topic_id=TOPIC,
                replicas=replicas,
                isr=replicas if isr is None else isr,
                leader=leader,
                leader_epoch=epoch,
                partition_epoch=0,
                directories=[Uuid(directory)] * len(replicas),
            )
        )

    def change(
        self, *, partition: int = 0, to: tuple[int, ...] | None = None, **fields: Any
    ) -> None:
        self.append(
            records.PartitionChange(partition_id=partition, topic_id=TOPIC, **fields), to=to
        )

    def deliver(self, id: int) -> None:
        """Bring a broker's metadata up to date."""
        broker = self.brokers[id]
        for record in self._records[broker.delivered :]:
            broker.state.apply(encode_records([record], base_offset=broker.state.next_offset))
        broker.delivered = len(self._records)
        broker.images.publish(broker.state.next_offset)
        broker.output = broker.take()

    # -- replication

    def replicate(self, follower: int, rounds: int = 2) -> None:
        """Carry a follower's fetches to its leaders and back, without waiting."""
        broker = self.brokers[follower]
        for _ in range(rounds):
            queries = broker.take().queries
            in_flight, broker.in_flight = broker.in_flight, []
            for fetch in in_flight:
                leader = self.brokers[fetch.leader_id]
                request = BrokerFetchRequest(
                    fetch.request.partitions,
                    fetch.request.replica_id,
                    fetch.request.replica_epoch,
                    0,
                    fetch.request.min_bytes,
                    fetch.request.max_bytes,
                    fetch.request.session_id,
                    fetch.request.session_epoch,
                    fetch.request.forgotten,
                )
                leader.manager.fetch("replica", request, leader.now)
                leader.take()
                response = received_fetch(in_memory(leader.answers.pop("replica")))
                broker.manager.fetched(fetch.leader_id, fetch.number, response, broker.now)
            for query in [*queries, *broker.take().queries]:
                leader = self.brokers[query.leader_id]
                listed = leader.manager.list_offset(
                    query.id,
                    query.timestamp_ms,
                    leader_epoch=query.leader_epoch,
                    from_follower=True,
                )
                broker.manager.offset_listed(query, listed, broker.now)

    def commit_isr(self, leader: int) -> dict[int, int]:
        """Accept the pending ISR change of partition 0; return the proposed ISR."""
        broker = self.brokers[leader]
        proposals = broker.take().isr_changes
        assert proposals is not None
        (proposal,) = proposals
        committed = CommittedIsr(
            leader, proposal.leader_epoch, proposal.partition_epoch + 1, tuple(proposal.isr)
        )
        broker.manager.isr_answered(IsrChangeResponse(0, {proposal.id: committed}), broker.now)
        broker.take()
        return dict(proposal.isr)


def broker_record(id: int, *, epoch: int | None = None, fenced: bool = False) -> Record:
    return records.RegisterBroker(
        broker_id=id,
        broker_epoch=id if epoch is None else epoch,
        incarnation_id=Uuid(bytes([id % 256]) * 16),
        fenced=fenced,
        rack=f"rack-{id}",
        log_dirs=[DIRECTORY],
    )


def fence(id: int, *, is_fenced: int = 1, stopping: int = 0, epoch: int | None = None) -> Record:
    return records.BrokerRegistrationChange(
        broker_id=id,
        broker_epoch=id if epoch is None else epoch,
        fenced=is_fenced,
        in_controlled_shutdown=stopping,
    )


def in_memory(response: BrokerFetchResponse) -> BrokerFetchResponse:
    """Read the slices of files in a response, as a connection does that sends them."""
    return response._replace(
        partitions=[
            each._replace(records=ReplicaSlice(tuple(batches_of(each.records.read()))))
            if isinstance(each.records, FileSlice)
            else each
            for each in response.partitions
        ]
    )


def epochs_of(data: Any) -> list[int]:
    return [each.header.epoch for each in batches_of(data)]
