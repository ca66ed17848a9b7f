"""The state machines of partitions and replicas as of Kafka 0.8.2.

Each change of state takes one partition after the other: it reads the partition's znode, writes it,
and adds to the requests, which the brokers get when all partitions are done. A partition whose
change is illegal or fails keeps its state; the failures are logged and returned.

Different from 2018: a new partition reads its topic's znode, and a new replica the partition's
state; the last broker leaves an ISR if the topic allows unclean elections; a preferred leader that
leads already is not elected again; a controlled shutdown elects the first of the ISR.

Different from Kafka 0.8: an error of ZooKeeper passes through; 0.8 logs it and loses the change. A
replica goes OFFLINE also if its partition has no state, as in 1.1: in 0.8 the deletion of its topic
never ends.

Rules: ``PartitionStateMachine.scala``, ``ReplicaStateMachine.scala``,
``PartitionLeaderSelector.scala`` and ``removeReplicaFromIsr`` of Kafka 0.8.2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kraft.zookeeper.broker_requests import BrokerChannels, RequestBatch
from kraft.zookeeper.context import NO_LEADER, ControllerContext, Leadership
from kraft.zookeeper.controller_znodes import ControllerZnodes
from kraft.zookeeper.elections import (
    Elected,
    ElectionStrategy,
    elect_for_shutdown_0_8,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)
from kraft.zookeeper.state_machines import (
    Failures,
    initialize_states,
    no_leader,
    no_live_replica,
    partition_name,
    report_failures,
    start_replica,
    state_not_created,
    unclean_topics,
    unreadable_state,
)
from kraft.zookeeper.states import (
    PartitionKey,
    ReplicaKey,
    StateChangeError,
    ZkPartitionState,
    ZkReplicaState,
    check_partition,
    check_replica,
)
from kraft.zookeeper.znodes import PartitionStateZnode


class SerialStateMachines:
    """Both machines of 0.8; implements `kraft.zookeeper.state_machines.StateMachines`.

    The arguments are those of ``ZkStateMachines``.
    """

    def __init__(
        self,
        controller_id: int,
        context: ControllerContext,
        tree: ControllerZnodes,
        channels: BrokerChannels,
        *,
        unclean_election: bool,
        is_queued: Callable[[str], bool],
        being_deleted: Collection[PartitionKey],
    ) -> None:
        self._controller_id = controller_id
        self._context = context
        self._tree = tree
        self._channels = channels
        self._unclean_election = unclean_election
        self._is_queued = is_queued
        self._being_deleted = being_deleted

    def new_batch(self) -> RequestBatch:
        """Return an empty batch of requests."""
        return RequestBatch(self._controller_id, self._context, self._being_deleted, is_0_8=True)

    def send(self, batch: RequestBatch) -> None:
        """Send the requests of a batch."""
        batch.send(self._channels)

    def start(self) -> None:
        """Find the states of all replicas and partitions after a failover, and act on them."""
        self.change_replicas(initialize_states(self._context), ZkReplicaState.ONLINE)
        self.elect_where_missing()

    def elect_where_missing(self) -> Failures:
        """Elect leaders for all new and offline partitions, except those to be deleted."""
        found = self._context.partitions_in(ZkPartitionState.NEW, ZkPartitionState.OFFLINE)
        return self.change_partitions(
            [key for key in found if not self._is_queued(key[0])], ZkPartitionState.ONLINE
        )

    # -- partitions

    def change_partitions(
        self,
        keys: Iterable[PartitionKey],
        target: ZkPartitionState,
        strategy: ElectionStrategy = ElectionStrategy.OFFLINE,
    ) -> Failures:
        """Bring partitions into a state; return those that failed, with the reasons."""
        failures: Failures = {}
        batch = self.new_batch()
        for key in keys:
            try:
                self._change_partition(key, target, strategy, batch)
            except StateChangeError as error:
                failures[key] = error
        self.send(batch)
        report_failures(failures)
        return failures

    def _change_partition(
        self,
        key: PartitionKey,
        target: ZkPartitionState,
        strategy: ElectionStrategy,
        batch: RequestBatch,
    ) -> None:
        context = self._context
        state = context.partition_state(key)
        error = check_partition(key, state, target)
        if error is not None:
            raise error
        if target == ZkPartitionState.NEW:
            context.set_assignment(key, self._tree.replicas(key))
        elif target == ZkPartitionState.ONLINE and state == ZkPartitionState.NEW:
            self._initialize(key, batch)
        elif target == ZkPartitionState.ONLINE:
            self._elect(key, strategy, batch)
        context.set_partition_state(key, target)

    def _initialize(self, key: PartitionKey, batch: RequestBatch) -> None:
        """Write the first leader and ISR of a new partition."""
        context = self._context
        replicas = context.assignment(key)
        live = tuple(one for one in replicas if context.is_live(one))
        if not live:
            raise no_live_replica(context, key)
        state = PartitionStateZnode(live[0], 0, live, context.epoch)
        if not self._tree.create_states({key: state})[key]:
            raise state_not_created(key)
        leadership = Leadership(state.leader, 0, state.isr, context.epoch, 0)
        context.set_leaderships([(key, leadership)])
        batch.add_leader_and_isr(live, key, leadership, replicas, is_new=True)

    def _elect(self, key: PartitionKey, strategy: ElectionStrategy, batch: RequestBatch) -> None:
        context = self._context
        known, replicas = context.leadership(key), context.assignment(key)
        if (
            strategy == ElectionStrategy.PREFERRED
            and known is not None
            and known.leader == replicas[0]
        ):
            return

        def elect(state: PartitionStateZnode) -> PartitionStateZnode:
            elected = self._candidate(key, state, strategy)
            if elected is None:
                raise no_leader(context, key, state, strategy)
            return PartitionStateZnode(
                elected.leader, state.leader_epoch + 1, elected.isr, context.epoch
            )

        leadership = self._update(key, "elect a leader", elect)
        batch.add_leader_and_isr(
            self._recipients(key, strategy), key, leadership, replicas, is_new=False
        )

    def _candidate(
        self, key: PartitionKey, state: PartitionStateZnode, strategy: ElectionStrategy
    ) -> Elected | None:
        """Return who would lead."""
        context = self._context
        replicas = context.assignment(key)
        live = [one for one in replicas if context.is_live(one)]
        match strategy:
            case ElectionStrategy.OFFLINE:
                unclean = not any(map(context.is_live, state.isr)) and self._allows_unclean(key[0])
                return elect_offline(replicas, state.isr, live, unclean=unclean)
            case ElectionStrategy.REASSIGN:
                wanted = context.reassigned[key]
                live = [one for one in wanted if context.is_live(one)]
                return elect_reassigned(wanted, state.isr, live)
            case ElectionStrategy.PREFERRED:
                return elect_preferred(replicas, state.isr, live)
            case ElectionStrategy.CONTROLLED_SHUTDOWN:
                return elect_for_shutdown_0_8(state.isr, context.shutting_down)

    def _recipients(self, key: PartitionKey, strategy: ElectionStrategy) -> list[int]:
        """Return the brokers that have to know of an election."""
        context = self._context
        replicas = context.assignment(key)
        match strategy:
            case ElectionStrategy.OFFLINE:
                return [one for one in replicas if context.is_live(one)]
            case ElectionStrategy.REASSIGN:
                return list(context.reassigned[key])
            case ElectionStrategy.PREFERRED:
                return list(replicas)
            case ElectionStrategy.CONTROLLED_SHUTDOWN:
                return [one for one in replicas if one in context.brokers]

    def _allows_unclean(self, topic: str) -> bool:
        return unclean_topics(self._tree, [topic], by_default=self._unclean_election)[topic]

    def raise_leader_epoch(self, key: PartitionKey) -> Leadership | None:
        """Raise the leader epoch of a partition, so that its brokers follow its new replicas.

        Returns None if the partition has no state, or another controller wrote it.
        """

        def raised(state: PartitionStateZnode) -> PartitionStateZnode:
            return PartitionStateZnode(
                state.leader, state.leader_epoch + 1, state.isr, self._context.epoch
            )

        try:
            return self._update(key, "raise the leader epoch", raised)
        except StateChangeError as error:
            report_failures({key: error})
            return None

    def _update(
        self,
        key: PartitionKey,
        purpose: str,
        change: Callable[[PartitionStateZnode], PartitionStateZnode | None],
    ) -> Leadership:
        """Read a state, write what ``change`` makes of it, and update the context.

        Without a change nothing is written. Leaders write the same znode: after a conflict the
        state is read again. Raises StateChangeError for a missing state or that of a later
        controller.
        """
        context = self._context
        while True:
            found = self._tree.states([key])[key]
            error = unreadable_state(key, found, context.epoch, purpose)
            if error is not None:
                raise error
            assert found is not None
            state, version = found
            changed = change(state)
            if changed is not None:
                result = self._tree.write_states({key: (changed, version)})[key]
                if not result.is_ok:
                    continue
                state, version = changed, result.version
            leadership = Leadership(
                state.leader, state.leader_epoch, state.isr, context.epoch, version
            )
            context.set_leaderships([(key, leadership)])
            return leadership

    # -- replicas

    def change_replicas(
        self, replicas: Iterable[ReplicaKey], target: ZkReplicaState
    ) -> dict[ReplicaKey, StateChangeError]:
        """Bring replicas into a state; return those that failed, with the reasons."""
        failures: dict[ReplicaKey, StateChangeError] = {}
        batch = self.new_batch()
        for replica in replicas:
            try:
                self._change_replica(replica, target, batch)
            except StateChangeError as error:
                failures[replica] = error
        self.send(batch)
        report_failures(failures)
        return failures

    def _change_replica(
        self, replica: ReplicaKey, target: ZkReplicaState, batch: RequestBatch
    ) -> None:
        context = self._context
        key, broker = replica
        error = check_replica(replica, context.replica_state(replica), target)
        if error is not None:
            raise error
        match target:
            case ZkReplicaState.NEW:
                self._create_replica(broker, key, batch)
            case ZkReplicaState.ONLINE:
                start_replica(context, broker, key, batch)
            case ZkReplicaState.OFFLINE:
                batch.add_stop_replica(broker, key, delete=False)
                self._leave_isr(broker, key, batch)
            case ZkReplicaState.DELETION_STARTED:
                batch.add_stop_replica(broker, key, delete=True)
            case ZkReplicaState.NON_EXISTENT:
                context.set_assignment(
                    key, [one for one in context.assignment(key) if one != broker]
                )
        context.set_replica_state(replica, target)

    def _create_replica(self, broker: int, key: PartitionKey, batch: RequestBatch) -> None:
        """Let a new replica follow, if its partition has a leader already."""
        found = self._tree.states([key])[key]
        if found is None:
            return
        state, version = found
        if state.leader == broker:
            raise StateChangeError(
                f"replica {broker} of partition {partition_name(key)} cannot go from "
                "NON_EXISTENT to NEW: it is to lead"
            )
        leadership = Leadership(
            state.leader, state.leader_epoch, state.isr, state.controller_epoch, version
        )
        batch.add_leader_and_isr(
            [broker], key, leadership, self._context.assignment(key), is_new=True
        )

    def _leave_isr(self, broker: int, key: PartitionKey, batch: RequestBatch) -> None:
        """Remove a broker from the ISR and from leadership.

        The last member stays, unless the topic allows unclean elections. The state of a topic that
        is being deleted may be missing.
        """
        context = self._context
        is_deleted = key in self._being_deleted
        if context.leadership(key) is None:
            return

        def without(state: PartitionStateZnode) -> PartitionStateZnode | None:
            if broker not in state.isr:
                return None
            isr = tuple(one for one in state.isr if one != broker)
            if not isr and not self._allows_unclean(key[0]):
                isr = state.isr
            leader = NO_LEADER if state.leader == broker else state.leader
            return PartitionStateZnode(leader, state.leader_epoch + 1, isr, context.epoch)

        try:
            leadership = self._update(key, f"stop replica {broker}", without)
        except StateChangeError:
            if is_deleted:
                return
            raise
        if not is_deleted:
            replicas = context.assignment(key)
            others = [one for one in replicas if one != broker]
            batch.add_leader_and_isr(others, key, leadership, replicas, is_new=False)
