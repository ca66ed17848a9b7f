"""The controller of 0.8: listeners of ZooKeeper, timers and requests, under one lock.

Several threads call it: those of ZooKeeper's changes, of topic deletions, of preferred elections,
and of the connections to brokers. Each takes the one lock for as long as it works, also while it
waits for ZooKeeper. Pure otherwise: the controller reaches ZooKeeper through `port.ZooKeeperPort`,
one operation at a time, and brokers through `broker_requests.BrokerChannels`.

Invariants: as of the controller of 2018, it acts only between its conditional write of
``/controller_epoch`` and its resignation. Any error while it becomes active makes it resign, by
deleting ``/controller``.

Rules: ``KafkaController.scala`` of Kafka 0.8.2.2. Different here:

- An error of ZooKeeper makes it resign; 0.8 logs it and loses the change.
- It resigns also if another controller has raised the epoch; 0.8 goes on with the old one.
- A request for preferred elections is deleted also if one of its partitions does not exist.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from kraft import errors
from kraft.errors import InvalidArgumentError, KraftError, NotControllerError, ZooKeeperError
from kraft.zookeeper import znodes
from kraft.zookeeper.broker_requests import (
    BrokerChannels,
    BrokerRequest,
    BrokerResponse,
    StopReplica,
)
from kraft.zookeeper.context import ControllerContext
from kraft.zookeeper.controller_znodes import ControllerZnodes
from kraft.zookeeper.elections import ElectionStrategy
from kraft.zookeeper.era_0_8.elector import LeaderElector
from kraft.zookeeper.era_0_8.state_machines import SerialStateMachines
from kraft.zookeeper.events import (
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    BrokerResponseReceived,
    ControllerChange,
    ListenerEvent,
    NewSession,
    PartitionModifications,
    PartitionReassignment,
    PartitionReassignmentIsrChange,
    PreferredReplicaLeaderElection,
    Reelect,
    Startup,
    TopicDeletion,
    TopicDeletionResumed,
    TopicsChange,
)
from kraft.zookeeper.loading import load_topics, unfinished_elections
from kraft.zookeeper.port import ZkEvent, ZkSessionExpiredError, ZooKeeperPort
from kraft.zookeeper.reassignment import PartitionReassignments
from kraft.zookeeper.rebalance import may_rebalance, missing_preferred_leaders
from kraft.zookeeper.sequential_port import SequentialPort
from kraft.zookeeper.settings import SETTINGS_0_8, ZkControllerSettings
from kraft.zookeeper.states import PartitionKey, ZkPartitionState, ZkReplicaState
from kraft.zookeeper.topic_deletion import TopicDeletionManager
from kraft.zookeeper.watches import event_of
from kraft.zookeeper.znodes import BrokerZnode

_log = logging.getLogger(__name__)

#: The version of registrations in 0.8.
_REGISTRATION_VERSION = 1
_FIRST_REBALANCE_MS = 5000
_RETRY_MS = 1000
#: Kafka's names of what is called for each event.
_CALLED: dict[type[ListenerEvent], str] = {
    AutoPreferredReplicaLeaderElection: "partition-rebalance-thread",
    BrokerChange: "BrokerChangeListener",
    ControllerChange: "LeaderChangeListener",
    NewSession: "SessionExpirationListener",
    PartitionModifications: "AddPartitionsListener",
    PartitionReassignment: "PartitionsReassignedListener",
    PartitionReassignmentIsrChange: "ReassignedPartitionsIsrChangeListener",
    PreferredReplicaLeaderElection: "PreferredReplicaElectionListener",
    Reelect: "LeaderChangeListener",
    TopicDeletion: "DeleteTopicsListener",
    TopicDeletionResumed: "DeleteTopicsThread",
    TopicsChange: "TopicChangeListener",
}


class ListenerController:
    """One candidate of 0.8, and while it is elected the active controller.

    ``registration`` is the znode below ``/brokers/ids`` that it keeps while it is active.
    ``put(event, delay_ms)`` lets a thread call `process` later. ``wait_ms`` pauses the calling
    thread: an elector waits a session timeout for the end of its own old session.
    """

    def __init__(
        self,
        broker_id: int,
        port: ZooKeeperPort,
        channels: BrokerChannels,
        *,
        put: Callable[[ListenerEvent, int], None],
        now_ms: Callable[[], int],
        wait_ms: Callable[[int], None],
        session_timeout_ms: int,
        settings: ZkControllerSettings = SETTINGS_0_8,
        registration: BrokerZnode | None = None,
    ) -> None:
        if registration is not None and registration.id != broker_id:
            raise InvalidArgumentError(
                f"the registration is of broker {registration.id}, the controller is {broker_id}"
            )
        self.broker_id = broker_id
        self.settings = settings
        #: Calls by the names of Kafka's listeners.
        self.event_counts: Counter[str] = Counter()
        self.context = ControllerContext()
        self._port = port
        self._channels = channels
        self._put = put
        self._registration = registration
        self._is_active = False
        # Taken again by what a listener calls.
        self._lock = threading.RLock()
        #: One controlled shutdown at a time; taken before the lock.
        self._shutdown_lock = threading.Lock()
        self._tree = ControllerZnodes(SequentialPort(port))
        self.elector = LeaderElector(
            broker_id,
            self._tree,
            is_active=lambda: self.is_active,
            on_elected=self._become_active,
            on_resigned=self._resign,
            now_ms=now_ms,
            wait_ms=wait_ms,
            session_timeout_ms=session_timeout_ms,
        )
        self._make_parts()
        port.on_event = self._on_zookeeper_event
        port.on_expired = lambda: put(NewSession(), 0)

    def _make_parts(self) -> None:
        """Create state machines and managers over an empty context."""
        self.context = context = ControllerContext()
        self.deletion = TopicDeletionManager(
            context,
            self._tree,
            is_enabled=self.settings.delete_topic_enable,
            on_deleted=self._forget_topic,
            on_changed=lambda: self._put(TopicDeletionResumed(), 0),
        )
        self.machines = SerialStateMachines(
            self.broker_id,
            context,
            self._tree,
            self._channels,
            unclean_election=self.settings.unclean_leader_election_enable,
            is_queued=self.deletion.is_queued,
            being_deleted=self.deletion.partitions,
        )
        self.deletion.connect(self.machines)
        self.reassignments = PartitionReassignments(
            context,
            self._tree,
            self.machines,
            self.deletion,
            lambda: self._put(PartitionReassignment(), 0),
            needs_live_replicas=True,
        )

    @property
    def is_active(self) -> bool:
        """Whether it was elected in this session: ``/controller`` may still be of an old one."""
        return self._is_active

    @property
    def active_controller_id(self) -> int:
        """The active controller, as far as this one knows; -1 without one."""
        return self.elector.leader_id

    # -- calls of listeners and threads

    def process(self, event: ListenerEvent) -> None:
        """Call what is registered for an event. Errors do not leave it: they make it resign.

        After ZkSessionExpiredError the event `NewSession` follows.
        """
        with self._resigning_on_errors():
            with self._lock:
                self.event_counts[_CALLED.get(type(event), type(event).__name__)] += 1
                if not isinstance(event, AutoPreferredReplicaLeaderElection):
                    self._call(event)
                    return
            self._rebalance(event.controller_epoch)

    @contextmanager
    def _resigning_on_errors(self) -> Iterator[None]:
        try:
            yield
        except ZkSessionExpiredError as error:
            _log.warning("controller %d: %s", self.broker_id, error)
        except KraftError as error:
            _log.error("controller %d: %s: %s", self.broker_id, type(error).__name__, error)
            if self.is_active:
                self.step_down()

    def _call(self, event: ListenerEvent) -> None:
        match event:
            case Startup():
                self._tree.create_persistent_paths(znodes.PERSISTENT_PATHS_0_8)
                self.elector.start()
            case ControllerChange() | Reelect():
                self.elector.leader_changed()
            case NewSession():
                self._new_session()
            case _:
                if self.is_active:
                    self._call_active(event)

    def _call_active(self, event: ListenerEvent) -> None:
        match event:
            case BrokerChange():
                self._brokers_changed()
            case TopicsChange():
                self._topics_changed()
            case PartitionModifications(topic):
                self._partitions_changed(topic)
            case TopicDeletion():
                self._delete_topics()
            case TopicDeletionResumed():
                self.deletion.proceed()
            case PartitionReassignment():
                self._reassign()
            case PartitionReassignmentIsrChange(key):
                self._continue_reassignment(key)
            case PreferredReplicaLeaderElection():
                if self._tree.watch(znodes.PREFERRED_ELECTION)[0]:
                    self._elect_preferred(self._tree.preferred_elections())
                    self._tree.delete_preferred_election()
            case BrokerResponseReceived(broker, request, response):
                self._response_received(broker, request, response)

    def _on_zookeeper_event(self, event: ZkEvent) -> None:
        """Queue the call of a listener. Called in any thread."""
        queued = event_of(event) if self._tree.is_watched(event.path) else None
        if queued is not None:
            self._put(queued, 0)

    def _new_session(self) -> None:
        self._resign()
        try:
            self._port.renew()
        except ZooKeeperError as error:
            _log.error("controller %d: %s", self.broker_id, error)
            self._put(NewSession(), _RETRY_MS)
        else:
            self.elector.start()

    def step_down(self) -> None:
        """Resign and delete ``/controller``, which starts an election."""
        with self._lock:
            self.elector.resign()

    # -- becoming active, and resigning

    def _become_active(self) -> None:
        """Do what a new controller does, in Kafka's order (``onControllerFailover``)."""
        self._is_active = True
        context, tree = self.context, self._tree
        context.epoch, context.epoch_version = tree.raise_controller_epoch(*tree.controller_epoch())
        _log.info("controller %d is active in epoch %d", self.broker_id, context.epoch)
        if self._registration is not None:
            tree.register(self._registration, _REGISTRATION_VERSION)
        tree.watch(znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION)
        tree.watch_children(znodes.TOPICS, znodes.BROKER_IDS)
        if self.deletion.is_enabled:
            tree.watch_children(znodes.DELETE_TOPICS)
        preferred = self._load_context()
        self.machines.start()
        self.reassignments.begin(list(context.reassigned))
        if preferred:
            self._elect_preferred(unfinished_elections(context, preferred, self.deletion.is_queued))
            tree.delete_preferred_election()
        self._update_metadata(context.brokers)
        if self.settings.auto_leader_rebalance_enable:
            self._put(AutoPreferredReplicaLeaderElection(context.epoch), _FIRST_REBALANCE_MS)
        if self.deletion.queued:
            self._put(TopicDeletionResumed(), 0)

    def _load_context(self) -> list[PartitionKey]:
        """Read the cluster from ZooKeeper; return the requested preferred elections."""
        context, tree = self.context, self._tree
        context.brokers = tree.brokers()
        load_topics(context, tree)
        self._channels.set_brokers(context.brokers)
        preferred = tree.preferred_elections()
        context.reassigned = tree.reassignments()
        if self.deletion.is_enabled:
            moving = {topic for topic, _ in context.reassigned}
            halted = moving | context.topics_with_offline_replicas()
            self.deletion.initialize(tree.topic_deletions(), halted)
        return preferred

    def _resign(self) -> None:
        """Forget everything that the active controller knows (``onControllerResignation``).

        Touches no znode: the session may have expired.
        """
        if self.is_active:
            _log.info("controller %d resigns in epoch %d", self.broker_id, self.context.epoch)
        self._is_active = False
        self._tree.watch_only(znodes.CONTROLLER)
        self._channels.set_brokers({})
        self._make_parts()

    # -- brokers

    def _update_metadata(
        self, brokers: Collection[int], keys: Collection[PartitionKey] | None = None
    ) -> None:
        """Send the metadata of these partitions, or of all, to brokers."""
        batch = self.machines.new_batch()
        batch.add_update_metadata(brokers, keys)
        self.machines.send(batch)

    def _brokers_changed(self) -> None:
        context = self.context
        before = set(context.brokers)
        context.brokers = self._tree.brokers()
        new = sorted(set(context.brokers) - before)
        dead = sorted(before - set(context.brokers))
        self._channels.set_brokers(context.brokers)
        if new:
            self._brokers_started(new)
        if dead:
            self._brokers_failed(dead)

    def _brokers_started(self, new: Sequence[int]) -> None:
        context, machines = self.context, self.machines
        self._update_metadata(new)
        replicas = context.replicas_on(new)
        machines.change_replicas(replicas, ZkReplicaState.ONLINE)
        machines.elect_where_missing()
        for key, wanted in list(context.reassigned.items()):
            if not set(wanted).isdisjoint(new):
                self.reassignments.proceed(key)
        self.deletion.resume({key[0] for key, _ in replicas})

    def _brokers_failed(self, dead: Sequence[int]) -> None:
        context, machines = self.context, self.machines
        context.shutting_down.difference_update(dead)
        is_queued = self.deletion.is_queued
        leaderless = [
            key for broker in dead for key in context.partitions_led_by(broker)
            if not is_queued(key[0])
        ]  # fmt: skip
        machines.change_partitions(leaderless, ZkPartitionState.OFFLINE)
        machines.elect_where_missing()
        replicas = context.replicas_on(dead)
        machines.change_replicas(
            [one for one in replicas if not is_queued(one[0][0])], ZkReplicaState.OFFLINE
        )
        self.deletion.replicas_failed(replicas)

    def _response_received(
        self, broker: int, request: BrokerRequest, response: BrokerResponse
    ) -> None:
        """Continue a deletion; other answers are not looked at."""
        if not isinstance(request, StopReplica) or not request.delete:
            return
        failed = {
            key
            for key in request.partitions
            if response.error or response.partitions.get(key, errors.NONE)
        }
        self.deletion.replicas_failed((key, broker) for key in failed)
        self.deletion.replicas_deleted(
            (key, broker)
            for key in request.partitions
            if key not in failed
            and self.context.replica_state((key, broker)) == ZkReplicaState.DELETION_STARTED
        )

    # -- topics

    def _topics_changed(self) -> None:
        context, tree = self.context, self._tree
        topics = tree.topics()
        new, deleted = sorted(topics - context.topics), context.topics - topics
        context.topics = topics
        for topic in deleted:
            self._forget_topic(topic)
            context.remove_topic(topic)
        tree.watch(*map(znodes.topic_path, new))
        self._create_partitions(tree.assignments(new))

    def _partitions_changed(self, topic: str) -> None:
        known = self._tree.assignments([topic])
        new = {
            partition: replicas
            for partition, replicas in known.get(topic, {}).items()
            if not self.context.has_partition((topic, partition))
        }
        if new and self.deletion.is_queued(topic):
            _log.warning("topic %s gets no new partitions: it is being deleted", topic)
        elif new:
            self._create_partitions({topic: new})

    def _create_partitions(self, assignments: dict[str, dict[int, tuple[int, ...]]]) -> None:
        context, machines = self.context, self.machines
        for topic, assignment in assignments.items():
            context.add_partitions(topic, assignment)
        keys = [(topic, partition) for topic in assignments for partition in assignments[topic]]
        machines.change_partitions(keys, ZkPartitionState.NEW)
        replicas = [(key, broker) for key in keys for broker in context.assignment(key)]
        machines.change_replicas(replicas, ZkReplicaState.NEW)
        machines.change_partitions(keys, ZkPartitionState.ONLINE)
        machines.change_replicas(replicas, ZkReplicaState.ONLINE)

    def _forget_topic(self, topic: str) -> None:
        self._tree.unwatch(znodes.topic_path(topic))
        self.reassignments.forget_topic(topic)

    def _delete_topics(self) -> None:
        context, tree = self.context, self._tree
        asked = tree.topic_deletions()
        known = asked & context.topics
        if asked - known:
            tree.delete_topic_deletions(sorted(asked - known))
        if known:
            moving = {topic for topic, _ in context.reassigned}
            self.deletion.enqueue(known, halted=known & moving)

    # -- leaders

    def _elect_preferred(self, keys: Sequence[PartitionKey]) -> None:
        """Elect preferred leaders, except of topics that are to be deleted."""
        found = [
            key
            for key in keys
            if self.context.has_partition(key) and not self.deletion.is_queued(key[0])
        ]
        self.machines.change_partitions(found, ZkPartitionState.ONLINE, ElectionStrategy.PREFERRED)

    def _rebalance(self, epoch: int) -> None:
        """Elect preferred leaders, one after the other, and let others have the lock in between."""

        def is_current() -> bool:
            return self.is_active and self.context.epoch == epoch

        with self._lock:
            if not is_current():
                return
            due = missing_preferred_leaders(self.context, self.settings, self.deletion.is_queued)
        for key in due:
            with self._lock:
                if not is_current():
                    return
                if may_rebalance(self.context, key):
                    self._elect_preferred([key])
        self._put(
            AutoPreferredReplicaLeaderElection(epoch),
            self.settings.leader_imbalance_check_interval_ms,
        )

    def _reassign(self) -> None:
        if self._tree.watch(znodes.REASSIGN_PARTITIONS)[0]:
            wanted = self._tree.reassignments()
            new = [key for key in wanted if key not in self.context.reassigned]
            self.context.reassigned |= {key: wanted[key] for key in new}
            self.reassignments.begin(new)

    def _continue_reassignment(self, key: PartitionKey) -> None:
        wanted = self.context.reassigned.get(key)
        if wanted is None:
            return
        found = self._tree.states([key])[key]
        if found is not None and set(wanted) <= set(found[0].isr):
            self.reassignments.proceed(key)

    def shut_down_broker(self, broker: int) -> list[PartitionKey]:
        """Move the leaders of a broker that wants to stop; return those that it keeps.

        Called in any thread. The lock is free between two partitions. Raises NotControllerError
        unless active, also if it resigns meanwhile, and KraftError for an unknown broker.
        """
        with self._shutdown_lock, self._resigning_after_errors():
            with self._lock:
                context = self.context
                self._ensure_active(context)
                if broker not in context.brokers:
                    raise InvalidArgumentError(f"broker {broker} is not registered")
                context.shutting_down.add(broker)
                keys = [key for key, _ in context.replicas_on([broker])]
            for key in keys:
                with self._lock:
                    self._ensure_active(context)
                    self._shut_down_replica(broker, key)
            with self._lock:
                self._ensure_active(context)
                return [
                    key
                    for key in context.partitions_led_by(broker)
                    if len(context.assignment(key)) > 1
                ]

    @contextmanager
    def _resigning_after_errors(self) -> Iterator[None]:
        """Let errors pass; resign after those of ZooKeeper, except that of an ended session."""
        try:
            yield
        except ZkSessionExpiredError:
            raise
        except ZooKeeperError:
            self.step_down()
            raise

    def _ensure_active(self, context: ControllerContext) -> None:
        """Raise NotControllerError unless it is active since ``context`` was made."""
        if not self.is_active or self.context is not context:
            raise NotControllerError(f"controller {self.broker_id} is not active")

    def _shut_down_replica(self, broker: int, key: PartitionKey) -> None:
        context, machines = self.context, self.machines
        leadership = context.leadership(key)
        if leadership is None or len(context.assignment(key)) < 2:
            return
        if leadership.leader == broker:
            machines.change_partitions(
                [key], ZkPartitionState.ONLINE, ElectionStrategy.CONTROLLED_SHUTDOWN
            )
            return
        batch = machines.new_batch()
        batch.add_stop_replica(broker, key, delete=False)
        machines.send(batch)
        machines.change_replicas([(key, broker)], ZkReplicaState.OFFLINE)
