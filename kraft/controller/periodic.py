"""What the active controller does of its own accord, from time to time.

Owns which tasks there are, when each is due, and that a task which fails is tried again later and
harms nothing else. A task that reports more to be done is due again after 10 ms. All begin one
period after the activation. Beside them the index from brokers to partitions, which a new
controller or one that has added many lacks: it is made in slices, before the first broker is fenced
for its silence. Source: Kafka's ``PeriodicTaskControlManager``,
``QuorumController.register...``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kraft import records
from kraft.controller.brokers import fence_stale_broker
from kraft.controller.decision import NO_RECORDS, Decision, Records
from kraft.controller.elections import balance_leaders, elect_unclean_leaders
from kraft.controller.event_queue import EventQueue
from kraft.controller.operations import Operation, Tip
from kraft.controller.settings import ControllerSettings
from kraft.controller.tokens import expire_tokens
from kraft.image.replay import Cluster
from kraft.records.versions import MetadataVersion

#: Due again after this where there is more to be done.
AGAIN_MS = 10
#: Due again after this where it failed.
RETRY_MS = 300_000
#: As many partitions are taken into the index at once, in a millisecond or two.
PARTITIONS_INDEXED_AT_ONCE = 25_000

_NEVER = float("inf")


class PeriodicTask(NamedTuple):
    """``decide`` answers whether there is more to be done."""

    name: str
    period_ms: float
    decide: Callable[[Tip], Decision[bool]]


class PeriodicTasks:
    """The tasks of one controller; they live in its queue's calendar."""

    def __init__(self, settings: ControllerSettings) -> None:
        # A session that has run out is found after an eighth of its length at the latest.
        tasks = [PeriodicTask("fence stale brokers", settings.session_timeout_ms / 8, _fence_stale)]
        for name, period_ms, decide in (
            ("balance leaders", settings.leader_imbalance_check_interval_ms, _balance),
            ("elect unclean leaders", settings.unclean_leader_election_interval_ms, _elect_unclean),
            ("write a no-op record", settings.max_idle_interval_ms, _write_no_op),
            ("expire tokens", settings.delegation_token_expiry_check_interval_ms, _expire_tokens),
        ):
            if period_ms is not None:
                tasks.append(PeriodicTask(name, period_ms, decide))
        self._indexing = PeriodicTask("index partitions", _NEVER, _index)
        self._tasks = {task.name: task for task in (*tasks, self._indexing)}

    def begin(self, queue: EventQueue[Operation], now_ms: float) -> None:
        """Every task is due one period from now."""
        for task in self._tasks.values():
            if task.period_ms < _NEVER:
                self._schedule(task, queue, now_ms + task.period_ms)

    def index_partitions(
        self, cluster: Cluster, queue: EventQueue[Operation], now_ms: float
    ) -> None:
        """Has the index made from now on, where it lacks more than is made at once when asked."""
        table = cluster.table
        if table.row_count - table.indexed_row_count > PARTITIONS_INDEXED_AT_ONCE:
            self._schedule(self._indexing, queue, now_ms)

    def failed(self, name: str, queue: EventQueue[Operation], now_ms: float) -> None:
        """The task of this name could not be done: it is due again later."""
        self._schedule(self._tasks[name], queue, now_ms + RETRY_MS)

    def _schedule(self, task: PeriodicTask, queue: EventQueue[Operation], at_ms: float) -> None:
        queue.schedule(task.name, at_ms, partial(self._operation, task, queue))

    def _operation(self, task: PeriodicTask, queue: EventQueue[Operation]) -> Operation:
        def applied(tip: Tip, is_more: bool) -> None:
            after_ms = AGAIN_MS if is_more else task.period_ms
            if after_ms < _NEVER:
                self._schedule(task, queue, tip.now_ms + after_ms)

        return Operation(task.name, task.decide, applied)


def _index(tip: Tip) -> Decision[bool]:
    return Decision(NO_RECORDS, tip.cluster.table.ensure_index(PARTITIONS_INDEXED_AT_ONCE))


def _fence_stale(tip: Tip) -> Decision[bool]:
    indexing = _index(tip)
    if indexing.response:
        return indexing
    return fence_stale_broker(tip.cluster, tip.sessions, tip.now_ms, tip.settings)


def _balance(tip: Tip) -> Decision[bool]:
    return balance_leaders(tip.cluster, settings=tip.settings)


def _elect_unclean(tip: Tip) -> Decision[bool]:
    return elect_unclean_leaders(tip.cluster, settings=tip.settings)


def _write_no_op(tip: Tip) -> Decision[bool]:
    level = tip.cluster.state.metadata_version
    known = level >= MetadataVersion.IBP_3_3_IV1
    return Decision(Records.of([records.NoOp()] if known else [], level), False)


def _expire_tokens(tip: Tip) -> Decision[bool]:
    return expire_tokens(tip.cluster, int(tip.now_ms))
