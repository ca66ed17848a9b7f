"""Moves partitions to other replicas, as ``/admin/reassign_partitions`` asks.

First the partition has old and new replicas; when all new ones are in the ISR, one of them leads,
the old ones are deleted, and the request loses the partition.

Rules: ``onPartitionReassignment`` and its neighbours in ``KafkaController.scala`` of Kafka 0.8.2.2
and 1.1.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from kraft.zookeeper import znodes
from kraft.zookeeper.context import ControllerContext
from kraft.zookeeper.controller_znodes import ControllerZnodes
from kraft.zookeeper.elections import ElectionStrategy
from kraft.zookeeper.state_machines import StateMachines
from kraft.zookeeper.states import PartitionKey, ZkPartitionState, ZkReplicaState
from kraft.zookeeper.topic_deletion import TopicDeletionManager

_log = logging.getLogger(__name__)


class PartitionReassignments:
    """The reassignments in progress; their wanted replicas are in the context.

    ``on_finished`` is called when the request has no partition left and was deleted. As in 0.8,
    ``needs_live_replicas`` drops requests with a replica on a dead broker.
    """

    def __init__(
        self,
        context: ControllerContext,
        tree: ControllerZnodes,
        machines: StateMachines,
        deletion: TopicDeletionManager,
        on_finished: Callable[[], None],
        *,
        needs_live_replicas: bool = False,
    ) -> None:
        self._needs_live_replicas = needs_live_replicas
        self._context = context
        self._tree = tree
        self._machines = machines
        self._deletion = deletion
        self._on_finished = on_finished

    def begin(self, keys: Iterable[PartitionKey]) -> None:
        """Begin or continue the reassignments of these partitions, which the context has.

        Requests that cannot be carried out are logged and dropped.
        """
        for key in keys:
            wanted = self._context.reassigned[key]
            problem = ""
            if self._deletion.is_queued(key[0]):
                problem = "its topic is being deleted"
            elif not self._context.has_partition(key):
                problem = "it does not exist"
            elif not wanted or len(set(wanted)) < len(wanted):
                problem = f"the replicas {list(wanted)} are none or not distinct"
            elif self._context.leadership(key) is None:
                problem = "it never had a leader"
            elif self._needs_live_replicas and not all(map(self._context.is_live, wanted)):
                problem = f"not all of the replicas {list(wanted)} are alive"
            if problem:
                _log.warning("partition %s-%d is not reassigned: %s", *key, problem)
                self._remove(key)
            elif self._context.assignment(key) == wanted:
                self._remove(key)
            else:
                self._tree.watch(znodes.state_path(*key))
                self._deletion.mark_ineligible([key[0]])
                self.proceed(key)

    def forget_topic(self, topic: str) -> None:
        """Drop the reassignments of a topic that is gone."""
        for key in [key for key in self._context.reassigned if key[0] == topic]:
            self._remove(key)

    def proceed(self, key: PartitionKey) -> None:
        """Take the next step of a reassignment."""
        context = self._context
        wanted = context.reassigned[key]
        known = self._tree.states([key])[key]
        if known is not None and set(wanted) <= set(known[0].isr):
            self._finish(key, wanted)
        else:
            self._add_replicas(key, wanted)

    def _add_replicas(self, key: PartitionKey, wanted: Sequence[int]) -> None:
        context = self._context
        old = context.assignment(key)
        both = (*wanted, *(one for one in old if one not in wanted))
        self._write_assignment(key, both)
        self._raise_leader_epoch(key, both, both)
        for broker in wanted:
            if broker not in old:
                self._machines.change_replicas([(key, broker)], ZkReplicaState.NEW)

    def _finish(self, key: PartitionKey, wanted: tuple[int, ...]) -> None:
        context, machines = self._context, self._machines
        before = context.assignment(key)
        for broker in wanted:
            machines.change_replicas([(key, broker)], ZkReplicaState.ONLINE)
        context.set_assignment(key, wanted)
        leadership = context.leadership(key)
        leader = -1 if leadership is None else leadership.leader
        if leader in wanted and context.is_online(leader, key):
            self._raise_leader_epoch(key, before, wanted)
        else:
            machines.change_partitions([key], ZkPartitionState.ONLINE, ElectionStrategy.REASSIGN)
        removed = [(key, broker) for broker in before if broker not in wanted]
        for state in (
            ZkReplicaState.OFFLINE,
            ZkReplicaState.DELETION_STARTED,
            ZkReplicaState.DELETION_SUCCESSFUL,
            ZkReplicaState.NON_EXISTENT,
        ):
            machines.change_replicas(removed, state)
        self._write_assignment(key, wanted)
        self._remove(key)
        batch = machines.new_batch()
        batch.add_update_metadata(context.brokers, [key])
        machines.send(batch)
        self._deletion.resume([key[0]])

    def _raise_leader_epoch(
        self, key: PartitionKey, brokers: Sequence[int], replicas: Sequence[int]
    ) -> None:
        leadership = self._machines.raise_leader_epoch(key)
        if leadership is not None:
            batch = self._machines.new_batch()
            batch.add_leader_and_isr(brokers, key, leadership, replicas, is_new=False)
            self._machines.send(batch)

    def _write_assignment(self, key: PartitionKey, replicas: Sequence[int]) -> None:
        context = self._context
        context.set_assignment(key, replicas)
        self._tree.write_assignment(
            key[0], {other[1]: context.assignment(other) for other in context.partitions_of(key[0])}
        )

    def _remove(self, key: PartitionKey) -> None:
        """Remove a partition from the request, and from the context."""
        del self._context.reassigned[key]
        self._tree.unwatch(znodes.state_path(*key))
        self._tree.write_reassignments(self._context.reassigned)
        if not self._context.reassigned:
            self._on_finished()
