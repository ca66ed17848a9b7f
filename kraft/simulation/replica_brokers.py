"""Brokers with real replication in a simulated cluster.

`ReplicaBroker` is a `SimulatedBroker` that drives a `ReplicaManager` over a `ReplicaStore`: it
publishes its metadata to it, carries its requests to other brokers and to the controllers through
the faulty network, and loses it when its process ends. A driver's rule that a real broker must obey
too: the replica manager gets its first metadata when they contain this incarnation's registration.
Before that they may show this broker as the leader of an earlier life.

`replica_checks` checks each step, and `answered_requests` that each request is answered;
`replica_scenario` starts and kills the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kraft.broker.replication.leader_fetcher import FetcherSettings
from kraft.broker.replication.messages import (
    BrokerFetchResponse,
    CommittedIsr,
    IsrChangeResponse,
    IsrProposal,
    ListedOffset,
    PartitionId,
    ReceivedFetch,
    ReceivedPartition,
)
from kraft.broker.replication.replica_fetching import FetchToSend, OffsetQuery
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.replication.replication_output import ReplicaDirectory
from kraft.broker.replication.settings import ReplicationSettings
from kraft.controller.brokers.directories import DirectoryAssignment
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import DecisionContext
from kraft.controller.topics.isr_changes import IsrChange
from kraft.errors import KraftError, NotControllerError
from kraft.image.publishing import Image, ImageDelta, ImagePublishing, Phase
from kraft.records import Uuid
from kraft.simulation.answered_requests import AnsweredManager
from kraft.simulation.batch_tree import Violation
from kraft.simulation.brokers import SimulatedBroker
from kraft.simulation.environment import ControllerApi, Environment, Finder, OnAnswer
from kraft.simulation.guarded_operations import guarded
from kraft.simulation.replica_checks import ReplicaChecks
from kraft.simulation.replica_log import ReplicaSlice, ReplicaStore
from kraft.simulation.state_storage import load_snapshot

REQUEST_TIMEOUT_MS = 2_000.0
CHECKPOINT_MS = 5_000.0
SYNC_MS = 1_500.0


class SimulatedTopics:
    """Settings of topics: the same for all."""

    def __init__(self, min_insync_replicas: int) -> None:
        self._min_insync_replicas = min_insync_replicas

    def min_insync_replicas(self, topic: str) -> int:
        return self._min_insync_replicas

    def is_deleting(self, topic: str) -> bool:
        return True


class ReplicaBroker(SimulatedBroker):
    """A broker that replicates; while it is paused, nothing reaches it."""

    name = "replica manager"

    def __init__(
        self,
        cluster: Environment,
        id: int,
        finder: Finder,
        peers: Mapping[int, SimulatedBroker],
        checks: ReplicaChecks,
        settings: ReplicationSettings,
    ) -> None:
        super().__init__(cluster, id, finder, peers)
        self._checks = checks
        self._settings = settings
        self.store = ReplicaStore(
            cluster.random, lambda partition, epoch: checks.leader_appends(id, partition, epoch)
        )
        self.paused_until = 0.0
        self.manager: AnsweredManager | None = None
        self._images: ImagePublishing | None = None
        #: High watermark and led epoch of each partition after the last event.
        self._seen: dict[PartitionId, tuple[int, int]] = {}
        self._wake_number = 0
        self._isr_number = 0

    @property
    def replicas(self) -> Mapping[int, SimulatedBroker]:
        return self._peers

    # -- life and death

    def start(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        if not self.is_up:
            self.manager = self._images = None
            self._seen.clear()
            super().start()
            self.store.use(map(bytes, self.directories))
            self.cluster.at(self.cluster.now + CHECKPOINT_MS, self._checkpoint, self.life)
            self.cluster.at(self.cluster.now + SYNC_MS, self._sync, self.life)

    def _down(self) -> None:
        """End the process: cleanly, killed, or with the power of its machine."""
        cluster = self.cluster
        is_clean = self.previous_epoch >= 0 and self.previous_epoch == self.epoch
        manager, self.manager = self.manager, None
        self._images = None
        super()._down()
        if is_clean:
            self.store.sync_all()
            if manager is not None:
                self.store.checkpoint(manager.high_watermarks())
        elif cluster.draw() < 0.6:
            cluster.counts["broker_power_failures"] += 1
            ends = self._ends()
            self.store.lose_power()
            self._checks.lost_records(self.id, ends)

    def _ends(self) -> dict[PartitionId, int]:
        return {id: log.end_offset for id, log in self.store.logs.items()}

    def stop(self) -> None:
        if self.is_up and not self.is_stopping and self.epoch >= 0 and self.manager is not None:
            self.manager.begin_controlled_shutdown()
        super().stop()

    def lose_directory(self) -> None:
        """Lose one of two directories; the process ends with its last one."""
        before = len(self.offline)
        super().lose_directory()
        if len(self.offline) > before:
            directory = bytes(self.offline[-1])
            ends = self._ends()
            self.store.fail(directory)
            self._checks.lost_records(self.id, ends)
            if self.manager is not None:
                self.manager.directory_failed(directory, self.cluster.now)
                self._after()

    def lose_disks(self) -> None:
        """Die, and come back with empty disks."""
        self.die()
        ends = self._ends()
        self.store.wipe()
        self.directories, self.offline = [], []
        self._checks.lost_records(self.id, ends)
        self.cluster.counts["lost_disks"] += 1

    def _checkpoint(self, life: int, _b: None = None, _c: None = None) -> None:
        if life == self.life:
            self.cluster.at(self.cluster.now + CHECKPOINT_MS, self._checkpoint, life)
            if self.manager is not None:
                self.store.checkpoint(self.manager.high_watermarks())

    def _sync(self, life: int, _b: None = None, _c: None = None) -> None:
        if life == self.life:
            self.cluster.at(
                self.cluster.now + SYNC_MS * (0.5 + self.cluster.draw()), self._sync, life
            )
            logs = list(self.store.logs.values())
            if logs:
                logs[int(self.cluster.draw() * len(logs))].sync()

    def _is_registered(self, epoch: int) -> None:
        super()._is_registered(epoch)
        if self.manager is not None:
            self.manager.set_broker_epoch(self.epoch)
        self._publish()

    # -- pauses

    def _beat(self, life: int, _b: None = None, _c: None = None) -> None:
        if life == self.life and self.paused_until > self.cluster.now:
            self.cluster.at(self.paused_until, self._beat, life)
        else:
            super()._beat(life)

    def _fetch(self, life: int, _b: None = None, _c: None = None) -> None:
        if life == self.life and self.paused_until > self.cluster.now:
            self.cluster.at(self.paused_until, self._fetch, life)
        else:
            super()._fetch(life)

    # -- metadata

    def _take_batches(self, life: int, offset: int, batches: bytes) -> None:
        if life != self.life or offset != self.view.next_offset:
            return
        self.view.apply(batches, verify_crc=False)
        self._check_view()
        if self._images is None:
            self.view.forget(self.view.next_offset)
        self._publish()

    def _take_snapshot(self, life: int, id: Any, content: bytes) -> None:
        if life != self.life or id.offset <= self.view.next_offset:
            return
        self.view = load_snapshot(content, id.offset)
        self.cluster.counts["broker_snapshots"] += 1
        self._check_view()
        if self._images is not None:
            self._images.replace_cluster(self.view)
        self._publish()

    def _publish(self) -> None:
        """Publish the metadata, from the registration of this incarnation on."""
        if not self.is_up or self.epoch < 0 or self.view.stable_offset <= self.epoch:
            return
        if self._images is None:
            self._images = ImagePublishing(self.view, self._failed)
            self.manager = AnsweredManager(
                self.id,
                self.store,
                SimulatedTopics(self.cluster.settings.decisions.min_insync_replicas),
                lambda: self.cluster.random.randint(1, 2**31 - 1),
                self._settings,
            )
            self.manager.set_broker_epoch(self.epoch)
            self._images.register(self, Phase.REPLICA_MANAGER)
            self._isr_number += 1
        self._images.publish(self.view.next_offset)
        self._compact(self._images)
        self._after()

    def _compact(self, images: ImagePublishing) -> None:
        """Compact the table where half of it is dead; a node does so from more rows on."""
        table = self.view.table
        dead = table.row_count - table.partition_count
        if dead >= max(table.partition_count, 1) and self.view.transaction_start is None:
            self.view.compact()
            self.cluster.counts["broker_compactions"] += 1
            images.publish_renumbered()

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        assert self.manager is not None
        self.manager.apply_delta(delta, image, self.cluster.now)

    def _failed(self, name: str, error: Exception) -> None:
        if isinstance(error, Violation):
            raise error
        raise AssertionError(f"{self}: {name} failed: {error!r}") from error

    def _look_at_isrs(self, life: int, _b: None = None, _c: None = None) -> None:
        """Do nothing: the replica manager proposes the ISRs."""

    # -- the replica manager

    def run(self, call: Callable[[ReplicaManager, float], None]) -> bool:
        """Call the replica manager, and carry its output out; return whether it runs."""
        if not self.is_up or self.manager is None:
            return False
        self.cluster.events += 1
        call(self.manager, self.cluster.now)
        self._after()
        return True

    def _after(self) -> None:
        manager, cluster = self.manager, self.cluster
        if manager is None:
            return
        self._check()
        output = manager.take_output(cluster.now)
        for answer in output.answers:
            assert callable(answer.token)
            manager.answered(answer.token)
            answer.token(answer.response)
        manager.check(cluster.now, self.paused_until)
        for fetch in output.fetches:
            self._send_fetch(fetch)
        for query in output.queries:
            self._send_query(query)
        if output.isr_changes is not None:
            self._send_isr_changes(output.isr_changes)
        for directory in output.directories:
            self._assign(self.life, directory)
        self._wake_number += 1
        if output.wake_at_ms < float("inf"):
            at = max(output.wake_at_ms, cluster.now) + 0.01
            cluster.at(at, self._wake, self.life, self._wake_number)

    def _wake(self, life: int, number: int, _c: None = None) -> None:
        if life != self.life or number != self._wake_number:
            return
        if self.paused_until > self.cluster.now:
            self.cluster.at(self.paused_until, self._wake, life, number)
        else:
            self.run(ReplicaManager.tick)

    def _check(self) -> None:
        assert self.manager is not None
        partitions = self.manager.partitions
        for id in [id for id in self._seen if id not in partitions]:
            del self._seen[id]
        for id, partition in partitions.items():
            if partition.log is None:
                continue
            self._checks.within_the_log(self.id, partition)
            # A replica that comes back may have to truncate: it is compared from here on.
            high_watermark, led_epoch = self._seen.get(id, (partition.high_watermark, -1))
            if partition.is_leader and partition.leader_epoch != led_epoch:
                led_epoch = partition.leader_epoch
                self._checks.leads(self.id, partition)
            if not partition.is_leader:
                led_epoch = -1
            if partition.high_watermark > high_watermark:
                self._checks.high_watermark_rose(self.id, partition, high_watermark)
            elif partition.high_watermark < high_watermark:
                self._checks.high_watermark_fell(self.id, partition, high_watermark)
            self._seen[id] = partition.high_watermark, led_epoch

    def describe_replica(self, id: PartitionId) -> str:
        """Return the state of a replica for messages."""
        manager = self.manager
        if manager is None:
            return f"{self} does not run"
        fetching = manager.fetching
        return (
            f"{self} of epoch {self.epoch}: {manager.partitions.get(id)}, fetches from "
            f"{fetching.leader_of(id)}, failure {fetching.failed.get(id)}"
        )

    # -- requests to other brokers

    def deliver(self, life: int, arrive: Callable[..., None], *given: Any) -> None:
        """Call ``arrive`` in the process of this life, after a pause."""
        if life != self.life or not self.is_up:
            return
        if self.paused_until > self.cluster.now:
            self.cluster.at(self.paused_until, self._deliver_later, life, arrive, given)
        else:
            arrive(*given)

    def _deliver_later(
        self, life: int, arrive: Callable[..., None], given: tuple[Any, ...]
    ) -> None:
        self.deliver(life, arrive, *given)

    def ask(
        self,
        source: int,
        request: Callable[[ReplicaManager, float, Callable[[Any], None]], None],
        on_answer: Callable[[Any], None],
    ) -> None:
        """Handle a request of ``source``, which arrives now or after a pause."""

        def reply(response: Any) -> None:
            self.cluster.send(self.id, source, on_answer, response)

        def handle() -> None:
            self.run(lambda manager, now: request(manager, now, reply))

        self.deliver(self.life, handle)

    def _call(
        self,
        target: int,
        request: Callable[[ReplicaManager, float, Callable[[Any], None]], None],
        answered: Callable[[ReplicaManager, Any, float], None],
    ) -> None:
        """Send a request to a broker; its answer is None after `REQUEST_TIMEOUT_MS`."""
        life, is_open = self.life, [True]

        def on_answer(response: Any) -> None:
            self.deliver(life, finish, response)

        def finish(response: Any) -> None:
            if is_open[0] and life == self.life:
                is_open[0] = False
                self.run(lambda manager, now: answered(manager, response, now))

        def timed_out(_a: None, _b: None, _c: None) -> None:
            self.deliver(life, finish, None)

        cluster, peer = self.cluster, self._peers.get(target)
        if isinstance(peer, ReplicaBroker):
            cluster.send(self.id, target, peer.ask, self.id, request, on_answer)
        cluster.at(cluster.now + REQUEST_TIMEOUT_MS, timed_out)

    def _send_fetch(self, fetch: FetchToSend) -> None:
        def ask(manager: ReplicaManager, now: float, reply: Callable[[Any], None]) -> None:
            manager.fetch(lambda response: reply(received_fetch(response)), fetch.request, now)

        def answered(manager: ReplicaManager, response: Any, now: float) -> None:
            self.cluster.counts["replica_fetches"] += response is not None
            truncations = manager.fetching.truncation_count
            manager.fetched(fetch.leader_id, fetch.number, response, now)
            self.cluster.counts["replica_truncations"] += (
                manager.fetching.truncation_count - truncations
            )

        self._call(fetch.leader_id, ask, answered)

    def _send_query(self, query: OffsetQuery) -> None:
        self.cluster.counts["offset_queries"] += 1

        def ask(manager: ReplicaManager, now: float, reply: Callable[[Any], None]) -> None:
            reply(
                manager.list_offset(
                    query.id,
                    query.timestamp_ms,
                    leader_epoch=query.leader_epoch,
                    from_follower=True,
                )
            )

        def answered(manager: ReplicaManager, response: ListedOffset | None, now: float) -> None:
            manager.offset_listed(query, response, now)

        self._call(query.leader_id, ask, answered)

    # -- requests to the controllers

    def _send_isr_changes(self, proposals: Sequence[IsrProposal]) -> None:
        cluster, life, epoch = self.cluster, self.life, self.epoch
        self._isr_number += 1
        number = self._isr_number
        changes = [
            IsrChange(
                Uuid(each.id.topic_id),
                each.id.partition,
                each.leader_epoch,
                each.partition_epoch,
                each.isr,
            )
            for each in proposals
        ]

        def guard(context: DecisionContext, response: Any) -> None:
            self._check_epoch(context, epoch)

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            operation = guarded(requests.alter_partition(self.id, epoch, changes), guard)
            runner.submit(operation, on_answer, 3_000.0)

        def answered(response: Any, error: KraftError | None, controller_epoch: int) -> None:
            self.deliver(life, finish, response, error)

        def finish(response: Any, error: KraftError | None) -> None:
            if life != self.life or number != self._isr_number:
                return
            self._isr_number += 1
            if isinstance(error, NotControllerError):
                self.finder.try_next()
            result = None
            if error is None and response is not None:
                result = isr_change_response(response)
                for outcome in result.partitions.values():
                    name = f"isr_error_{outcome}" if isinstance(outcome, int) else "isr_changes"
                    cluster.counts[name] += 1
            elif error is not None and not isinstance(error, NotControllerError):
                result = IsrChangeResponse(error.kafka_code)
            self.run(lambda manager, now: manager.isr_answered(result, now))

        def timed_out(_a: None, _b: None, _c: None) -> None:
            self.deliver(life, finish, None, None)

        cluster.call(self.id, self.finder.target, submit, answered)
        cluster.at(cluster.now + 3_500.0, timed_out)

    def _assign(self, life: int, placed: ReplicaDirectory, _c: None = None) -> None:
        """Report the directory of a replica, until the controller has answered."""
        if life != self.life or self.epoch < 0:
            return
        cluster, epoch, is_open = self.cluster, self.epoch, [True]
        assignment = DirectoryAssignment(
            Uuid(placed.directory), Uuid(placed.id.topic_id), [placed.id.partition]
        )

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            operation = requests.assign_replicas_to_dirs(self.id, epoch, [assignment])
            runner.submit(operation, on_answer, 3_000.0)

        def answered(response: Any, error: KraftError | None, controller_epoch: int) -> None:
            if error is None:
                is_open[0] = False

        def repeat(_a: None, _b: None, _c: None) -> None:
            if is_open[0]:
                self._assign(life, placed)

        cluster.call(self.id, self.finder.target, submit, answered)
        cluster.at(cluster.now + 3_500.0, repeat)


def received_fetch(response: BrokerFetchResponse) -> ReceivedFetch:
    """Return a response as it arrives at a follower: the records are bytes."""
    partitions = []
    for each in response.partitions:
        records = each.records
        assert records is None or isinstance(records, ReplicaSlice)
        partitions.append(
            ReceivedPartition(
                each.id,
                each.error,
                each.high_watermark,
                each.log_start_offset,
                b"" if records is None else records.data,
                each.diverging_epoch,
            )
        )
    return ReceivedFetch(response.error, response.session_id, partitions)


def isr_change_response(response: Mapping[tuple[Uuid, int], Any]) -> IsrChangeResponse:
    """Return the outcomes of a controller's typed AlterPartition response."""
    outcomes: dict[PartitionId, CommittedIsr | int] = {}
    for (topic_id, partition), answer in response.items():
        id = PartitionId(bytes(topic_id), partition)
        if isinstance(answer, KraftError):
            outcomes[id] = answer.kafka_code
        else:
            outcomes[id] = CommittedIsr(
                answer.leader, answer.leader_epoch, answer.partition_epoch, answer.isr
            )
    return IsrChangeResponse(0, outcomes)


def replication_settings(choose: Callable[[Sequence[Any]], Any]) -> ReplicationSettings:
    """Draw the settings of the replication of a seed."""
    return ReplicationSettings(
        max_lag_ms=choose((1_500.0, 4_000.0, 30_000.0)),
        fetcher=FetcherSettings(
            max_wait_ms=choose((100, 500)),
            partition_max_bytes=choose((200, 1 << 20)),
            max_bytes=choose((400, 10 << 20)),
            backoff_ms=choose((100.0, 1_000.0)),
        ),
        max_fetch_sessions=choose((0, 2, 1_000)),
    )
