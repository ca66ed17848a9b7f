"""The state machines of partitions and replicas in the 2018 controller.

Each change of state takes many partitions at once: it reads and writes their znodes in pipelined
batches, updates the context, and sends the brokers one batch of requests. A partition whose change
is illegal or fails keeps its state; the failures are logged and returned.

An error of ZooKeeper itself passes through. (Kafka 1.1 logs it and goes on, and loses the change:
its own source says that this is not enough.)

Rules: ``PartitionStateMachine.scala``, ``ReplicaStateMachine.scala`` of Kafka 1.1.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from kraft.zookeeper.broker_requests import BrokerChannels, RequestBatch
from kraft.zookeeper.context import NO_LEADER, ControllerContext, Leadership
from kraft.zookeeper.controller_znodes import ControllerZnodes
from kraft.zookeeper.elections import (
    Elected,
    ElectionStrategy,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
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

_log = logging.getLogger(__name__)

Failures = dict[PartitionKey, StateChangeError]


class StateMachines(Protocol):
    """The state machines of partitions and replicas, of 0.8 or 2018."""

    def new_batch(self) -> RequestBatch:
        """Return an empty batch of requests."""

    def send(self, batch: RequestBatch) -> None:
        """Send the requests of a batch."""

    def change_partitions(
        self,
        keys: Iterable[PartitionKey],
        target: ZkPartitionState,
        strategy: ElectionStrategy = ElectionStrategy.OFFLINE,
    ) -> Failures:
        """Bring partitions into a state; return those that failed, with the reasons."""

    def change_replicas(
        self, replicas: Iterable[ReplicaKey], target: ZkReplicaState
    ) -> dict[ReplicaKey, StateChangeError]:
        """Bring replicas into a state; return those that failed, with the reasons."""

    def raise_leader_epoch(self, key: PartitionKey) -> Leadership | None:
        """Raise the leader epoch of a partition, so that its brokers follow its new replicas."""


def initialize_states(context: ControllerContext) -> list[ReplicaKey]:
    """Set the states of replicas and partitions after a failover; return the online replicas."""
    online = []
    for key in context.partitions():
        for broker in context.assignment(key):
            replica = key, broker
            if context.is_online(broker, key):
                online.append(replica)
                context.set_replica_state(replica, ZkReplicaState.ONLINE)
            else:
                context.set_replica_state(replica, ZkReplicaState.DELETION_INELIGIBLE)
    for key in context.partitions():
        leadership = context.leadership(key)
        if leadership is None:
            state = ZkPartitionState.NEW
        elif context.is_online(leadership.leader, key):
            state = ZkPartitionState.ONLINE
        else:
            state = ZkPartitionState.OFFLINE
        context.set_partition_state(key, state)
    return online


def unreadable_state(
    key: PartitionKey, found: tuple[PartitionStateZnode, int] | None, epoch: int, purpose: str
) -> StateChangeError | None:
    """Return the error if a partition's state is missing, or of a later controller epoch."""
    if found is None:
        return StateChangeError(
            f"cannot {purpose} for partition {partition_name(key)}: it has no state in ZooKeeper"
        )
    if found[0].controller_epoch > epoch:
        return StateChangeError(
            f"cannot {purpose} for partition {partition_name(key)}: controller epoch "
            f"{found[0].controller_epoch} wrote its state, and this controller has {epoch}: "
            "another one was elected"
        )
    return None


def no_live_replica(context: ControllerContext, key: PartitionKey) -> StateChangeError:
    """Return the error of a new partition that nobody can lead."""
    return StateChangeError(
        f"partition {partition_name(key)} cannot go from NEW to ONLINE: none of its replicas "
        f"{list(context.assignment(key))} is alive; live brokers are {sorted(context.brokers)}"
    )


def state_not_created(key: PartitionKey) -> StateChangeError:
    """Return the error of a new partition whose state could not be created."""
    return StateChangeError(
        f"partition {partition_name(key)} cannot go from NEW to ONLINE: another controller wrote "
        "its state, or its topic was deleted"
    )


def no_leader(
    context: ControllerContext,
    key: PartitionKey,
    state: PartitionStateZnode,
    strategy: ElectionStrategy,
) -> StateChangeError:
    """Return the error of an election without a candidate."""
    live = [broker for broker in sorted(context.brokers) if context.is_live(broker)]
    return StateChangeError(
        f"partition {partition_name(key)} has no leader to elect ({strategy.value}): replicas "
        f"{list(context.assignment(key))}, ISR {list(state.isr)}, live brokers {live}"
    )


def unclean_topics(
    tree: ControllerZnodes, topics: Collection[str], *, by_default: bool
) -> dict[str, bool]:
    """Return whether topics may lose records to get a leader, as their configs say."""
    default = "true" if by_default else "false"
    return {
        topic: config.get("unclean.leader.election.enable", default).lower() == "true"
        for topic, config in tree.topic_configs(sorted(topics)).items()
    }


def start_replica(
    context: ControllerContext, broker: int, key: PartitionKey, batch: RequestBatch
) -> None:
    """Let a replica lead or follow, or add a new one to its partition's replicas."""
    replicas, leadership = context.assignment(key), context.leadership(key)
    if context.replica_state((key, broker)) == ZkReplicaState.NEW:
        if broker not in replicas:
            context.set_assignment(key, (*replicas, broker))
    elif leadership is not None:
        batch.add_leader_and_isr([broker], key, leadership, replicas, is_new=False)


class ZkStateMachines:
    """Both machines; they share context, tree and requests.

    ``is_queued`` tells whether a topic waits for its deletion; ``being_deleted`` are the partitions
    of such topics.
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
        return RequestBatch(self._controller_id, self._context, self._being_deleted)

    def send(self, batch: RequestBatch) -> None:
        """Send the requests of a batch."""
        batch.send(self._channels)

    # -- start

    def start(self) -> None:
        """Find the states of all replicas and partitions after a failover, and act on them."""
        self.change_replicas(initialize_states(self._context), ZkReplicaState.ONLINE)
        self.elect_where_missing()

    def elect_where_missing(self) -> Failures:
        """Elect leaders for all new and offline partitions, except those to be deleted."""
        found = self._context.partitions_in(ZkPartitionState.NEW, ZkPartitionState.OFFLINE)
        return self.change_partitions(
            [key for key in found if not self._is_queued(key[0])],
            ZkPartitionState.ONLINE,
            ElectionStrategy.OFFLINE,
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
        legal = []
        for key in keys:
            state = self._context.partition_state(key)
            error = check_partition(key, state, target)
            if error is None:
                legal.append((key, state))
            else:
                failures[key] = error
        changed = [key for key, _ in legal]
        if target == ZkPartitionState.ONLINE and legal:
            batch = self.new_batch()
            new = [key for key, state in legal if state == ZkPartitionState.NEW]
            others = [key for key, state in legal if state != ZkPartitionState.NEW]
            changed = self._initialize(new, batch, failures)
            changed += self._elect(others, strategy, batch, failures)
            for key in changed:
                self._context.set_partition_state(key, target)
            self.send(batch)
        else:
            for key in changed:
                self._context.set_partition_state(key, target)
        report_failures(failures)
        return failures

    def _initialize(
        self, keys: Sequence[PartitionKey], batch: RequestBatch, failures: Failures
    ) -> list[PartitionKey]:
        """Write the first leader and ISR of new partitions; return those that have one now."""
        context = self._context
        states: dict[PartitionKey, PartitionStateZnode] = {}
        for key in keys:
            replicas = context.assignment(key)
            online = tuple(one for one in replicas if context.is_online(one, key))
            if online:
                states[key] = PartitionStateZnode(online[0], 0, online, context.epoch)
            else:
                failures[key] = no_live_replica(context, key)
        created: dict[PartitionKey, Leadership] = {}
        for key, is_created in self._tree.create_states(states).items():
            if is_created:
                state = states[key]
                created[key] = Leadership(state.leader, 0, state.isr, context.epoch, 0)
            else:
                failures[key] = state_not_created(key)
        context.set_leaderships(created.items())
        for key, leadership in created.items():
            batch.add_leader_and_isr(
                leadership.isr, key, leadership, context.assignment(key), is_new=True
            )
        return list(created)

    def _elect(
        self,
        keys: Sequence[PartitionKey],
        strategy: ElectionStrategy,
        batch: RequestBatch,
        failures: Failures,
    ) -> list[PartitionKey]:
        """Elect leaders; return the partitions that have a new one.

        Leaders write the same znodes: after a conflict the state is read again.
        """
        context = self._context
        changed: list[PartitionKey] = []
        remaining = list(keys)
        while remaining:
            states = self._readable_states(remaining, failures, "elect a leader")
            unclean = self._unclean_topics(states) if strategy == ElectionStrategy.OFFLINE else {}
            writes: dict[PartitionKey, tuple[PartitionStateZnode, int]] = {}
            recipients: dict[PartitionKey, tuple[int, ...]] = {}
            for key, (state, version) in states.items():
                elected, told = self._candidate(key, state, strategy, unclean.get(key[0], False))
                if elected is None:
                    failures[key] = no_leader(context, key, state, strategy)
                    continue
                recipients[key] = told
                writes[key] = (
                    PartitionStateZnode(
                        elected.leader, state.leader_epoch + 1, elected.isr, context.epoch
                    ),
                    version,
                )
            written, remaining = self._write(writes, failures)
            for key, leadership in written:
                batch.add_leader_and_isr(
                    recipients[key], key, leadership, context.assignment(key), is_new=False
                )
                changed.append(key)
        return changed

    def _candidate(
        self,
        key: PartitionKey,
        state: PartitionStateZnode,
        strategy: ElectionStrategy,
        unclean: bool,
    ) -> tuple[Elected | None, tuple[int, ...]]:
        """Return who would lead, and which brokers have to know."""
        context = self._context
        replicas = context.assignment(key)
        online = tuple(one for one in replicas if context.is_online(one, key))
        match strategy:
            case ElectionStrategy.OFFLINE:
                return elect_offline(replicas, state.isr, online, unclean=unclean), online
            case ElectionStrategy.REASSIGN:
                wanted = context.reassigned[key]
                live = [one for one in wanted if context.is_online(one, key)]
                return elect_reassigned(wanted, state.isr, live), wanted
            case ElectionStrategy.PREFERRED:
                return elect_preferred(replicas, state.isr, online), replicas
            case ElectionStrategy.CONTROLLED_SHUTDOWN:
                shutting_down = context.shutting_down
                return elect_for_shutdown(replicas, state.isr, online, shutting_down), online

    def _unclean_topics(
        self, states: dict[PartitionKey, tuple[PartitionStateZnode, int]]
    ) -> dict[str, bool]:
        """Return for topics with a partition without a live ISR whether they may lose records."""
        topics = {
            key[0]
            for key, (state, _) in states.items()
            if not any(self._context.is_online(one, key) for one in state.isr)
        }
        return unclean_topics(self._tree, topics, by_default=self._unclean_election)

    def _readable_states(
        self, keys: Sequence[PartitionKey], failures: Failures, purpose: str
    ) -> dict[PartitionKey, tuple[PartitionStateZnode, int]]:
        """Read states; those that are missing or of a later controller are failures."""
        found = {}
        for key, state in self._tree.states(keys).items():
            error = unreadable_state(key, state, self._context.epoch, purpose)
            if error is not None:
                failures[key] = error
            elif state is not None:
                found[key] = state
        return found

    def _write(
        self, writes: dict[PartitionKey, tuple[PartitionStateZnode, int]], failures: Failures
    ) -> tuple[list[tuple[PartitionKey, Leadership]], list[PartitionKey]]:
        """Write states and update the context; return the changes, and what to read again."""
        written, again = [], []
        for key, result in self._tree.write_states(writes).items():
            state = writes[key][0]
            if result.is_ok:
                leadership = Leadership(
                    state.leader, state.leader_epoch, state.isr, state.controller_epoch,
                    result.version,
                )  # fmt: skip
                written.append((key, leadership))
            else:
                # Without znode the next read reports it as missing.
                again.append(key)
        self._context.set_leaderships(written)
        return written, again

    def raise_leader_epoch(self, key: PartitionKey) -> Leadership | None:
        """Raise the leader epoch of a partition, so that its brokers follow its new replicas.

        Returns None if the partition has no state, or another controller wrote it.
        """
        failures: Failures = {}
        remaining = [key]
        while remaining:
            writes = {
                key: (
                    PartitionStateZnode(
                        state.leader, state.leader_epoch + 1, state.isr, self._context.epoch
                    ),
                    version,
                )
                for key, (state, version) in self._readable_states(
                    remaining, failures, "raise the leader epoch"
                ).items()
            }
            written, remaining = self._write(writes, failures)
            for _, leadership in written:
                return leadership
        report_failures(failures)
        return None

    # -- replicas

    def change_replicas(
        self, replicas: Iterable[ReplicaKey], target: ZkReplicaState
    ) -> dict[ReplicaKey, StateChangeError]:
        """Bring replicas into a state; return those that failed, with the reasons."""
        failures: dict[ReplicaKey, StateChangeError] = {}
        by_broker: dict[int, list[PartitionKey]] = {}
        for replica in replicas:
            error = check_replica(replica, self._context.replica_state(replica), target)
            if error is None:
                by_broker.setdefault(replica[1], []).append(replica[0])
            else:
                failures[replica] = error
        batch = self.new_batch()
        for broker, keys in by_broker.items():
            failed = self._change_replicas_of(broker, keys, target, batch)
            failures |= {(key, broker): error for key, error in failed.items()}
        self.send(batch)
        report_failures(failures)
        return failures

    def _change_replicas_of(
        self, broker: int, keys: Sequence[PartitionKey], target: ZkReplicaState, batch: RequestBatch
    ) -> Failures:
        context = self._context
        failures: Failures = {}
        match target:
            case ZkReplicaState.NEW:
                for key in keys:
                    leadership = context.leadership(key)
                    if leadership is not None and leadership.leader == broker:
                        failures[key] = StateChangeError(
                            f"replica {broker} of partition {partition_name(key)} cannot go from "
                            "NON_EXISTENT to NEW: it is to lead"
                        )
                    elif leadership is not None:
                        batch.add_leader_and_isr(
                            [broker], key, leadership, context.assignment(key), is_new=True
                        )
            case ZkReplicaState.ONLINE:
                for key in keys:
                    start_replica(context, broker, key, batch)
            case ZkReplicaState.OFFLINE:
                for key in keys:
                    batch.add_stop_replica(broker, key, delete=False)
                self._leave_isr(broker, keys, batch, failures)
            case ZkReplicaState.DELETION_STARTED:
                for key in keys:
                    batch.add_stop_replica(broker, key, delete=True)
            case ZkReplicaState.NON_EXISTENT:
                for key in keys:
                    context.set_assignment(
                        key, [one for one in context.assignment(key) if one != broker]
                    )
        for key in keys:
            if key not in failures:
                context.set_replica_state((key, broker), target)
        return failures

    def _leave_isr(
        self, broker: int, keys: Sequence[PartitionKey], batch: RequestBatch, failures: Failures
    ) -> None:
        """Remove a broker from the ISRs, except as their last member, and from leadership."""
        context = self._context
        changed: list[tuple[PartitionKey, Leadership]] = []
        remaining = [key for key in keys if context.leadership(key) is not None]
        while remaining:
            writes: dict[PartitionKey, tuple[PartitionStateZnode, int]] = {}
            unchanged: list[tuple[PartitionKey, Leadership]] = []
            states = self._readable_states(remaining, failures, f"stop replica {broker}")
            for key, (state, version) in states.items():
                if broker not in state.isr:
                    unchanged.append(
                        (
                            key,
                            Leadership(
                                state.leader, state.leader_epoch, state.isr, context.epoch, version
                            ),
                        )
                    )
                    continue
                isr = tuple(one for one in state.isr if one != broker) or state.isr
                leader = NO_LEADER if state.leader == broker else state.leader
                writes[key] = (
                    PartitionStateZnode(leader, state.leader_epoch + 1, isr, context.epoch),
                    version,
                )
            context.set_leaderships(unchanged)
            written, remaining = self._write(writes, failures)
            changed += unchanged + written
        for key in list(failures):
            # A topic that is being deleted may have lost its znodes already.
            if key in self._being_deleted:
                del failures[key]
        for key, leadership in changed:
            if key not in self._being_deleted:
                replicas = context.assignment(key)
                others = [one for one in replicas if one != broker]
                batch.add_leader_and_isr(others, key, leadership, replicas, is_new=False)


def partition_name(key: PartitionKey) -> str:
    """Return a partition's name in messages."""
    return f"{key[0]}-{key[1]}"


def report_failures(
    failures: dict[PartitionKey, StateChangeError] | dict[ReplicaKey, StateChangeError],
) -> None:
    """Log the reasons."""
    for error in failures.values():
        _log.warning("%s", error)
