"""Restore a backup: write a directory from which a node starts a new quorum.

    <target>/meta.properties
    <target>/__cluster_metadata-0/<offset>-<epoch>.checkpoint       the state of the backup
    <target>/__cluster_metadata-0/quorum-state                      the new epoch

Every record of the backup goes through `RULES`, which has the decision for each type. The snapshot
ends at the offset of the backup, in an epoch above it: brokers that followed the old quorum reject
a lower epoch, and load the snapshot because their log has none of this epoch. Two restores of one
backup need different margins, because offset and epoch name a snapshot.

What no backup can bring back, because it is not metadata or was newer than the backup:
`NOT_RESTORED`. Invariants: the backup does not change; the target gets its name after it is
complete, synced and read again. Called by ``kraft restore``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import fspath
from pathlib import Path

from kraft._core.log.disk import OsDisk, write_atomically
from kraft._core.snapshot.snapshot_file import SnapshotWriter
from kraft.controller.state import ELR_FEATURE
from kraft.errors import InvalidRequestError, UnsupportedVersionError
from kraft.metadata.backup import Backup
from kraft.metadata.directory import METADATA_LOG, MetaProperties
from kraft.metadata.facade import open_metadata
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.log_records import read_records
from kraft.metadata.new_directory import new_directory
from kraft.metadata.snapshots import map_snapshot
from kraft.raft.interface import WriteElectionState
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import (
    AccessControlEntry,
    ClientQuota,
    Config,
    DelegationToken,
    FeatureLevel,
    KRaftVersion,
    MetadataVersion,
    Partition,
    ProducerIds,
    Record,
    RegisterBroker,
    RegisterController,
    Topic,
    UserScramCredential,
    Uuid,
    ZkMigrationState,
    control_type,
    encode_control,
)
from kraft.records.batches import encode_records
from kraft.server.disk.store import MetadataStore
from kraft.server.storage.meta_properties import meta_properties_bytes, meta_properties_path

#: By default, how far the epochs of the quorum and of partitions are above those of the backup.
EPOCH_MARGIN = 1000
#: For each epoch of the margin, how far the next producer id is above that of the backup: one block
#: (``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``).
PRODUCER_IDS_PER_EPOCH = 1000

_NO_LEADER = -1
_MAX_EPOCH = (1 << 31) - 1
_RECORDS_AT_ONCE = 4096

#: What is not part of a restored cluster, in the words of the output and of the documentation.
NOT_RESTORED = (
    "the data of topics: only brokers have it",
    "leaders and in-sync replicas that changed after the backup: a member of an ISR of then leads "
    "again, and the other replicas drop the records that it does not have",
    "changes after the backup: topics that were created since are unknown, and a broker renames "
    "their partitions to *-stray when it starts; topics that were deleted since exist again, empty",
    "registrations of controllers: each controller registers when it starts",
    "the sessions of brokers: every broker is fenced, and no partition has a leader, until brokers "
    "register again",
    "the voters of the old quorum: the new quorum has one, or those of controller.quorum.voters",
    "the secret of delegation tokens: it is delegation.token.secret.key of the configuration, and "
    "tokens are valid only with the same key",
)


@dataclass(slots=True)
class Changes:
    """How the records of a backup change.

    ``has_elr``: the backup has eligible.leader.replicas.version 1, as `of_feature` finds: in a
    snapshot the levels of features precede the partitions.
    """

    margin: int
    has_elr: bool = False

    def same(self, record: Record) -> Record | None:
        return record

    def nothing(self, record: Record) -> Record | None:
        return None

    def of_feature(self, record: Record) -> Record | None:
        assert isinstance(record, FeatureLevel)
        self.has_elr |= record.name == ELR_FEATURE and record.feature_level >= 1
        return record

    def of_broker(self, record: Record) -> Record | None:
        """Fenced, until it is back: it must not lead before, nor keep its next incarnation out."""
        assert isinstance(record, RegisterBroker)
        return record.replace(fenced=True, in_controlled_shutdown=False)

    def of_partition(self, record: Record) -> Record | None:
        """No leader, and higher epochs: brokers may have seen those after the backup.

        With eligible leader replicas (KIP-966) the first member of the ISR leads that is back after
        a clean shutdown, wherever the others are. As members of an ISR they would leave it one by
        one when they register, in favour of one that may come back without its data. After a crash
        of all the old leader leads again, as the last known one.
        """
        assert isinstance(record, Partition)
        highest = max(record.leader_epoch, record.partition_epoch)
        if highest > _MAX_EPOCH - self.margin:
            raise InvalidRequestError(
                f"partition {record.partition_id} of topic {record.topic_id!s} has epoch "
                f"{highest}: {self.margin} above it is no epoch (the highest is {_MAX_EPOCH}). Use "
                "a smaller margin"
            )
        changed = record.replace(
            leader=_NO_LEADER,
            leader_epoch=record.leader_epoch + self.margin,
            partition_epoch=record.partition_epoch + self.margin,
        )
        if self.has_elr and record.leader != _NO_LEADER:
            changed.eligible_leader_replicas = record.isr + (record.eligible_leader_replicas or [])
            changed.last_known_elr = [record.leader]
            changed.isr = []
        return changed

    def of_producer_ids(self, record: Record) -> Record | None:
        """Blocks allocated after the backup are skipped: two producers may not share an id."""
        assert isinstance(record, ProducerIds)
        skipped = self.margin * PRODUCER_IDS_PER_EPOCH
        return record.replace(next_producer_id=record.next_producer_id + skipped)


#: What becomes of each record of a snapshot.
RULES: dict[type[Record], Callable[[Changes, Record], Record | None]] = {
    FeatureLevel: Changes.of_feature,
    ZkMigrationState: Changes.same,
    RegisterBroker: Changes.of_broker,
    RegisterController: Changes.nothing,
    Topic: Changes.same,
    Partition: Changes.of_partition,
    Config: Changes.same,
    ClientQuota: Changes.same,
    ProducerIds: Changes.of_producer_ids,
    AccessControlEntry: Changes.same,
    UserScramCredential: Changes.same,
    DelegationToken: Changes.same,
}


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored directory: the snapshot ends at ``offset`` in ``epoch``.

    ``records`` counts the records written by type. ``is_dynamic``: the node is a voter at
    kraft.version 1; else controller.quorum.voters names it.
    """

    path: Path
    cluster_id: str
    node_id: int
    directory_id: Uuid
    offset: int
    epoch: int
    is_dynamic: bool
    records: dict[str, int]


def restore(
    backup: Backup,
    target: Path,
    *,
    node_id: int,
    endpoints: tuple[Endpoint, ...],
    timestamp_ms: int,
    cluster_id: str | None = None,
    directory_id: Uuid | None = None,
    epoch_margin: int = EPOCH_MARGIN,
) -> Restored:
    """Write ``target``, from which node ``node_id`` starts a new quorum, by default as its only
    voter.

    ``endpoints`` are the addresses of its controller listeners; without any the quorum is static
    (kraft.version 0), with the voters of controller.quorum.voters. ``cluster_id`` is by default
    the id in the backup, ``directory_id`` random. The epochs of the quorum and of partitions are
    ``epoch_margin`` higher than in the backup.

    Raises InvalidRequestError where ``target`` exists and is not an empty directory, or the backup
    has an epoch or a metadata.version with which that is not possible; UnsupportedVersionError for
    a record type without a rule; StorageError where a write fails.
    """
    if epoch_margin < 1:
        raise InvalidRequestError(f"the margin of the epochs is {epoch_margin}: give 1 or more")
    manifest = backup.manifest
    epoch = manifest.epoch + epoch_margin
    if epoch >= _MAX_EPOCH:
        raise InvalidRequestError(
            f"the backup is of leader epoch {manifest.epoch}: {epoch_margin} above it is no epoch "
            f"(the highest is {_MAX_EPOCH}). Use a smaller margin"
        )
    level = MetadataVersion.from_level(manifest.metadata_version)
    if endpoints and level < MetadataVersion.IBP_3_9_IV0:
        raise InvalidRequestError(
            f"the backup has metadata.version {level.text}, and voters that can change need "
            f"{MetadataVersion.IBP_3_9_IV0.text}: set controller.quorum.voters, for a static quorum"
        )
    directory_id = directory_id or random_uuid()
    cluster_id = cluster_id or manifest.cluster_id
    voter = VoterNode(ReplicaKey(node_id, directory_id), endpoints, KRaftVersionRange(0, 1))
    with new_directory(target) as part:
        (part / METADATA_LOG).mkdir()
        counts = _write_snapshot(
            backup,
            part / METADATA_LOG,
            VoterSet([voter]) if endpoints else None,
            epoch,
            timestamp_ms,
            epoch_margin,
        )
        properties = MetaProperties(1, cluster_id, node_id, directory_id)
        write_atomically(
            OsDisk(), meta_properties_path(fspath(part)), meta_properties_bytes(properties)
        )
        begin_quorum(part, node_id, epoch, is_dynamic=bool(endpoints))
        open_metadata(part)
    return Restored(
        target,
        cluster_id,
        node_id,
        directory_id,
        manifest.offset,
        epoch,
        bool(endpoints),
        dict(sorted(counts.items())),
    )


def _write_snapshot(
    backup: Backup,
    directory: Path,
    voters: VoterSet | None,
    epoch: int,
    timestamp_ms: int,
    epoch_margin: int,
) -> Counter[str]:
    """Write the restored state as the snapshot of its offset; return the records by type."""
    controls: list[Record] = []
    if voters is not None:
        controls = [KRaftVersion(kraft_version=1), voters.to_record()]
    counts: Counter[str] = Counter()
    level = backup.manifest.metadata_version
    with SnapshotWriter(
        directory,
        backup.manifest.offset,
        epoch,
        last_contained_log_timestamp_ms=timestamp_ms,
        timestamp_ms=timestamp_ms,
        control_records=[(control_type(each), encode_control(each)) for each in controls],
    ) as writer:
        records: list[Record] = []
        for record in _restored_records(backup, epoch_margin):
            counts[type(record).__name__] += 1
            records.append(record)
            if len(records) == _RECORDS_AT_ONCE:
                writer.append_batches(encode_records(records, metadata_version=level))
                records.clear()
        if records:
            writer.append_batches(encode_records(records, metadata_version=level))
        writer.finish()
    return counts


def _restored_records(backup: Backup, epoch_margin: int) -> Iterator[Record]:
    changes = Changes(epoch_margin)
    for each in read_records(map_snapshot(backup.snapshot), path=backup.snapshot.path):
        if each.is_control:
            continue
        rule = RULES.get(type(each.record))
        if rule is None:
            raise UnsupportedVersionError(
                f"{backup.snapshot.path}: a restore has no rule for the record type "
                f"{type(each.record).__name__}"
            )
        record = rule(changes, each.record)
        if record is not None:
            yield record


def begin_quorum(directory: Path, node_id: int, epoch: int, *, is_dynamic: bool) -> None:
    """Create the log, which begins at the snapshot's end, and write the new epoch."""
    static = VoterSet([VoterNode(ReplicaKey(node_id))])
    store = MetadataStore.open(directory, static_voters=static, disk=OsDisk())
    try:
        store.perform(WriteElectionState(epoch, -1, -1, None, int(is_dynamic)))
        store.sync()
    finally:
        store.close()
