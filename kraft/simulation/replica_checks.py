"""Invariants of replicated partitions in a simulated cluster.

`ReplicaChecks` keeps the committed batches of each partition: those below the highest high
watermark of any leader. Each leader, replica and client is compared with them. By name:

one_leader_an_epoch_accepts_writes, a_clean_leader_has_all_committed,
replicas_are_equal_below_the_high_watermark, a_new_isr_member_has_all_committed,
acknowledged_is_committed, committed_in_the_order_of_the_producer,
consumers_read_only_committed, the_end_never_goes_back_for_consumers,
the_high_watermark_never_goes_back, the_high_watermark_is_within_the_log. `answered_requests` has
that of the requests.

A partition starts over (its ``generation`` grows) where Kafka may lose committed records: after an
unclean election, and when a broker leads that lost committed records itself, in a power failure or
with its disk, while it was in the ISR or ELR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import HostedPartition
from kraft.simulation.batch_tree import Violation
from kraft.simulation.environment import Environment
from kraft.simulation.replica_log import ReplicaBatch, ReplicaLog, ReplicaStore


class CommittedPartition:
    """The committed batches of a partition, and what happened to it."""

    def __init__(self, id: PartitionId, state: Mapping[str, Any]) -> None:
        self.id = id
        self.state = state
        self.batches: dict[int, ReplicaBatch] = {}
        self.end_offset = 0
        #: Grows when committed records may have been lost.
        self.generation = 0
        #: High watermarks of leaders of earlier epochs do not count after an unclean election.
        self.lost_in_epoch = -1
        self.is_unsettled = False
        #: The broker that appended in each leader epoch.
        self.writers: dict[int, int] = {}
        #: The last sequence of each producer, with its epoch.
        self.sequences: dict[int, tuple[int, int]] = {}
        #: The brokers that lost committed records.
        self.damaged: set[int] = set()
        self.acknowledged_count = 0
        #: An administrator may have deleted the records before this offset.
        self.deleted_below = 0

    def has_deleted(self, offset: int) -> bool:
        return offset < self.deleted_below

    def extend(self, batch: ReplicaBatch) -> None:
        header = batch.header
        if header.base_offset > self.end_offset:
            # Records between were deleted while it was unsettled.
            self.sequences.clear()
        if header.producer_id >= 0:
            known = self.sequences.get(header.producer_id)
            if known is not None and known[0] == header.producer_epoch:
                expected = known[1] + 1
                if header.base_sequence != expected:
                    raise Violation(
                        "committed_in_the_order_of_the_producer",
                        f"{self}: sequence {header.base_sequence} of producer "
                        f"{header.producer_id} at {header.base_offset}, expected {expected}",
                    )
            last = header.base_sequence + header.record_count - 1
            self.sequences[header.producer_id] = header.producer_epoch, last
        self.batches[header.base_offset] = batch
        self.end_offset = header.last_offset + 1

    def difference(self, log: ReplicaLog, end_offset: int) -> str | None:
        """Return where a log differs from the committed batches below ``end_offset``; else None."""
        if log.end_offset < min(end_offset, self.end_offset):
            return f"the log ends at {log.end_offset}"
        for batch in reversed(log.batches):
            base = batch.header.base_offset
            if base >= end_offset:
                continue
            known = self.batches.get(base)
            if known is None or known.data != batch.data:
                return f"at {base} of epoch {batch.header.epoch}, committed is {known}"
        return None

    def start_over(self, log: ReplicaLog) -> None:
        """Keep only the committed batches that a new leader has."""
        self.generation += 1
        kept = {
            batch.header.base_offset: batch
            for batch in log.batches
            if (known := self.batches.get(batch.header.base_offset)) and known.data == batch.data
        }
        in_order = sorted(self.batches.items())
        self.batches.clear()
        self.sequences.clear()
        self.end_offset = 0
        for base, batch in in_order:
            if base >= log.start_offset and base not in kept:
                break
            self.extend(batch)
        self.end_offset = max(self.end_offset, min(log.start_offset, log.end_offset))

    def __str__(self) -> str:
        return f"partition {self.id.topic_id[-2:].hex()}-{self.id.partition}"


class ReplicaChecks:
    """The checks of one cluster's partitions; ``stores`` and ``lives`` are by broker id."""

    def __init__(self, cluster: Environment, stores: Mapping[int, ReplicaStore]) -> None:
        self.cluster = cluster
        self._stores = stores
        self.partitions: dict[PartitionId, CommittedPartition] = {}
        self._seen_offset = 0

    # -- the committed metadata

    def metadata_committed(self) -> None:
        """Follow the ledger: elections, and who joins an ISR."""
        table = self.cluster.ledger.replay.table
        present = set()
        for topic in table.topic_numbers():
            topic_id = table.topic_id_of(topic)
            for number, row in enumerate(table.topic_rows(topic)):
                id = PartitionId(topic_id, number)
                present.add(id)
                known = self.partitions.get(id)
                if known is None:
                    state = table.state_of(int(row))
                    self.partitions[id] = CommittedPartition(id, state)
                elif table.column("partition_epoch")[row] != known.state["partition_epoch"]:
                    before, known.state = known.state, table.state_of(int(row))
                    self._changed(known, before, known.state)
        for id in self.partitions.keys() - present:
            del self.partitions[id]

    def _changed(
        self, known: CommittedPartition, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        leader = after["leader"]
        eligible = {*before["isr"], *before["elr"]}
        joined = {*after["isr"]} - eligible
        # A cancelled reassignment may leave a replica in the ISR that was never in sync.
        is_forced = bool(joined) and leader < 0 and before["leader"] < 0
        if is_forced or (
            leader >= 0
            and (
                leader not in eligible
                or (after["leader_recovery_state"] and not before["leader_recovery_state"])
            )
        ):
            self.cluster.counts["unclean_elections"] += 1
            known.is_unsettled = True
            known.lost_in_epoch = after["leader_epoch"]
            return
        if leader >= 0 and leader not in before["isr"]:
            self.cluster.counts["elections_from_the_elr"] += 1
        if leader != before["leader"] and leader >= 0:
            self.cluster.counts["clean_elections"] += 1
        if known.is_unsettled:
            return
        for member in sorted(joined):
            log = self._stores[member].logs.get(known.id)
            self.cluster.counts["isr_joins"] += 1
            if member in known.damaged or log is None:
                continue
            difference = known.difference(log, known.end_offset)
            if difference is not None:
                raise Violation(
                    "a_new_isr_member_has_all_committed",
                    f"{known}: broker {member} joins, but {difference}; {before} -> {after}",
                )

    # -- brokers

    def leader_appends(self, broker_id: int, id: PartitionId, epoch: int) -> None:
        known = self.partitions.get(id)
        if known is not None and known.writers.setdefault(epoch, broker_id) != broker_id:
            raise Violation(
                "one_leader_an_epoch_accepts_writes",
                f"{known}: brokers {known.writers[epoch]} and {broker_id} in epoch {epoch}",
            )

    def lost_records(self, broker_id: int, ends: Mapping[PartitionId, int]) -> None:
        """Note which committed records a broker lost; ``ends`` are the ends before."""
        logs = self._stores[broker_id].logs
        for id, end in ends.items():
            known = self.partitions.get(id)
            now = logs[id].end_offset if id in logs else 0
            if known is not None and now < end and now < known.end_offset:
                known.damaged.add(broker_id)
                self.cluster.counts["lost_committed_copies"] += 1

    def leads(self, broker_id: int, partition: HostedPartition) -> None:
        """Check the log of a broker that begins to lead, or to lead in a new epoch."""
        known, log = self.partitions.get(partition.id), partition.log
        if known is None or partition.leader_epoch < known.lost_in_epoch:
            return
        assert isinstance(log, ReplicaLog)
        difference = known.difference(log, known.end_offset)
        if difference is None:
            known.damaged.discard(broker_id)
        elif not known.is_unsettled and broker_id not in known.damaged:
            raise Violation(
                "a_clean_leader_has_all_committed",
                f"{known}: broker {broker_id} leads epoch {partition.leader_epoch}, committed is "
                f"up to {known.end_offset}, but {difference}",
            )
        elif not known.is_unsettled and self._intact_members(known, broker_id):
            raise Violation(
                "a_clean_leader_has_all_committed",
                f"{known}: broker {broker_id} lost records and leads, but "
                f"{self._intact_members(known, broker_id)} have all",
            )
        else:
            self.cluster.counts["excused_losses"] += 1
            known.start_over(log)
            known.lost_in_epoch = max(known.lost_in_epoch, partition.leader_epoch)
            known.damaged = {
                member
                for member in known.damaged - {broker_id}
                if (other := self._stores[member].logs.get(known.id)) is None
                or known.difference(other, known.end_offset) is not None
            }
        known.is_unsettled = False
        self._extend(known, log, partition.high_watermark)

    @staticmethod
    def _extend(known: CommittedPartition, log: ReplicaLog, high_watermark: int) -> None:
        """Count a leader's records below its high watermark as committed."""
        for batch in log.batches_between(known.end_offset, high_watermark):
            if batch.header.base_offset >= known.end_offset:
                known.extend(batch)

    def _intact_members(self, known: CommittedPartition, without: int) -> list[int]:
        """Return the other members of ISR and ELR that have all committed records."""
        found = []
        for member in {*known.state["isr"], *known.state["elr"]} - {without}:
            log = self._stores[member].logs.get(known.id)
            if log is not None and known.difference(log, known.end_offset) is None:
                found.append(member)
        return sorted(found)

    def within_the_log(self, broker_id: int, partition: HostedPartition) -> None:
        log = partition.log
        assert log is not None
        if not log.start_offset <= partition.high_watermark <= log.end_offset:
            raise Violation(
                "the_high_watermark_is_within_the_log",
                f"broker {broker_id}: {partition}, start {log.start_offset}",
            )

    def high_watermark_rose(self, broker_id: int, partition: HostedPartition, before: int) -> None:
        """Compare the records that a replica now shows with the committed ones."""
        known, log = self.partitions.get(partition.id), partition.log
        if known is None or known.is_unsettled or partition.leader_epoch < known.lost_in_epoch:
            return
        assert isinstance(log, ReplicaLog)
        if partition.is_leader:
            self._extend(known, log, partition.high_watermark)
        for batch in log.batches_between(before, partition.high_watermark):
            header = batch.header
            committed = known.batches.get(header.base_offset)
            if committed is None or committed.data != batch.data:
                raise Violation(
                    "replicas_are_equal_below_the_high_watermark",
                    f"{known}: broker {broker_id} in epoch {partition.leader_epoch} has "
                    f"{header} below {partition.high_watermark}, committed is {committed} up to "
                    f"{known.end_offset}",
                )

    def high_watermark_fell(self, broker_id: int, partition: HostedPartition, before: int) -> None:
        """Check that a replica's high watermark falls only when committed records were lost."""
        known = self.partitions.get(partition.id)
        if (
            known is not None
            and not known.is_unsettled
            and known.lost_in_epoch < 0
            and broker_id not in known.damaged
        ):
            raise Violation(
                "the_high_watermark_never_goes_back",
                f"{known}: broker {broker_id} from {before} to {partition.high_watermark} in epoch "
                f"{partition.leader_epoch}",
            )

    # -- clients

    def acknowledged(
        self, id: PartitionId, epoch: int, batch: ReplicaBatch, base_offset: int
    ) -> None:
        """Check a batch that a leader of ``epoch`` acknowledged for all in-sync replicas."""
        known = self.partitions.get(id)
        if known is None or known.is_unsettled or epoch < known.lost_in_epoch:
            return
        committed = known.batches.get(base_offset)
        sent = batch.header
        if committed is None or (
            committed.header[9:] != sent[9:] or committed.data[61:] != batch.data[61:]
        ):
            raise Violation(
                "acknowledged_is_committed",
                f"{known}: {sent} at {base_offset}, committed is {committed} up to "
                f"{known.end_offset}",
            )
        known.acknowledged_count += 1

    def consumed(self, id: PartitionId, batches: Iterable[ReplicaBatch]) -> None:
        known = self.partitions.get(id)
        assert known is not None
        for batch in batches:
            committed = known.batches.get(batch.header.base_offset)
            if committed is None or committed.data != batch.data:
                raise Violation(
                    "consumers_read_only_committed",
                    f"{known}: {batch.header}, committed is {committed} up to {known.end_offset}",
                )

    # -- the end of a calm phase

    def compare_all(self, logs_of: Callable[[int], Mapping[PartitionId, ReplicaLog]]) -> int:
        """Compare every replica in an ISR with the committed records; return how many."""
        count = 0
        for known in self.partitions.values():
            for member in known.state["isr"]:
                log = logs_of(member).get(known.id)
                difference = (
                    "it has no log" if log is None else known.difference(log, known.end_offset)
                )
                if difference is not None:
                    raise Violation(
                        "replicas_are_equal_below_the_high_watermark",
                        f"{known}: broker {member} of ISR {known.state['isr']}: {difference}",
                    )
                count += 1
        return count
