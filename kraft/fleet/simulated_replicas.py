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

A returned rack changes the ISR of nearly every partition. So this module works on columns of the
rows that changed, keeps what it has proposed by row (`SentProposals`), and sends the request of one
leader in a turn of the event loop: heartbeats and fetches go on in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.image_rows import leaders_of, places_of, replicas_of
from kraft.broker.directory_assignments import MAX_PARTITIONS
from kraft.broker.replication.messages import IsrProposal, PartitionId
from kraft.broker.replication_rpcs import (
    alter_partition_request,
    assignment_errors,
    assignment_request,
)
from kraft.errors import NONE, error_name
from kraft.fleet.light_broker import LightBroker
from kraft.fleet.partition_rules import (
    IsrTargets,
    Rows,
    RuleBreach,
    breaches_of,
    check_rows,
    check_steps,
    isr_targets,
)
from kraft.image.nodes import BrokerRegistration
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


class SentProposals:
    """When the ISR of each row was last proposed, and with which partition epoch.

    A proposal without an effect is sent again after a second; one whose effect is applied has
    another partition epoch then. An accepted one is not sent again, however late its effect comes:
    a leader knows its new ISR from the response.
    """

    def __init__(self) -> None:
        self._epochs: NDArray[np.int32] = np.empty(0, np.int32)
        self._sent_s: NDArray[np.float64] = np.empty(0, np.float64)

    def clear(self) -> None:
        """Forget all rows: they have other numbers now."""
        self._epochs.fill(-1)

    def are_recent(self, targets: IsrTargets, now_s: float) -> NDArray[np.bool_]:
        """Return which of the targets were proposed within the last second."""
        self._reach(targets.rows)
        recent: NDArray[np.bool_] = self._are_known(targets) & (
            now_s - self._sent_s[targets.rows] < _RETRY_S
        )
        return recent

    def are_accepted(self, targets: IsrTargets) -> NDArray[np.bool_]:
        """Return which of the targets were accepted for this partition epoch."""
        self._reach(targets.rows)
        accepted: NDArray[np.bool_] = self._are_known(targets) & np.isinf(
            self._sent_s[targets.rows]
        )
        return accepted

    def note(self, targets: IsrTargets, now_s: float) -> None:
        """Note that these are proposed now."""
        self._reach(targets.rows)
        self._epochs[targets.rows] = targets.partition_epochs
        self._sent_s[targets.rows] = now_s

    def accept(self, targets: IsrTargets) -> None:
        """Note that the controller has accepted these."""
        self._sent_s[targets.rows[self._are_known(targets)]] = np.inf

    def _are_known(self, targets: IsrTargets) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = self._epochs[targets.rows] == targets.partition_epochs
        return known

    def _reach(self, rows: Rows) -> None:
        missing = int(rows.max(initial=-1)) + 1 - len(self._epochs)
        if missing > 0:
            spare = max(missing, len(self._epochs))
            self._epochs = np.concatenate([self._epochs, np.full(spare, -1, np.int32)])
            self._sent_s = np.concatenate([self._sent_s, np.zeros(spare)])


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
        rows_of: Callable[[int], Rows],
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
        self._rows: list[Rows] = []
        self._timer: asyncio.TimerHandle | None = None
        #: When each lagging broker, of any process, began to lag; by the loop's clock.
        self._lagging: dict[int, float] = {}
        #: The registrations of all brokers as of the last delta: an image costs ten times as much.
        self._registered: dict[int, BrokerRegistration] = {}
        #: By leader: rows whose ISR it proposes next.
        self._pending: dict[int, list[Rows]] = {}
        #: The leaders that send next; each is in `_pending`.
        self._turns: deque[int] = deque()
        self._sent = SentProposals()
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
        self._pending.pop(id, None)

    # -- changes of the metadata

    def on_delta(self, delta: ImageDelta, rows: Rows) -> None:
        """Check ``rows``, which the delta changed, and note those that may want a request.

        A request is wanted for an ISR that should change, and for a replica without a directory.
        """
        image = delta.image
        if delta.is_full:
            self._rows.clear()
            self._pending.clear()
            self._sent.clear()
            self._registered.clear()
        if len(rows):
            broken = check_rows(image.table, rows)
            if not delta.is_full:
                broken += check_steps(delta, rows)
            self.breach_count += sum(len(each.rows) for each in broken)
            room = _KEPT_BREACHES - len(self.breaches)
            self.breaches += breaches_of(image.table, broken, room)
            self._find_unassigned(image, rows)
            self._look_later(rows)
        for id, change in delta.changes.get("broker", {}).items():
            assert isinstance(id, int)
            was_active = change.before is not None and not change.before.fenced
            is_active = change.after is not None and not change.after.fenced
            if change.after is None:
                self._registered.pop(id, None)
            else:
                self._registered[id] = change.after
            if is_active and not was_active and not delta.is_full:
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

    def _look_later(self, rows: Rows) -> None:
        self._rows.append(rows)
        if self._timer is None:
            self._timer = self._loop.call_later(self._catch_up_s, self._look)

    def _look(self) -> None:
        """Let the leaders of the noted rows propose the ISRs that should change."""
        self._timer = None
        image = self._image_of()
        if image is None or not self._rows:
            return
        led_by = [broker.id for broker in self._brokers.values() if broker.is_running]
        targets = self._targets(image, np.unique(np.concatenate(self._rows)), led_by)
        self._rows.clear()
        targets = targets.where(np.argsort(targets.leaders, kind="stable"))
        leaders, begins, counts = np.unique(targets.leaders, return_index=True, return_counts=True)
        for leader, begin, count in zip(map(int, leaders), begins, counts, strict=True):
            self._pending.setdefault(leader, []).append(targets.rows[begin : begin + count])
            self._take_turn(leader)

    def _targets(self, image: Image, rows: Rows, led_by: Iterable[int]) -> IsrTargets:
        """Return the ISRs that leaders would propose for rows now."""
        now = self._loop.time()
        joining = [
            id
            for id, each in self._registered.items()
            if not each.fenced and not each.in_controlled_shutdown and id not in self._lagging
        ]
        leaving = [id for id, since in self._lagging.items() if now - since >= self._lag_s]
        return isr_targets(
            image.table,
            # Rows that waited may be older than a compaction, which renumbers them.
            rows[rows < image.table.row_count],
            led_by=np.array(list(led_by), np.int32),
            joining=np.array(joining, np.int32),
            leaving=np.array(leaving, np.int32),
        )

    def _take_turn(self, leader: int) -> None:
        """Let a leader send its pending rows in a later turn, unless a request is in flight."""
        if leader not in self._altering and leader not in self._turns:
            self._turns.append(leader)
            if len(self._turns) == 1:
                self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        leader = self._turns.popleft()
        if self._turns:
            self._loop.call_soon(self._next_turn)
        self._alter(leader)

    def _alter(self, leader: int) -> None:
        """Send the pending proposals of a leader, as they should be by now."""
        broker, image, waiting = self._brokers[leader], self._image_of(), self._pending.get(leader)
        if leader in self._altering or not waiting or image is None:
            return
        del self._pending[leader]
        targets = self._targets(image, np.unique(np.concatenate(waiting)), [leader])
        now = self._loop.time()
        targets = targets.where(~self._sent.are_accepted(targets))
        recent = self._sent.are_recent(targets, now)
        if recent.any():
            self._loop.call_later(_RETRY_S, self._look_later, targets.rows[recent])
            targets = targets.where(~recent)
        if not len(targets.rows):
            return
        proposals = self._proposals(image, targets)
        request = alter_partition_request(
            leader, broker.session.epoch, proposals, broker.controller_versions
        )
        ids = [each.id for each in proposals]

        def answered(response: AlterPartitionResponseData | None) -> None:
            self._altering.discard(leader)
            self._altered(targets, ids, response)
            if leader in self._pending:
                self._take_turn(leader)

        is_sent = broker.call(
            "alter-partition", ALTER_PARTITION, request, AlterPartitionResponseData, answered
        )
        if is_sent:
            self._altering.add(leader)
            self._sent.note(targets, now)
        else:
            self._look_later(targets.rows)

    def _proposals(self, image: Image, targets: IsrTargets) -> list[IsrProposal]:
        """Return the targets as proposals, with the broker epochs of their members."""
        members = map(int, np.unique(targets.isrs[targets.isrs >= 0]))
        known = self._registered
        epochs = {id: known[id].epoch if id in known else -1 for id in members}
        columns = (targets.leader_epochs, targets.partition_epochs, targets.isrs)
        ids = _partition_ids(image, targets.rows)
        return [
            IsrProposal(
                id, leader_epoch, partition_epoch, {each: epochs[each] for each in isr if each >= 0}
            )
            for id, (leader_epoch, partition_epoch, isr) in zip(
                ids, zip(*map(np.ndarray.tolist, columns), strict=True), strict=True
            )
        ]

    def _altered(
        self,
        targets: IsrTargets,
        ids: list[PartitionId],
        response: AlterPartitionResponseData | None,
    ) -> None:
        """Take the response to the proposed targets, whose partitions are ``ids``."""
        rows = targets.rows
        if response is None or response.error_code != NONE:
            code = "NO_RESPONSE" if response is None else error_name(response.error_code)
            self.outcomes[f"AlterPartition {code}"] += len(rows)
            self._loop.call_later(_RETRY_S, self._look_later, rows)
            return
        codes = Counter(each.error_code for topic in response.topics for each in topic.partitions)
        for number, count in codes.items():
            self.outcomes[f"AlterPartition {error_name(number)}"] += count
        accepted = {
            PartitionId(bytes(topic.topic_id), each.partition_index)
            for topic in response.topics
            for each in topic.partitions
            if each.error_code == NONE
        }
        is_accepted = np.fromiter((id in accepted for id in ids), np.bool_, len(ids))
        self._sent.accept(targets.where(is_accepted))
        if not is_accepted.all():
            self._loop.call_later(_RETRY_S, self._look_later, rows[~is_accepted])

    # -- directories

    def _find_unassigned(self, image: Image, rows: Rows) -> None:
        """Report a directory of each replica of this process whose directory is unassigned."""
        choosing = [id for id, each in self._brokers.items() if len(each.directories) > 1]
        if not choosing:
            return
        brokers, directories, _ = replicas_of(image.table, rows)
        is_live, _, _ = leaders_of(image.table, rows)
        open_ones = (directories == _UNASSIGNED) & np.isin(brokers, choosing) & is_live[:, None]
        places, slots = np.nonzero(open_ones)
        ids = _partition_ids(image, rows[places])
        for id, partition in zip(map(int, brokers[places, slots]), ids, strict=True):
            broker = self._brokers[id]
            choice = (partition.partition + id) % len(broker.directories)
            chosen = bytes(broker.directories[choice])
            self._assignments.setdefault(id, {})[partition] = chosen
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


def _partition_ids(image: Image, rows: Rows) -> list[PartitionId]:
    """Return the topic id and the index of each row's partition, all of them live."""
    topics, partitions = places_of(image.table, rows)
    ids = {number: image.table.topic_id_of(number) for number in map(int, np.unique(topics))}
    return [
        PartitionId(ids[topic], partition)
        for topic, partition in zip(*map(np.ndarray.tolist, (topics, partitions)), strict=True)
    ]
