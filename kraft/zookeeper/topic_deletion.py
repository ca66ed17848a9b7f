"""Deletes topics: stops and deletes their replicas, then removes their znodes.

A topic is queued by its znode below ``/admin/delete_topics``. It is ineligible while a replica's
broker is dead or a partition is being reassigned; `resume` makes it eligible again.

Rules: ``TopicDeletionManager.scala`` of Kafka 0.8.2.2 and 1.1.1. There the replicas of dead brokers
cannot become ineligible from OFFLINE, which is logged; here they are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kraft.zookeeper.context import ControllerContext
from kraft.zookeeper.controller_znodes import ControllerZnodes
from kraft.zookeeper.state_machines import StateMachines
from kraft.zookeeper.states import PartitionKey, ReplicaKey, ZkPartitionState, ZkReplicaState


class TopicDeletionManager:
    """The topics that wait for their deletion, and its progress.

    ``on_deleted`` is called with each deleted topic, before its znodes are removed. With
    ``on_changed`` the manager calls it instead of `proceed`, which its caller then calls: in 0.8 a
    thread of its own deletes topics.
    """

    def __init__(
        self,
        context: ControllerContext,
        tree: ControllerZnodes,
        *,
        is_enabled: bool,
        on_deleted: Callable[[str], None],
        on_changed: Callable[[], None] | None = None,
    ) -> None:
        self._on_changed = on_changed or self.proceed
        self.is_enabled = is_enabled
        self.queued: set[str] = set()
        self.ineligible: set[str] = set()
        #: The partitions of the queued topics; the same object for the manager's life.
        self.partitions: set[PartitionKey] = set()
        self._context = context
        self._tree = tree
        self._on_deleted = on_deleted
        self._machines: StateMachines

    def connect(self, machines: StateMachines) -> None:
        """Set the state machines, which need this manager too."""
        self._machines = machines

    def is_queued(self, topic: str) -> bool:
        """Return whether a topic waits for its deletion."""
        return topic in self.queued

    def initialize(self, queued: Collection[str], ineligible: Collection[str]) -> None:
        """Set the topics to delete after a failover. While deletion is disabled: drop them."""
        self.reset()
        if self.is_enabled:
            self._queue(queued)
            self.ineligible.update(self.queued.intersection(ineligible))
        else:
            self._tree.delete_topic_deletions(sorted(queued))

    def reset(self) -> None:
        """Forget everything, when the controller resigns."""
        self.queued.clear()
        self.ineligible.clear()
        self.partitions.clear()

    def enqueue(self, topics: Collection[str], halted: Collection[str] = ()) -> None:
        """Delete these topics, now if nothing prevents it; those in ``halted`` later."""
        if self.is_enabled:
            self._queue(topics)
            self.mark_ineligible(halted)
            self._on_changed()

    def _queue(self, topics: Collection[str]) -> None:
        self.queued.update(topics)
        for topic in topics:
            self.partitions.update(self._context.partitions_of(topic))

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """Keep those of these topics that are queued, until `resume`."""
        self.ineligible.update(self.queued.intersection(topics))

    def resume(self, topics: Iterable[str]) -> None:
        """Try again to delete those of these topics that are queued."""
        resumed = self.queued.intersection(topics)
        if resumed:
            self.ineligible -= resumed
            self._on_changed()

    def replicas_deleted(self, replicas: Iterable[ReplicaKey]) -> None:
        """Note that brokers have deleted replicas."""
        found = [one for one in replicas if one[0][0] in self.queued]
        self._machines.change_replicas(found, ZkReplicaState.DELETION_SUCCESSFUL)
        self._on_changed()

    def replicas_failed(self, replicas: Iterable[ReplicaKey]) -> None:
        """Note that brokers are dead or could not delete replicas; their topics wait."""
        found = [one for one in replicas if one[0][0] in self.queued]
        if found:
            started = [
                one
                for one in found
                if self._context.replica_state(one) == ZkReplicaState.DELETION_STARTED
            ]
            self._machines.change_replicas(started, ZkReplicaState.DELETION_INELIGIBLE)
            self.mark_ineligible(key[0] for key, _ in found)
            self._on_changed()

    def proceed(self) -> None:
        """Take the next step for each queued topic that is eligible."""
        for topic in sorted(self.queued):
            states = {self._context.replica_state(one) for one in self._context.replicas_of(topic)}
            if states <= {ZkReplicaState.DELETION_SUCCESSFUL}:
                self._complete(topic)
                continue
            is_running = ZkReplicaState.DELETION_STARTED in states
            if not is_running and ZkReplicaState.DELETION_INELIGIBLE in states:
                self._machines.change_replicas(
                    list(self._context.replicas_in(topic, ZkReplicaState.DELETION_INELIGIBLE)),
                    ZkReplicaState.OFFLINE,
                )
            if not is_running and topic not in self.ineligible:
                self._begin(topic)

    def _begin(self, topic: str) -> None:
        """Tell all brokers that the topic is going, and its live ones to delete their replicas."""
        context, machines = self._context, self._machines
        batch = machines.new_batch()
        batch.add_update_metadata(context.brokers, context.partitions_of(topic))
        machines.send(batch)
        replicas = context.replicas_of(topic)
        live = [one for one in replicas if context.is_online(one[1], one[0])]
        deleted = set(context.replicas_in(topic, ZkReplicaState.DELETION_SUCCESSFUL))
        if len(live) < len(replicas):
            self.mark_ineligible([topic])
        to_delete = [one for one in live if one not in deleted]
        machines.change_replicas(to_delete, ZkReplicaState.OFFLINE)
        machines.change_replicas(to_delete, ZkReplicaState.DELETION_STARTED)

    def _complete(self, topic: str) -> None:
        """Remove a topic whose replicas are all deleted."""
        context, machines = self._context, self._machines
        self._on_deleted(topic)
        keys = context.partitions_of(topic)
        machines.change_replicas(context.replicas_of(topic), ZkReplicaState.NON_EXISTENT)
        machines.change_partitions(keys, ZkPartitionState.OFFLINE)
        machines.change_partitions(keys, ZkPartitionState.NON_EXISTENT)
        self.queued.discard(topic)
        self.ineligible.discard(topic)
        self.partitions.difference_update(keys)
        self._tree.delete_topic(topic, [partition for _, partition in keys])
        context.remove_topic(topic)
