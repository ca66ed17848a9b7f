"""The parts of a running node that metrics and health checks read, and one reading of them.

Everything is read on the event loop, and only on request: a node that nobody monitors has no cost.
The partitions are counted in slices of less than a millisecond, between which the loop serves the
network. Counting two million partitions takes some ten milliseconds in total, and the counts may
mix the states of that time. Called by `catalog`, `exposition` and `health`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from kraft._core.table.table import PartitionTable
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.image.replay import MetadataState
from kraft.network.listener import Listener
from kraft.network.traffic import Traffic
from kraft.raft.interface import Role
from kraft.raft.leader import LeaderState
from kraft.raft.node import Node
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import ControllerRunner
from kraft.server.disk.writer import WriterThread
from kraft.server.driver import Driver, now_ms
from kraft.server.observation.election_counts import ElectionCounter
from kraft.server.observation.metric_names import ExportedMetric
from kraft.server.observation.quantiles import RecentQuantiles
from kraft.server.recent_times import RecentRate

#: Rows that one slice counts: 0.2 ms.
ROWS_AT_ONCE = 100_000


def no_registration() -> str | None:
    """The check of a node that is not expected to be registered."""
    return None


class ObservedPart(Protocol):
    """A part of a node with metrics of its own: its broker. They read what `reading` returns."""

    metrics: tuple[ExportedMetric[Any], ...]

    def reading(self, now_ms: float) -> Any: ...

    def unready_reasons(self) -> list[str]:
        """Return why the part is not ready; empty: it is."""

    def details(self) -> dict[str, Any]:
        """Return what ``/readyz`` shows of the part."""


@dataclass(slots=True)
class ObservedNode:
    """A node that runs, from its start to its stop.

    ``why_unregistered`` returns why the node is not registered although it should be, None where it
    is or need not be.
    """

    config: ServerConfig
    cluster_id: str
    driver: Driver
    writer: WriterThread
    runner: ControllerRunner
    listener: Listener
    why_unregistered: Callable[[], str | None] = no_registration
    parts: Sequence[ObservedPart] = ()
    rates: defaultdict[str, RecentRate] = field(init=False)
    quantiles: defaultdict[str, RecentQuantiles] = field(init=False)
    #: Register it as a publisher of images.
    elections: ElectionCounter = field(init=False)

    def __post_init__(self) -> None:
        start_ms = now_ms()
        self.rates = defaultdict(lambda: RecentRate(start_ms))
        self.quantiles = defaultdict(RecentQuantiles)
        self.elections = ElectionCounter(lambda: self.state.table)

    @property
    def raft(self) -> Node:
        return self.driver.node

    @property
    def controller(self) -> QuorumController:
        return self.runner.controller

    @property
    def state(self) -> MetadataState:
        """The state at the end of the log: on the active controller the uncommitted one."""
        return self.controller.cluster

    @property
    def traffic(self) -> Traffic:
        return self.listener.traffic

    @property
    def leadership(self) -> LeaderState | None:
        """The state of the leader, None where another node leads."""
        role_state = self.raft.role_state
        return role_state if isinstance(role_state, LeaderState) else None

    @property
    def role(self) -> Role:
        return self.raft.role


class PartitionCounts(NamedTuple):
    """Partitions of all topics; a partition without a leader is not led by its preferred replica
    either, as in Kafka's ``ControllerMetricsChanges``.
    """

    without_leader: int = 0
    without_preferred_leader: int = 0


async def count_partitions(table: Callable[[], PartitionTable]) -> PartitionCounts:
    """Count the partitions in slices; ``table`` returns the present table, which may change."""
    without_leader = without_preferred = first = 0
    while first < (rows := table()).row_count:
        counted = count_rows(rows, first, first + ROWS_AT_ONCE)
        without_leader += counted.without_leader
        without_preferred += counted.without_preferred_leader
        first += ROWS_AT_ONCE
        await asyncio.sleep(0)
    return PartitionCounts(without_leader, without_preferred)


def count_rows(table: PartitionTable, first: int, end: int) -> PartitionCounts:
    """Count the live rows from ``first`` to before ``end``."""
    is_live = table.column("topic")[first:end] >= 0
    leaders = table.column("leader")[first:end]
    preferred = table.column("replicas")[first:end, 0]
    return PartitionCounts(
        int(np.count_nonzero((leaders < 0) & is_live)),
        int(np.count_nonzero((leaders != preferred) & is_live)),
    )
