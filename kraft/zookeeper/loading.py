"""Reads topics, partitions and their states into the context of a controller.

Rules: ``initializeControllerContext`` in ``KafkaController.scala`` of Kafka 0.8.2.2 and 1.1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kraft.zookeeper import znodes
from kraft.zookeeper.context import ControllerContext, Leadership
from kraft.zookeeper.controller_znodes import ControllerZnodes
from kraft.zookeeper.states import PartitionKey


def load_topics(context: ControllerContext, tree: ControllerZnodes) -> None:
    """Read all topics, the replicas of their partitions, and their states; watch the topics."""
    context.topics = tree.topics()
    tree.watch(*map(znodes.topic_path, context.topics))
    assignments = sorted(tree.assignments(sorted(context.topics)).items())
    leaderships = _leaderships(
        tree,
        [(topic, partition) for topic, assignment in assignments for partition in assignment],
    )
    for topic, assignment in assignments:
        context.add_partitions(topic, assignment, leaderships)


def read_leaders(
    context: ControllerContext, tree: ControllerZnodes, keys: Sequence[PartitionKey]
) -> None:
    """Read leaders and ISRs; partitions without them keep none."""
    context.set_leaderships(_leaderships(tree, keys).items())


def _leaderships(
    tree: ControllerZnodes, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, Leadership]:
    return {
        key: Leadership(
            state.leader, state.leader_epoch, state.isr, state.controller_epoch, version
        )
        for key, found in tree.states(keys).items()
        if found is not None
        for state, version in [found]
    }


def unfinished_elections(
    context: ControllerContext, keys: Collection[PartitionKey], is_queued: Callable[[str], bool]
) -> list[PartitionKey]:
    """Return the partitions that exist, stay, and are not led by their preferred replica."""
    return [
        key
        for key in keys
        if context.has_partition(key)
        and not is_queued(key[0])
        and (leadership := context.leadership(key)) is not None
        and leadership.leader != context.assignment(key)[0]
    ]
