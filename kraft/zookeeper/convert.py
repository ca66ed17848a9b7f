"""Write the KRaft metadata directory that a migration of a ZooKeeper tree would end with.

    <target>/meta.properties                                     cluster id of the tree, node id
    <target>/__cluster_metadata-0/00000000000000000000.log       the records of the migration
    <target>/__cluster_metadata-0/<end offset>-0000000001.checkpoint
    <target>/__cluster_metadata-0/quorum-state                   epoch 1

The log has the records that Kafka 3.9's controller writes, in its order: the transaction of a new
cluster, the registrations of brokers, the transaction "ZK Migration", and the end of the migration.
Sources: ``KRaftMigrationDriver``, ``QuorumController.MigrationRecordConsumer``,
``ActivationRecordsGenerator`` of Kafka 3.9.

Invariants: ZooKeeper is not written to; the target gets its name once it is complete, synced and
read again. Called by ``kraft zk convert``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from os import fspath
from pathlib import Path

from kraft._core.log.disk import OsDisk, write_atomically
from kraft._core.log.log import Log
from kraft.errors import InvalidRequestError, UnsupportedVersionError
from kraft.metadata.directory import METADATA_LOG, MetaProperties
from kraft.metadata.facade import open_metadata
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.new_directory import check_is_new, new_directory
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import (
    BeginTransaction,
    EndTransaction,
    KRaftVersion,
    LeaderChange,
    MetadataVersion,
    Record,
    Uuid,
    Voter,
    ZkMigrationState,
)
from kraft.records.batches import encode_control_records, encode_records
from kraft.server.storage.features import bootstrap_records, feature_levels
from kraft.server.storage.meta_properties import meta_properties_bytes, meta_properties_path
from kraft.server.storage.restore import begin_quorum
from kraft.zookeeper.checked_values import named
from kraft.zookeeper.migration import (
    DecodePassword,
    assigned_brokers,
    cluster_id_of,
    migrated_records,
)
from kraft.zookeeper.opened import LEVEL, RECORDS_AT_ONCE
from kraft.zookeeper.registrations import registered_brokers, registrations
from kraft.zookeeper.tree import ZnodeTree
from kraft.zookeeper.znodes import MIGRATION, JsonZnode

#: The id of the node if none is given: that of the first controller in Kafka's guide to the
#: migration.
DEFAULT_NODE_ID = 3000
#: Kafka's controllers migrate at this level or a higher one, in one metadata transaction.
LOWEST_LEVEL = MetadataVersion.IBP_3_6_IV1

_EPOCH = 1
# ZkMigrationState.
_PRE_MIGRATION, _MIGRATION, _POST_MIGRATION = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted directory: log and snapshot end at ``offset``.

    ``records`` counts the records by type. ``brokers`` have replicas: each has to be started in
    KRaft mode. ``is_dynamic``: the node is a voter at kraft.version 1; else
    controller.quorum.voters names it. ``notes`` are sentences about what was lost or assumed.
    """

    path: Path
    cluster_id: str
    node_id: int
    directory_id: Uuid
    offset: int
    epoch: int
    metadata_version: MetadataVersion
    is_dynamic: bool
    records: dict[str, int]
    brokers: tuple[int, ...]
    notes: tuple[str, ...]


def convert(
    tree: ZnodeTree,
    target: Path,
    *,
    timestamp_ms: int,
    node_id: int | None = None,
    is_broker: bool = False,
    endpoints: tuple[Endpoint, ...] = (),
    voter_ids: tuple[int, ...] = (),
    level: MetadataVersion = LEVEL,
    directory_id: Uuid | None = None,
    decode_password: DecodePassword | None = None,
    on_progress: Callable[[int], object] | None = None,
) -> Converted:
    """Write ``target``, from which controller ``node_id`` starts, by default as the only voter.

    ``node_id`` is by default 3000, or the next id that no broker has. Only a node that is a broker
    too, ``is_broker``, may have the id of one. ``endpoints`` are the addresses of its controller
    listeners; without any the quorum is static (kraft.version 0), with the voters ``voter_ids`` of
    controller.quorum.voters, by default only the node. ``directory_id`` is by default random.
    ``decode_password`` as for `migrated_records`. ``on_progress`` is called with the number of
    records.

    Raises InvalidRequestError where ``target`` exists and is not an empty directory, where Kafka
    has begun to migrate the cluster, or where the node id is a broker's;
    UnsupportedVersionError for a ``level`` below 3.6-IV1, and for voters that can change below
    3.9-IV0; CorruptZnodeError with the path of a znode that Kafka did not write; StorageError where
    a write fails.
    """
    check_is_new(target)
    _check_level(level, is_dynamic=bool(endpoints))
    _check_not_migrating(tree)
    cluster_id = cluster_id_of(tree)
    directory_id = directory_id or random_uuid()
    brokers = assigned_brokers(tree)
    node_id = _node_id(node_id, brokers, is_broker=is_broker)
    notes = _notes_of(tree)
    levels = feature_levels(level, {}, has_dynamic_quorum=bool(endpoints))
    controls = _first_records(ReplicaKey(node_id, directory_id), endpoints, voter_ids)
    types: Counter[str] = Counter()
    with new_directory(target) as part:
        directory = part / METADATA_LOG
        directory.mkdir()
        records = _migration(tree, bootstrap_records(levels), level, notes, decode_password)
        _write_log(directory, controls, records, timestamp_ms, types, on_progress)
        properties = MetaProperties(1, cluster_id, node_id, directory_id)
        write_atomically(
            OsDisk(), meta_properties_path(fspath(part)), meta_properties_bytes(properties)
        )
        begin_quorum(part, node_id, _EPOCH, is_dynamic=bool(endpoints))
        metadata = open_metadata(part)
        metadata.write_snapshot(directory, columns=False, timestamp_ms=timestamp_ms)
    return Converted(
        target,
        cluster_id,
        node_id,
        directory_id,
        metadata.next_offset,
        _EPOCH,
        level,
        bool(endpoints),
        dict(sorted(types.items())),
        brokers,
        tuple(notes),
    )


def _first_records(
    node: ReplicaKey, endpoints: tuple[Endpoint, ...], voter_ids: tuple[int, ...]
) -> list[Record]:
    """Return the control records with which a leader begins the first epoch."""
    elector = Voter(voter_id=node.id)
    records: list[Record] = [
        LeaderChange(
            leader_id=node.id,
            voters=[Voter(voter_id=each) for each in sorted(voter_ids)] or [elector],
            granting_voters=[elector],
        )
    ]
    if endpoints:
        voters = VoterSet([VoterNode(node, endpoints, KRaftVersionRange(0, 1))])
        records += [KRaftVersion(kraft_version=1), voters.to_record()]
    return records


def _migration(
    tree: ZnodeTree,
    first: list[Record],
    level: MetadataVersion,
    notes: list[str],
    decode_password: DecodePassword | None,
) -> Iterator[Record]:
    """Yield the records of the log, from a new cluster's to the end of the migration."""
    yield BeginTransaction("Bootstrap records")
    yield from first
    yield ZkMigrationState(_PRE_MIGRATION)
    yield EndTransaction()
    yield from registrations(tree, level)
    yield BeginTransaction("ZK Migration")
    yield from migrated_records(tree, notes, decode_password)
    yield ZkMigrationState(_MIGRATION)
    yield EndTransaction()
    yield ZkMigrationState(_POST_MIGRATION)


def _write_log(
    directory: Path,
    controls: list[Record],
    records: Iterator[Record],
    timestamp_ms: int,
    types: Counter[str],
    on_progress: Callable[[int], object] | None,
) -> None:
    """Write the records as the log of the first epoch, and count them by type in ``types``."""
    with Log.open(directory) as log:
        log.append(encode_control_records(controls, epoch=_EPOCH, timestamp_ms=timestamp_ms))
        while some := list(islice(records, RECORDS_AT_ONCE)):
            offset = log.log_end_offset
            # Encoded in their own versions: a migration writes partitions in an older one.
            log.append(
                encode_records(some, base_offset=offset, epoch=_EPOCH, timestamp_ms=timestamp_ms)
            )
            types.update(type(record).__name__ for record in some)
            if on_progress is not None:
                on_progress(types.total())
        log.sync()


def _node_id(given: int | None, brokers: tuple[int, ...], *, is_broker: bool) -> int:
    if given is None:
        return max(DEFAULT_NODE_ID, max(brokers, default=-1) + 1)
    if given in brokers and not is_broker:
        raise InvalidRequestError(
            f"node {given} is a broker of this cluster: give the controller another node.id"
        )
    return given


def _check_level(level: MetadataVersion, *, is_dynamic: bool) -> None:
    if level < LOWEST_LEVEL:
        raise UnsupportedVersionError(
            f"metadata.version {level.text} has no metadata transactions, which a migration needs: "
            f"use {LOWEST_LEVEL.text} or later"
        )
    if is_dynamic and level < MetadataVersion.IBP_3_9_IV0:
        raise UnsupportedVersionError(
            f"voters that can change need metadata.version {MetadataVersion.IBP_3_9_IV0.text}, not "
            f"{level.text}: set controller.quorum.voters, for a static quorum"
        )


def _check_not_migrating(tree: ZnodeTree) -> None:
    """Raise InvalidRequestError if a KRaft controller has the metadata already."""
    data = tree.data(MIGRATION)
    if data and (offset := JsonZnode(MIGRATION, data).integer("kraft_metadata_offset")) >= 0:
        raise InvalidRequestError(
            f"Kafka's controllers have migrated this cluster up to offset {offset} of their log "
            f"({MIGRATION}), and what is in ZooKeeper may be out of date: finish that migration, "
            "or take the directory of a controller"
        )


def _notes_of(tree: ZnodeTree) -> list[str]:
    notes = []
    if alive := registered_brokers(tree):
        notes.append(
            f"registered in ZooKeeper: {named([str(each) for each in alive], 'broker')}; the "
            "cluster runs, and what it changes from now on is missing in the directory. Stop all "
            "brokers before the conversion that you start controllers from"
        )
    if tree.changed:
        notes.append(f"changed while the tree was read: {named(tree.changed, 'znode')}")
    return notes
