"""``SimulatedReplicas``: what the replicas of light brokers would make their leaders send.

Light brokers store no records. This module decides which replicas would keep up with their leaders,
and lets the leaders of this process send what Kafka's brokers send then:

- AlterPartition that adds a replica to the ISR, ``catch_up_ms`` after its broker is unfenced;
- AlterPartition that removes a replica, ``replica.lag.time.max.ms`` after its broker began to lag
  (`set_lagging`); a dead broker is usually fenced before, and the controller removes it itself;
- AssignReplicasToDirs for replicas whose directory the controller left open, as for brokers with
  several directories (KIP-858).

Every change of rows is checked against the rules of `partition_rules`. A leader has one request of
a kind in flight, with all its pending partitions, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.image_rows import leaders_of, replicas_of
from kraft.broker.directory_assignments import MAX_PARTITIONS
from kraft.broker.replication.messages import IsrProposal, PartitionId
from kraft.broker.replication_rpcs import (
    alter_partition_request,
    assignment_errors,
    assignment_request,
    isr_change_response,
)
from kraft.errors import NONE, error_name
from kraft.fleet.light_broker import LightBroker
from kraft.fleet.partition_rules import IsrTarget, RuleBreach, check_rows, isr_targets
from kraft.image.publishing import Image, ImageDelta
from kraft.protocol.alter_partition import ALTER_PARTITION, AlterPartitionResponseData
from kraft.protocol.assign_replicas_to_dirs import (
    ASSIGN_REPLICAS_TO_DIRS,
    AssignReplicasToDirsResponseData,
)

#: Kafka's default of replica.lag.time.max.ms.
LAG_MS = 30_000.0
#: How long a returned follower needs until its leader adds it to the ISR: a fetch of 500 ms.
CATCH_UP_MS = 500.0
#: How long a proposal without an effect waits until it is sent again.
_RETRY_S = 1.0
#: The number of the directory id UNASSIGNED (``DirectoryId``).
_UNASSIGNED = 1
#: Breaches of rules that are kept with their partitions; all are counted.
_KEPT_BREACHES = 20


class SimulatedReplicas:
    """The replicas of one process's brokers, driven by the deltas of its shared metadata.

    ``image_of`` returns the last image, which is not kept here: the table could not be compacted
    then. ``rows_of`` returns the rows in which a broker may be a replica.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        brokers: Mapping[int, LightBroker],
        image_of: Callable[[], Image | None],
        rows_of: Callable[[int], NDArray[np.int32]],
        *,
        lag_ms: float = LAG_MS,
        catch_up_ms: float = CATCH_UP_MS,
    ) -> None:
        self._loop = loop
        self._brokers = brokers
        self._image_of = image_of
        self._rows_of = rows_of
        self._lag_s = lag_ms / 1000
        self._catch_up_s = catch_up_ms / 1000
        self._rows: list[NDArray[np.int32]] = []
        self._timer: asyncio.TimerHandle | None = None
        #: When each lagging broker, of any process, began to lag; by the loop's clock.
        self._lagging: dict[int, float] = {}
        #: By leader: rows whose ISR it proposes next.
        self._proposals: dict[int, dict[int, IsrTarget]] = {}
        #: By row: the partition epoch of a proposal of the last second, and when it was sent.
        self._asked: dict[int, tuple[int, float]] = {}
        self._altering: set[int] = set()
        #: By broker: replicas whose directory it reports.
        self._assignments: dict[int, dict[PartitionId, bytes]] = {}
        #: Brokers with a report in flight, or with one that waits to be sent again.
        self._assigning: set[int] = set()
        self.breaches: list[RuleBreach] = []
        self.breach_count = 0
        #: Accepted and rejected changes by kind and error, for the report of the process.
        self.outcomes: Counter[str] = Counter()

    def set_lagging(self, ids: Iterable[int], *, is_lagging: bool) -> None:
        """Let the replicas of these brokers, of any process, fall behind or keep up again."""
        now = self._loop.time()
        for id in ids:
            if is_lagging:
                self._lagging.setdefault(id, now)
                self._loop.call_later(self._lag_s, self._look_at_broker, id)
            elif self._lagging.pop(id, None) is not None:
                self._loop.call_later(self._catch_up_s, self._look_at_broker, id)

    def forget(self, id: int) -> None:
        """Forget the requests of a broker whose process has ended: they have no response.

        Its replicas without a directory are kept: it reports them when it runs again.
        """
        self._altering.discard(id)
        self._assigning.discard(id)
        self._proposals.pop(id, None)

    # -- changes of the metadata

    def on_delta(self, delta: ImageDelta) -> None:
        """Check the changed rows, and note those whose ISR or directory may want a request."""
        image = delta.image
        if delta.is_full:
            self._rows.clear()
            self._proposals.clear()
            self._asked.clear()
        rows = changed_rows(delta)
        if len(rows):
            before = None if delta.before is None else delta.before.table
            breaches = check_rows(before, image.table, rows)
            self.breach_count += len(breaches)
            self.breaches += breaches[: _KEPT_BREACHES - len(self.breaches)]
            self._find_unassigned(image, rows)
            self._look_later(rows)
        for id, change in delta.changes.get("broker", {}).items():
            was_active = change.before is not None and not change.before.fenced
            is_active = change.after is not None and not change.after.fenced
            if is_active and not was_active and not delta.is_full:
                assert isinstance(id, int)
                self._loop.call_later(self._catch_up_s, self._look_at_broker, id)

    def _look_at_broker(self, id: int) -> None:
        image = self._image_of()
        if image is not None:
            # Rows of the table as it is now; `_look` reads them as of the last image.
            rows = self._rows_of(id)
            rows = rows[rows < image.table.row_count]
            if len(rows):
                self._look_later(rows)

    # -- ISRs

    def _look_later(self, rows: NDArray[np.int32]) -> None:
        self._rows.append(rows)
        if self._timer is None:
            self._timer = self._loop.call_later(self._catch_up_s, self._look)

    def _look(self) -> None:
        """Propose the ISRs of the noted rows that should change."""
        self._timer = None
        image = self._image_of()
        if image is None or not self._rows:
            return
        rows = np.unique(np.concatenate(self._rows))
        self._rows.clear()
        # A response that was waited for may be older than a compaction, which renumbers the rows.
        rows = rows[rows < image.table.row_count]
        now = self._loop.time()
        recent = {row: each for row, each in self._asked.items() if now - each[1] < _RETRY_S}
        self._asked = recent
        brokers = image.state.brokers
        joining = [
            id
            for id, each in brokers.items()
            if not each.fenced and not each.in_controlled_shutdown and id not in self._lagging
        ]
        leaving = [id for id, since in self._lagging.items() if now - since >= self._lag_s]
        led_by = [broker.id for broker in self._brokers.values() if broker.is_running]
        for target in isr_targets(
            image.table,
            rows,
            led_by=np.array(led_by, np.int32),
            joining=np.array(joining, np.int32),
            leaving=np.array(leaving, np.int32),
        ):
            self._proposals.setdefault(target.leader, {})[target.row] = target
        for leader in list(self._proposals):
            self._alter(leader)

    def _alter(self, leader: int) -> None:
        """Send the proposals of a leader, unless a request of it is in flight."""
        broker, image = self._brokers[leader], self._image_of()
        if leader in self._altering or not self._proposals.get(leader) or image is None:
            return
        targets = self._proposals.pop(leader)
        now = self._loop.time()
        proposals: list[IsrProposal] = []
        asked: dict[int, tuple[int, float]] = {}
        recent: list[int] = []
        for row, target in targets.items():
            state = image.table.state_of(row)
            epoch, sent = self._asked.get(row, (-1, 0.0))
            if epoch == state["partition_epoch"] and now - sent < _RETRY_S:
                recent.append(row)
                continue
            asked[row] = (state["partition_epoch"], now)
            known = image.state.brokers
            members = {id: known[id].epoch if id in known else -1 for id in target.isr}
            proposals.append(
                IsrProposal(
                    self._id_of(image, row),
                    state["leader_epoch"],
                    state["partition_epoch"],
                    members,
                )
            )
        if recent:
            self._loop.call_later(_RETRY_S, self._look_later, np.array(recent, np.int32))
        if not proposals:
            return
        request = alter_partition_request(
            leader, broker.session.epoch, proposals, broker.controller_versions
        )
        rows = np.array(list(asked), np.int32)

        def answered(response: AlterPartitionResponseData | None) -> None:
            self._altering.discard(leader)
            self._altered(rows, response)
            self._alter(leader)

        is_sent = broker.call(
            "alter-partition", ALTER_PARTITION, request, AlterPartitionResponseData, answered
        )
        if is_sent:
            self._altering.add(leader)
            self._asked |= asked
        else:
            self._look_later(rows)

    def _altered(
        self, rows: NDArray[np.int32], response: AlterPartitionResponseData | None
    ) -> None:
        if response is None or response.error_code != NONE:
            code = "NO_RESPONSE" if response is None else error_name(response.error_code)
            self.outcomes[f"AlterPartition {code}"] += len(rows)
            self._loop.call_later(_RETRY_S, self._look_later, rows)
            return
        failed = 0
        for outcome in isr_change_response(response).partitions.values():
            if isinstance(outcome, int):
                failed += 1
                self.outcomes[f"AlterPartition {error_name(outcome)}"] += 1
            else:
                self.outcomes["AlterPartition NONE"] += 1
        if failed:
            self._loop.call_later(_RETRY_S, self._look_later, rows)

    def _id_of(self, image: Image, row: int) -> PartitionId:
        number = int(image.table.topics_of(np.array([row], np.int32))[0])
        return PartitionId(
            image.table.topic_id_of(number if number >= 0 else -1 - number),
            image.table.partition_of(row),
        )

    # -- directories

    def _find_unassigned(self, image: Image, rows: NDArray[np.int32]) -> None:
        """Report a directory of each replica of this process whose directory is unassigned."""
        brokers, directories, _ = replicas_of(image.table, rows)
        is_live, _, _ = leaders_of(image.table, rows)
        open_ones = (directories == _UNASSIGNED) & (brokers >= 0) & is_live[:, None]
        for at, slot in zip(*map(np.ndarray.tolist, np.nonzero(open_ones)), strict=True):
            broker = self._brokers.get(int(brokers[at, slot]))
            if broker is None or len(broker.directories) < 2:
                continue
            partition = self._id_of(image, int(rows[at]))
            choice = (partition.partition + broker.id) % len(broker.directories)
            chosen = bytes(broker.directories[choice])
            self._assignments.setdefault(broker.id, {})[partition] = chosen
        for id in list(self._assignments):
            self._assign(id)

    def _assign(self, id: int) -> None:
        waiting = self._assignments.get(id)
        broker = self._brokers[id]
        if not waiting or id in self._assigning:
            return
        batch = dict(list(waiting.items())[:MAX_PARTITIONS])
        request = assignment_request(id, broker.session.epoch, batch)

        def again() -> None:
            self._assigning.discard(id)
            self._assign(id)

        def answered(response: AssignReplicasToDirsResponseData | None) -> None:
            if response is None or response.error_code != NONE:
                self.outcomes["AssignReplicasToDirs failed"] += len(batch)
                self._loop.call_later(_RETRY_S, again)
                return
            for partition, error in assignment_errors(response):
                self.outcomes[f"AssignReplicasToDirs {error_name(error)}"] += 1
                waiting.pop(partition, None)
            again()

        is_sent = broker.is_running and broker.call(
            "directory-assignments",
            ASSIGN_REPLICAS_TO_DIRS,
            request,
            AssignReplicasToDirsResponseData,
            answered,
        )
        self._assigning.add(id)
        if not is_sent:
            self._loop.call_later(_RETRY_S, again)


def changed_rows(delta: ImageDelta) -> NDArray[np.int32]:
    """Return the rows that a delta changed or added, ascending."""
    added = [np.arange(first, end, dtype=np.int32) for first, end in delta.rows_added]
    return np.concatenate([np.asarray(delta.rows_changed, np.int32), *added])
