"""Slow reference implementation of ``kraft._core.decide.election``: Kafka's rules for one
partition.

Written from the rules of PartitionChangeBuilder and ReplicationControlManager, Kafka 4.3.1, with
plain lists, one function per step, independently of the kernel. It returns typed PartitionChange
records, and the partition after a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kraft import records
from kraft.records import Uuid

MIGRATING, UNASSIGNED, LOST = (Uuid(number.to_bytes(16, "big")) for number in range(3))


@dataclass(frozen=True)
class Broker:
    id: int
    fenced: bool = False
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    epoch: int = 0

    @property
    def is_active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    def is_online(self, directory: Uuid) -> bool:
        if directory in (MIGRATING, UNASSIGNED):
            return True
        if directory == LOST:
            return False
        return not self.log_dirs or directory in self.log_dirs


@dataclass(frozen=True)
class Partition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    directories: tuple[Uuid, ...]
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovering: bool = False
    topic_id: Uuid = field(default=Uuid(b"t" * 16))
    partition_id: int = 0

    def after(self, change: records.PartitionChange) -> Partition:
        """Return the partition with the change applied (PartitionRegistration.merge)."""

        def now(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
            return old if new is None else tuple(new)

        directories = self.directories
        if change.directories is not None:
            directories = tuple(change.directories)
        elif change.replicas is not None:
            directories = (MIGRATING,) * len(change.replicas)
        return replace(
            self,
            replicas=now(change.replicas, self.replicas),
            isr=now(change.isr, self.isr),
            removing=now(change.removing_replicas, self.removing),
            adding=now(change.adding_replicas, self.adding),
            elr=now(change.eligible_leader_replicas, self.elr),
            last_known_elr=now(change.last_known_elr, self.last_known_elr),
            directories=directories,
            leader=self.leader if change.leader == -2 else change.leader,
            leader_epoch=self.leader_epoch + (change.leader != -2),
            partition_epoch=self.partition_epoch + 1,
            recovering=(
                self.recovering
                if change.leader_recovery_state == -1
                else change.leader_recovery_state == 1
            ),
        )


@dataclass(frozen=True)
class Targets:
    """The target values of an operation on a partition; None: unchanged."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    recovering: bool | None = None
    election: str = "online"
    uncleanly_shut_down: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Rules:
    """The inputs beside the partition: brokers and settings."""

    brokers: dict[int, Broker]
    metadata_version: int
    is_elr_enabled: bool

    def may_lead(
        self, partition: Partition, removed: Iterable[int] = (), added: Iterable[int] = ()
    ) -> Callable[[int], bool]:
        def test(broker_id: int) -> bool:
            broker = self.brokers.get(broker_id)
            if broker is None or broker_id in removed or broker_id not in partition.replicas:
                return False
            if not broker.is_active and broker_id not in added:
                return False
            return broker.is_online(partition.directories[partition.replicas.index(broker_id)])

        return test

    def default_directory(self, broker_id: int) -> Uuid:
        broker = self.brokers.get(broker_id)
        if broker is None or len(broker.log_dirs) > 1:
            return UNASSIGNED
        return broker.log_dirs[0] if broker.log_dirs else MIGRATING

    def change(
        self, partition: Partition, targets: Targets, may_lead: Callable[[int], bool], min_isr: int
    ) -> records.PartitionChange | None:
        """Return the record that Kafka would write, or None."""

        def wanted(new: Sequence[int] | None, old: Sequence[int]) -> list[int]:
            return list(old if new is None else new)

        isr = wanted(targets.isr, partition.isr)
        replicas = wanted(targets.replicas, partition.replicas)
        removing = wanted(targets.removing, partition.removing)
        adding = wanted(targets.adding, partition.adding)
        recovering = partition.recovering if targets.recovering is None else targets.recovering
        record = records.PartitionChange(
            partition_id=partition.partition_id, topic_id=partition.topic_id
        )

        # A reassignment ends once all added replicas are in sync; if it reduces the number of
        # replicas, once all target replicas are in sync.
        staying = [replica for replica in replicas if replica not in removing]
        in_sync = [replica for replica in isr if replica not in removing]
        if (
            (removing or adding)
            and not (removing and (not staying or not in_sync))
            and set(adding) <= set(in_sync)
            and (len(adding) >= len(removing) or set(staying) <= set(in_sync))
        ):
            replicas, isr, removing, adding = staying, in_sync, [], []

        elr = list(partition.elr)
        if self.is_elr_enabled:
            elr = eligible(partition, isr, min_isr, targets.uncleanly_shut_down)

        leader, is_unclean = self.leader(partition, replicas, isr, elr, targets.election, may_lead)
        if leader != partition.leader:
            record.leader = leader
            if leader in elr:
                isr = [leader]
                elr.remove(leader)
            if is_unclean:
                record.isr = [leader]
                if not partition.recovering:
                    record.leader_recovery_state = 1
        elif not set(partition.replicas) <= set(replicas):
            record.leader = partition.leader

        if record.isr is not None or not self.is_elr_enabled:
            elr = []
        if elr != list(partition.elr) and self.metadata_version >= 23:
            record.eligible_leader_replicas = elr
        if record.isr is None and isr != list(partition.isr) and (isr or self.is_elr_enabled):
            record.isr = isr
        if (
            self.metadata_version < 12
            and record.leader == -2
            and record.isr is not None
            and not set(partition.isr) <= set(record.isr)
        ):
            record.leader = partition.leader
        if self.is_elr_enabled and self.metadata_version >= 23:
            if record.leader == -1 and not partition.last_known_elr:
                record.last_known_elr = [partition.leader]
            elif record.leader >= 0 and partition.last_known_elr:
                record.last_known_elr = []

        held = dict(zip(partition.replicas, partition.directories, strict=True))
        directories = [held.get(replica, self.default_directory(replica)) for replica in replicas]
        if self.metadata_version >= 17 and directories != list(partition.directories):
            record.directories = directories
        if replicas != list(partition.replicas):
            record.replicas = replicas
        if removing != list(partition.removing):
            record.removing_replicas = removing
        if adding != list(partition.adding):
            record.adding_replicas = adding
        if recovering != partition.recovering:
            record.leader_recovery_state = int(recovering)
        nothing = records.PartitionChange(
            partition_id=partition.partition_id, topic_id=partition.topic_id
        )
        return None if record == nothing else record

    def leader(
        self,
        partition: Partition,
        replicas: list[int],
        isr: list[int],
        elr: list[int],
        election: str,
        may_lead: Callable[[int], bool],
    ) -> tuple[int, bool]:
        """Return the new leader, -1 for none, and whether its election is unclean."""
        valid = [replica for replica in (isr or elr) if may_lead(replica)]
        if election == "preferred" and replicas[0] in valid:
            return replicas[0], False
        if partition.leader in valid:
            return partition.leader, False
        for replica in replicas:
            if replica in valid:
                return replica, False
        if (
            self.is_elr_enabled
            and not isr
            and not elr
            and len(partition.last_known_elr) == 1
            and may_lead(partition.last_known_elr[0])
        ):
            return partition.last_known_elr[0], True
        if election == "unclean":
            for replica in replicas:
                if may_lead(replica):
                    return replica, True
        return -1, False


def eligible(
    partition: Partition, isr: list[int], min_isr: int, uncleanly_shut_down: frozenset[int]
) -> list[int]:
    if len(isr) >= min_isr:
        return []
    candidates = hash_set_order(partition.elr, partition.isr)
    return [
        replica
        for replica in candidates
        if replica not in isr and replica not in uncleanly_shut_down
    ]


def hash_set_order(first: Sequence[int], added: Sequence[int]) -> list[int]:
    """Return the order of a java.util.HashSet created from ``first`` to which ``added`` is added.

    A hash map doubles its buckets when it has more entries than three quarters of them, or when a
    bucket of a small map would hold a ninth entry.
    """

    def bucket(member: int) -> int:
        return (member ^ (member >> 16)) % buckets

    buckets = 16
    while buckets < int(len(first) / 0.75) + 1:
        buckets *= 2
    members: list[int] = []
    for member in (*first, *added):
        if member in members:
            continue
        if buckets < 64 and sum(bucket(other) == bucket(member) for other in members) >= 8:
            buckets *= 2
        members.append(member)
        if len(members) > buckets * 3 // 4:
            buckets *= 2
    return sorted(members, key=bucket)


# -- the events at which a controller decides about a partition


def broker_leaves(
    rules: Rules,
    partition: Partition,
    brokers: frozenset[int],
    *,
    and_elr: bool,
    uncleanly: bool,
    allows_unclean: bool,
    min_isr: int,
) -> records.PartitionChange | None:
    looked_at = set(partition.isr) | (set(partition.elr) if and_elr or uncleanly else set())
    if not looked_at & brokers:
        return None
    return rules.change(
        partition,
        Targets(
            isr=[replica for replica in partition.isr if replica not in brokers],
            election="unclean" if allows_unclean else "online",
            uncleanly_shut_down=brokers if uncleanly else frozenset(),
        ),
        rules.may_lead(partition, removed=brokers),
        min_isr,
    )


def directory_goes(
    rules: Rules,
    partition: Partition,
    broker: int,
    directory: Uuid,
    *,
    allows_unclean: bool,
    min_isr: int,
) -> records.PartitionChange | None:
    if directory not in partition.directories:
        return None
    return rules.change(
        partition,
        Targets(
            isr=[replica for replica in partition.isr if replica != broker],
            election="unclean" if allows_unclean else "online",
        ),
        rules.may_lead(partition, removed=(broker,)),
        min_isr,
    )


def broker_returns(
    rules: Rules, partition: Partition, broker: int, *, allows_unclean: bool, min_isr: int
) -> records.PartitionChange | None:
    if partition.leader != -1:
        return None
    return rules.change(
        partition,
        Targets(election="unclean" if allows_unclean else "online"),
        rules.may_lead(partition, added=(broker,)),
        min_isr,
    )


def election_wanted(
    rules: Rules, partition: Partition, election: str, min_isr: int
) -> records.PartitionChange | None:
    if election == "preferred" and partition.leader == partition.replicas[0]:
        return None
    if election == "unclean" and partition.leader != -1:
        return None
    return rules.change(partition, Targets(election=election), rules.may_lead(partition), min_isr)


def everyone_catches_up(
    rules: Rules, partition: Partition, *, allows_unclean: bool, min_isr: int
) -> records.PartitionChange | None:
    may_lead = rules.may_lead(partition)
    if partition.leader < 0 or not may_lead(partition.leader):
        return None
    isr = [replica for replica in partition.isr if may_lead(replica)]
    isr += [replica for replica in partition.replicas if may_lead(replica) and replica not in isr]
    if isr == list(partition.isr) and not partition.recovering:
        return None
    return leader_alters(
        rules, partition, isr, recovering=False, allows_unclean=allows_unclean, min_isr=min_isr
    )


def leader_alters(
    rules: Rules,
    partition: Partition,
    isr: Sequence[int],
    *,
    recovering: bool,
    allows_unclean: bool,
    min_isr: int,
) -> records.PartitionChange | None:
    return rules.change(
        partition,
        Targets(isr=isr, recovering=recovering, election="unclean" if allows_unclean else "online"),
        rules.may_lead(partition),
        min_isr,
    )


def reassigned(
    rules: Rules, partition: Partition, target: Sequence[int], min_isr: int
) -> records.PartitionChange | None:
    removing = sorted(set(partition.replicas) - set(target))
    adding = sorted(set(target) - set(partition.replicas))
    return rules.change(
        partition,
        Targets(replicas=[*target, *removing], removing=removing or None, adding=adding or None),
        rules.may_lead(partition),
        min_isr,
    )


def reassignment_cancelled(
    rules: Rules, partition: Partition, *, allows_unclean: bool, min_isr: int
) -> records.PartitionChange | None:
    """Return the record that cancels a reassignment; raise ValueError where Kafka rejects it."""
    if not partition.removing and not partition.adding:
        raise ValueError("no reassignment is in progress")
    replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    isr = [replica for replica in partition.isr if replica not in partition.adding]
    if not isr:
        if not replicas or not allows_unclean:
            raise ValueError("going back would be unclean")
        isr = [replicas[0]]
    return rules.change(
        partition,
        Targets(
            isr=isr,
            replicas=replicas,
            removing=[],
            adding=[],
            election="unclean" if allows_unclean else "online",
        ),
        rules.may_lead(partition),
        min_isr,
    )
