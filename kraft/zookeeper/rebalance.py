"""Finds the brokers that lead too few of the partitions that prefer them.

Rules: ``checkAndTriggerPartitionRebalance`` of Kafka 0.8.2.2, the same as
``checkAndTriggerAutoLeaderRebalance`` of 1.1.1.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from kraft.zookeeper.context import ControllerContext
from kraft.zookeeper.settings import ZkControllerSettings
from kraft.zookeeper.states import PartitionKey


def missing_preferred_leaders(
    context: ControllerContext, settings: ZkControllerSettings, is_queued: Callable[[str], bool]
) -> list[PartitionKey]:
    """Return the partitions to elect preferred leaders for, broker by broker.

    These are the partitions that another broker leads, of each broker for which they are a larger
    share than the settings allow. Topics that are queued for deletion are left out.
    """
    by_leader = sorted(
        (context.assignment(key)[0], key)
        for key in context.partitions()
        if context.assignment(key) and not is_queued(key[0])
    )
    limit = settings.leader_imbalance_per_broker_percentage / 100
    found: list[PartitionKey] = []
    for broker, group in groupby(by_leader, key=lambda pair: pair[0]):
        keys = [key for _, key in group]
        elsewhere = [
            key
            for key in keys
            if (leadership := context.leadership(key)) is not None and leadership.leader != broker
        ]
        if len(elsewhere) / len(keys) > limit:
            found += elsewhere
    return found


def may_rebalance(context: ControllerContext, key: PartitionKey) -> bool:
    """Return whether a preferred leader may be elected now: it lives, and no replica moves."""
    return (
        not context.reassigned
        and context.has_partition(key)
        and context.is_online(context.assignment(key)[0], key)
    )
