"""The controller of 2018: Kafka 1.1's, on ZooKeeper, with one queue of events.

Pure: it reaches ZooKeeper through `port.ZooKeeperPort` and brokers through
`broker_requests.BrokerChannels`; the caller passes the time and processes the events that the
controller puts, one after the other, in one thread (`event_loop`).

Invariants: a controller acts only between its conditional write of ``/controller_epoch`` and its
resignation, so that no two act in one epoch. Any error while it becomes active makes it resign:
it forgets its context and deletes ``/controller``, which starts the next election.

Rules: ``KafkaController.scala`` of Kafka 1.1.1. Different here: an error of ZooKeeper in a state
machine makes the controller resign, and a resignation does not delete the znode of another
controller (both as in Kafka 2.1, KAFKA-6082). Delegation tokens are not expired.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from kraft import errors
from kraft.errors import InvalidArgumentError, KraftError, NotControllerError, ZooKeeperError
from kraft.zookeeper import znodes
from kraft.zookeeper.broker_requests import (
    BrokerChannels,
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    StopReplica,
)
from kraft.zookeeper.context import ControllerContext
from kraft.zookeeper.controller_znodes import ControllerMovedError, ControllerZnodes
from kraft.zookeeper.elections import ElectionStrategy
from kraft.zookeeper.events import (
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    BrokerModifications,
    BrokerResponseReceived,
    ControlledShutdown,
    ControllerChange,
    ControllerEvent,
    Expire,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignment,
    PartitionReassignmentIsrChange,
    PreferredReplicaLeaderElection,
    Reelect,
    RegisterBrokerAndReelect,
    Startup,
    TopicDeletion,
    TopicsChange,
)
from kraft.zookeeper.loading import load_topics, read_leaders, unfinished_elections
from kraft.zookeeper.port import ZkEvent, ZkSessionExpiredError, ZooKeeperPort
from kraft.zookeeper.reassignment import PartitionReassignments
from kraft.zookeeper.rebalance import may_rebalance, missing_preferred_leaders
from kraft.zookeeper.settings import ZkControllerSettings
from kraft.zookeeper.state_machines import ZkStateMachines
from kraft.zookeeper.states import PartitionKey, ReplicaKey, ZkPartitionState, ZkReplicaState
from kraft.zookeeper.topic_deletion import TopicDeletionManager
from kraft.zookeeper.watches import WATCHED_CHILDREN, event_of
from kraft.zookeeper.znodes import BrokerZnode

_log = logging.getLogger(__name__)

NO_CONTROLLER = -1
_FIRST_REBALANCE_MS = 5000
_RETRY_MS = 1000


class ZkController:
    """One candidate, and while it is elected the active controller.

    ``registration`` is the znode below ``/brokers/ids`` that it keeps while it is active; there
    brokers find it for ControlledShutdown. ``put(event, delay_ms)`` queues an event; `Expire`
    replaces all that wait. It is called from any thread.
    """

    def __init__(
        self,
        broker_id: int,
        port: ZooKeeperPort,
        channels: BrokerChannels,
        *,
        put: Callable[[ControllerEvent, int], None],
        now_ms: Callable[[], int],
        settings: ZkControllerSettings | None = None,
        registration: BrokerZnode | None = None,
    ) -> None:
        if registration is not None and registration.id != broker_id:
            raise InvalidArgumentError(
                f"the registration is of broker {registration.id}, the controller is {broker_id}"
            )
        self.broker_id = broker_id
        self.settings = settings or ZkControllerSettings()
        #: The active controller, as far as this one knows.
        self.active_controller_id = NO_CONTROLLER
        #: Processed events by their class's name.
        self.event_counts: Counter[str] = Counter()
        self.context = ControllerContext()
        self._port = port
        self._channels = channels
        self._put = put
        self._now_ms = now_ms
        self._registration = registration
        self._is_elected = False
        self._tree = ControllerZnodes(port)
        self._make_parts()
        port.on_event = self._on_zookeeper_event
        port.on_expired = lambda: put(Expire(), 0)

    def _make_parts(self) -> None:
        """Create state machines and managers over an empty context."""
        self.context = context = ControllerContext()
        self.deletion = TopicDeletionManager(
            context,
            self._tree,
            is_enabled=self.settings.delete_topic_enable,
            on_deleted=self._forget_topic,
        )
        self.machines = ZkStateMachines(
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
        )

    @property
    def is_active(self) -> bool:
        """Whether it was elected in this session: ``/controller`` may still be of an old one."""
        return self._is_elected

    # -- events

    def process(self, event: ControllerEvent) -> None:
        """Process an event. Errors do not leave it: they are logged, or make it resign.

        After ZkSessionExpiredError the event `Expire` follows.
        """
        self.event_counts[type(event).__name__] += 1
        try:
            self._dispatch(event)
        except ZkSessionExpiredError as error:
            _log.warning("controller %d: %s", self.broker_id, error)
        except ControllerMovedError as error:
            _log.warning("controller %d resigns: %s", self.broker_id, error)
            self.step_down()
        except KraftError as error:
            _log.error("controller %d: %s: %s", self.broker_id, type(event).__name__, error)
            if self.is_active:
                self.step_down()

    def _dispatch(self, event: ControllerEvent) -> None:
        match event:
            case Startup():
                self._tree.watch(znodes.CONTROLLER)
                self._tree.create_persistent_paths()
                self._elect()
            case RegisterBrokerAndReelect() | Reelect():
                self._look(elects=True)
            case ControllerChange():
                self._look(elects=False)
            case Expire():
                self._expire()
            case ControlledShutdown(broker, on_done):
                self._answer_shutdown(broker, on_done)
            case _:
                if self.is_active:
                    self._dispatch_active(event)

    def _dispatch_active(self, event: ControllerEvent) -> None:
        match event:
            case BrokerChange():
                self._brokers_changed()
            case BrokerModifications(broker):
                found = self._tree.brokers().get(broker)
                if found is not None and broker in self.context.brokers:
                    self.context.brokers[broker] = found
                    self._channels.set_brokers(self.context.brokers)
                    self._update_metadata()
            case TopicsChange():
                self._topics_changed()
            case PartitionModifications(topic):
                self._partitions_changed(topic)
            case TopicDeletion():
                self._delete_topics()
            case PartitionReassignment():
                self._reassign()
            case PartitionReassignmentIsrChange(key):
                self._continue_reassignment(key)
            case PreferredReplicaLeaderElection():
                if self._tree.watch(znodes.PREFERRED_ELECTION)[0]:
                    keys = self._tree.preferred_elections()
                    self._elect_preferred([k for k in keys if not self.deletion.is_queued(k[0])])
                    self._tree.delete_preferred_election()
            case AutoPreferredReplicaLeaderElection(epoch):
                if epoch == self.context.epoch:
                    self._rebalance()
            case IsrChangeNotification():
                self._isrs_changed()
            case LogDirEventNotification():
                self._directories_failed()
            case BrokerResponseReceived(broker, request, response):
                self._response_received(broker, request, response)

    def _on_zookeeper_event(self, event: ZkEvent) -> None:
        """Queue the event of a triggered watch. Called in any thread."""
        queued = event_of(event) if self._tree.is_watched(event.path) else None
        if queued is not None:
            self._put(queued, 0)

    # -- election

    def _look(self, *, elects: bool) -> None:
        """Find out who is active; resign if it was this controller; elect if there is none."""
        self._tree.watch(znodes.CONTROLLER)
        self.active_controller_id, is_mine = self._tree.controller()
        if self.is_active and not is_mine:
            self._resign()
            self._tree.unregister(self.broker_id)
        if elects:
            self._elect()
        elif self.active_controller_id == NO_CONTROLLER:
            # Created and deleted again before the watch was renewed: no event reports the deletion.
            self._put(Reelect(), _RETRY_MS)

    def _elect(self) -> None:
        self.active_controller_id, _ = self._tree.controller()
        if self.active_controller_id != NO_CONTROLLER:
            return
        if not self._tree.create_controller(self.broker_id, self._now_ms()):
            self.active_controller_id, _ = self._tree.controller()
            return
        self.active_controller_id = self.broker_id
        self._is_elected = True
        try:
            self._become_active()
        except KraftError as error:
            _log.error("controller %d could not become active: %s", self.broker_id, error)
            self.step_down()

    def _become_active(self) -> None:
        """Do what a new controller does, in Kafka's order (``onControllerFailover``)."""
        context, tree = self.context, self._tree
        context.epoch, context.epoch_version = tree.raise_controller_epoch(*tree.controller_epoch())
        _log.info("controller %d is active in epoch %d", self.broker_id, context.epoch)
        if self._registration is not None:
            tree.register(self._registration)
        tree.watch_children(*WATCHED_CHILDREN)
        tree.watch(znodes.PREFERRED_ELECTION, znodes.REASSIGN_PARTITIONS)
        tree.delete(tree.notification_paths())
        self._load_context()
        moving = {topic for topic, _ in context.reassigned}
        halted = moving | context.topics_with_offline_replicas()
        self.deletion.initialize(tree.topic_deletions(), halted)
        # Brokers need the addresses of leaders before they can follow them.
        self._update_metadata()
        self.machines.start()
        self.reassignments.begin(list(context.reassigned))
        self.deletion.proceed()
        keys = tree.preferred_elections()
        if keys:
            self._elect_preferred(unfinished_elections(context, keys, self.deletion.is_queued))
            tree.delete_preferred_election()
        if self.settings.auto_leader_rebalance_enable:
            self._put(AutoPreferredReplicaLeaderElection(context.epoch), _FIRST_REBALANCE_MS)

    def _load_context(self) -> None:
        context, tree = self.context, self._tree
        context.brokers = self._tree.brokers()
        tree.watch(*(znodes.broker_path(broker) for broker in context.brokers))
        load_topics(context, tree)
        self._channels.set_brokers(context.brokers)
        context.reassigned = tree.reassignments()

    # -- resignation

    def step_down(self) -> None:
        """Resign and delete ``/controller``, which starts an election."""
        self._resign()
        self.active_controller_id = NO_CONTROLLER
        try:
            self._tree.unregister(self.broker_id)
            self._tree.delete_controller()
        except KraftError as error:
            # The session has ended, or ends: the znode goes with it.
            _log.warning("controller %d: %s", self.broker_id, error)

    def _resign(self) -> None:
        """Forget everything that the active controller knows (``onControllerResignation``).

        Touches no znode: the session may have expired.
        """
        _log.info("controller %d resigns in epoch %d", self.broker_id, self.context.epoch)
        self._is_elected = False
        self._tree.watch_only(znodes.CONTROLLER)
        self._channels.set_brokers({})
        self._make_parts()

    def _expire(self) -> None:
        self.active_controller_id = NO_CONTROLLER
        self._resign()
        try:
            self._port.renew()
        except ZooKeeperError as error:
            _log.error("controller %d: %s", self.broker_id, error)
            self._put(Expire(), _RETRY_MS)
        else:
            self._put(RegisterBrokerAndReelect(), 0)

    # -- brokers

    def _update_metadata(self, keys: Collection[PartitionKey] | None = None) -> None:
        """Send the metadata of these partitions, or of all, to all brokers."""
        batch = self.machines.new_batch()
        batch.add_update_metadata(self.context.brokers, keys)
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
        context = self.context
        for broker in new:
            context.offline_directories.pop(broker, None)
        self._update_metadata()
        replicas = context.replicas_on(new)
        self.machines.change_replicas(replicas, ZkReplicaState.ONLINE)
        self.machines.elect_where_missing()
        for key, wanted in list(context.reassigned.items()):
            if not set(wanted).isdisjoint(new):
                self.reassignments.proceed(key)
        self.deletion.resume({key[0] for key, _ in replicas})
        self._tree.watch(*map(znodes.broker_path, new))

    def _brokers_failed(self, dead: Sequence[int]) -> None:
        self.context.shutting_down.difference_update(dead)
        self._replicas_offline(self.context.replicas_on(dead))
        self._tree.unwatch(*map(znodes.broker_path, dead))

    def _replicas_offline(self, replicas: Sequence[ReplicaKey]) -> None:
        """Elect new leaders, shrink the ISRs, and halt deletions after replicas went offline."""
        context, machines = self.context, self.machines
        leaderless = [
            key
            for key in context.partitions_with_offline_leader()
            if not self.deletion.is_queued(key[0])
        ]
        machines.change_partitions(leaderless, ZkPartitionState.OFFLINE)
        machines.elect_where_missing()
        machines.change_replicas(
            [one for one in replicas if not self.deletion.is_queued(one[0][0])],
            ZkReplicaState.OFFLINE,
        )
        self.deletion.replicas_failed(replicas)
        if not leaderless:
            self._update_metadata()

    def _directories_failed(self) -> None:
        """Ask the brokers for the state of their replicas: the response names the failed ones."""
        paths, brokers = self._tree.log_dir_events()
        live = sorted(brokers & set(self.context.brokers))
        self.machines.change_replicas(self.context.replicas_on(live), ZkReplicaState.ONLINE)
        self._tree.delete(paths)

    def _response_received(
        self, broker: int, request: BrokerRequest, response: BrokerResponse
    ) -> None:
        if isinstance(request, StopReplica) and request.delete:
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
        elif isinstance(request, LeaderAndIsr):
            if response.error:
                _log.warning("broker %d refuses LeaderAndIsr with error %d", broker, response.error)
                return
            before = self.context.offline_directories.get(broker, set())
            recovered = {key for key, error in response.partitions.items() if not error}
            failed = {
                key
                for key, error in response.partitions.items()
                if error == errors.KAFKA_STORAGE_ERROR
            }
            now = (before - recovered) | failed
            self.context.offline_directories[broker] = now
            if now - before:
                self._replicas_offline([(key, broker) for key in sorted(now - before)])

    # -- topics

    def _topics_changed(self) -> None:
        context, tree = self.context, self._tree
        topics = tree.topics()
        new, deleted = topics - context.topics, context.topics - topics
        context.topics = topics
        for topic in deleted:
            self._forget_topic(topic)
            context.remove_topic(topic)
        tree.watch(*map(znodes.topic_path, sorted(new)))
        self._create_partitions(tree.assignments(sorted(new)))

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
        for topic, assignment in assignments.items():
            self.context.add_partitions(topic, assignment)
        keys = [(topic, partition) for topic in assignments for partition in assignments[topic]]
        replicas = [(key, broker) for key in keys for broker in self.context.assignment(key)]
        machines = self.machines
        machines.change_partitions(keys, ZkPartitionState.NEW)
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
        refused = asked - known if self.settings.delete_topic_enable else asked
        if refused:
            tree.delete_topic_deletions(sorted(refused))
        if self.settings.delete_topic_enable and known:
            moving = {topic for topic, _ in context.reassigned}
            self.deletion.enqueue(known, halted=known & moving)

    def _isrs_changed(self) -> None:
        paths, found = self._tree.isr_changes()
        keys = [key for key in found if self.context.has_partition(key)]
        if keys:
            read_leaders(self.context, self._tree, keys)
            self._update_metadata(keys)
        self._tree.delete(paths)

    # -- leaders

    def _elect_preferred(self, keys: Sequence[PartitionKey]) -> None:
        self.machines.change_partitions(keys, ZkPartitionState.ONLINE, ElectionStrategy.PREFERRED)

    def _rebalance(self) -> None:
        """Elect preferred leaders where a broker lacks more of them than the settings allow."""
        context, settings = self.context, self.settings
        due = missing_preferred_leaders(context, settings, self.deletion.is_queued)
        self._elect_preferred([key for key in due if may_rebalance(context, key)])
        self._put(
            AutoPreferredReplicaLeaderElection(context.epoch),
            settings.leader_imbalance_check_interval_ms,
        )

    def _reassign(self) -> None:
        if self._tree.watch(znodes.REASSIGN_PARTITIONS)[0]:
            wanted = self._tree.reassignments()
            self.context.reassigned |= wanted
            self.reassignments.begin(list(wanted))

    def _continue_reassignment(self, key: PartitionKey) -> None:
        wanted = self.context.reassigned.get(key)
        if wanted is None:
            return
        found = self._tree.states([key])[key]
        if found is not None and set(wanted) <= set(found[0].isr):
            self.reassignments.proceed(key)

    def _answer_shutdown(
        self, broker: int, on_done: Callable[[list[PartitionKey] | KraftError], None]
    ) -> None:
        """Move leaders away from a broker; pass those that it keeps, or the error."""
        if not self.is_active:
            on_done(NotControllerError(f"controller {self.broker_id} is not active"))
            return
        if broker not in self.context.brokers:
            on_done(KraftError(f"broker {broker} is not registered"))
            return
        try:
            remaining = self._shut_down(broker)
        except KraftError as error:
            on_done(error)
            raise
        on_done(remaining)

    def _shut_down(self, broker: int) -> list[PartitionKey]:
        context, machines = self.context, self.machines
        context.shutting_down.add(broker)
        led: list[PartitionKey] = []
        followed: list[PartitionKey] = []
        for key, _ in context.replicas_on([broker]):
            leadership = context.leadership(key)
            if leadership is not None and len(context.assignment(key)) > 1:
                (led if leadership.leader == broker else followed).append(key)
        machines.change_partitions(
            led, ZkPartitionState.ONLINE, ElectionStrategy.CONTROLLED_SHUTDOWN
        )
        batch = machines.new_batch()
        for key in followed:
            batch.add_stop_replica(broker, key, delete=False)
        machines.send(batch)
        machines.change_replicas([(key, broker) for key in followed], ZkReplicaState.OFFLINE)
        return [
            key for key in context.partitions_led_by(broker) if len(context.assignment(key)) > 1
        ]
