"""Periodic tasks of the active controller: which there are, and when each is due.

All tasks are due for the first time one period after the activation. A task that reports more work
is due again after 10 ms. A task that fails is due again later and affects nothing else. On a new
controller, and after many partitions were added, one more task completes the index from brokers to
partitions. It works in slices, and starts before the first silent broker is fenced.
Source: Kafka's ``PeriodicTaskControlManager``, ``QuorumController.register...``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kraft import records
from kraft.controller.brokers.broker_lifecycle import fence_stale_broker
from kraft.controller.decision import NO_RECORDS, Decision, Records
from kraft.controller.runtime.event_queue import EventQueue
from kraft.controller.runtime.operations import DecisionContext, Operation
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.security.delegation_tokens import sweep_expired_delegation_tokens
from kraft.controller.topics.elections import balance_leaders, elect_unclean_leaders
from kraft.image.replay import MetadataState
from kraft.records.versions import MetadataVersion

#: Delay in milliseconds until a task with more work is due again.
AGAIN_MS = 10
#: Delay in milliseconds until a failed task is due again.
RETRY_MS = 300_000
#: Partitions that one slice adds to the index; takes 1 to 2 ms.
PARTITIONS_INDEXED_AT_ONCE = 25_000

_NEVER = float("inf")


class PeriodicTask(NamedTuple):
    """A task; the response of ``decide`` is True if there is more work."""

    name: str
    period_ms: float
    decide: Callable[[DecisionContext], Decision[bool]]


class PeriodicTasks:
    """The tasks of one controller; each is a timer in the event queue."""

    def __init__(self, settings: ControllerSettings) -> None:
        # So a session that has expired is detected after an eighth of its length at the latest.
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
        """Schedule every task one period from now."""
        for task in self._tasks.values():
            if task.period_ms < _NEVER:
                self._schedule(task, queue, now_ms + task.period_ms)

    def index_partitions(
        self, cluster: MetadataState, queue: EventQueue[Operation], at_ms: float
    ) -> None:
        """Build the index in slices from ``at_ms`` on if it lacks more than one slice."""
        table = cluster.table
        if table.row_count - table.indexed_row_count > PARTITIONS_INDEXED_AT_ONCE:
            self._schedule(self._indexing, queue, at_ms)

    def failed(self, name: str, queue: EventQueue[Operation], now_ms: float) -> None:
        """Schedule the task of this name again after it failed."""
        self._schedule(self._tasks[name], queue, now_ms + RETRY_MS)

    def _schedule(self, task: PeriodicTask, queue: EventQueue[Operation], at_ms: float) -> None:
        queue.schedule(task.name, at_ms, partial(self._operation, task, queue))

    def _operation(self, task: PeriodicTask, queue: EventQueue[Operation]) -> Operation:
        def applied(context: DecisionContext, is_more: bool) -> None:
            after_ms = AGAIN_MS if is_more else task.period_ms
            if after_ms < _NEVER:
                self._schedule(task, queue, context.now_ms + after_ms)

        return Operation(task.name, task.decide, applied)


def _index(context: DecisionContext) -> Decision[bool]:
    return Decision(NO_RECORDS, context.cluster.table.ensure_index(PARTITIONS_INDEXED_AT_ONCE))


def _fence_stale(context: DecisionContext) -> Decision[bool]:
    indexing = _index(context)
    if indexing.response:
        return indexing
    return fence_stale_broker(context.cluster, context.sessions, context.now_ms, context.settings)


def _balance(context: DecisionContext) -> Decision[bool]:
    return balance_leaders(context.cluster, settings=context.settings)


def _elect_unclean(context: DecisionContext) -> Decision[bool]:
    return elect_unclean_leaders(context.cluster, settings=context.settings)


def _write_no_op(context: DecisionContext) -> Decision[bool]:
    level = context.cluster.state.metadata_version
    known = level >= MetadataVersion.IBP_3_3_IV1
    return Decision(Records.of([records.NoOp()] if known else [], level), False)


def _expire_tokens(context: DecisionContext) -> Decision[bool]:
    return sweep_expired_delegation_tokens(context.cluster, int(context.now_ms))
