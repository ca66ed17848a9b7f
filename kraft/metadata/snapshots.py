"""Snapshots of a cluster: from Kafka's checkpoint files and back, with or without the columns
beside them.

Owns what goes into a snapshot and in which order (``MetadataImage.write``): features, brokers and
controllers, topics with their partitions, then the rest. The file formats are
``kraft._core.snapshot_file`` (Kafka's, the truth) and ``kraft._core.column_checkpoint`` (a cache of
the same state that is mapped instead of replayed).
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from kraft._core.column_checkpoint import ColumnsRejected, load_columns, save_columns
from kraft._core.disk import OsDisk
from kraft._core.snapshot_file import SnapshotReader, write_snapshot
from kraft.errors import InvalidRequestError
from kraft.image.cluster import ClusterState
from kraft.image.replay import Cluster
from kraft.metadata.arguments import disk_errors
from kraft.metadata.directory import SnapshotFile
from kraft.records import (
    Partition,
    Record,
    SnapshotHeader,
    control_type,
    encode_control,
    record_version,
)
from kraft.records.batches import encode_control_records, encode_records


def load_snapshot(snapshot: SnapshotFile, *, use_column_cache: bool = True) -> Cluster:
    """The cluster as of the snapshot's end offset.

    A column checkpoint beside it stands in for decoding where it is sound and of this very file.
    Raises
    :class:`CorruptRecordError` for a snapshot that is damaged or cut short.
    """
    end_offset = max(snapshot.end_offset, 0)
    if use_column_cache and Path(snapshot.path).with_suffix(".columns").exists():
        columns = load_columns(snapshot.path)
        if not isinstance(columns, ColumnsRejected):
            cluster = Cluster(table=columns.table)
            header = SnapshotHeader(
                last_contained_log_timestamp=columns.last_contained_log_timestamp_ms
            )
            with cluster.loading_snapshot(end_offset) as callbacks:
                # The columns hold no header; with it come the epoch and the time of the last
                # record.
                cluster.state.apply_control(header, max(end_offset - 1, 0), columns.epoch)
                cluster.table.apply(columns.records, path=snapshot.path, **callbacks)
            return cluster
    cluster = Cluster()
    reader = SnapshotReader(snapshot.path)
    with cluster.loading_snapshot(end_offset) as callbacks:
        reader.read(cluster.table, **callbacks)
    return cluster


def map_snapshot(snapshot: SnapshotFile) -> memoryview:
    """The bytes of a snapshot file, mapped."""
    if snapshot.size == 0:
        return memoryview(b"")
    file = OsDisk().open(str(snapshot.path), read_only=True)
    try:
        return memoryview(file.map(snapshot.size))
    finally:
        file.close()


def save_snapshot(
    directory: str | PathLike[str],
    cluster: Cluster,
    *,
    last_contained_log_timestamp_ms: int,
    timestamp_ms: int,
    columns: bool = True,
) -> Path:
    """Writes the state as Kafka's snapshot into ``directory``, fsynced, and the columns beside it.

    Raises :class:`InvalidRequestError` while a transaction is open,
    :class:`UnsupportedVersionError` where the
    metadata.version cannot express the state, :class:`StorageError`.
    """
    if cluster.transaction_start is not None:
        raise InvalidRequestError(
            f"the transaction of offset {cluster.transaction_start} is open: "
            "a snapshot ends before it"
        )
    if cluster.dropped_transaction is not None:
        raise InvalidRequestError(
            f"the log ends inside the transaction of offset {cluster.dropped_transaction}: open it "
            f"with at={cluster.dropped_transaction}, as a snapshot holds all records before its end"
        )
    with disk_errors(Path(directory)):
        Path(directory).mkdir(parents=True, exist_ok=True)
    state, level = cluster.state, cluster.state.metadata_version
    before, after = _encoded_rest(state)
    path = write_snapshot(
        directory,
        cluster.next_offset,
        state.quorum.leader_epoch,
        cluster.table,
        partition_version=record_version(Partition, level),
        before_topics=[before] if len(before) else [],
        after_topics=[after] if len(after) else [],
        control_records=[
            (control_type(each), encode_control(each)) for each in _control_records(state)
        ],
        last_contained_log_timestamp_ms=last_contained_log_timestamp_ms,
        timestamp_ms=timestamp_ms,
    )
    if columns:
        save_snapshot_columns(path, cluster)
    return Path(path)


def save_snapshot_columns(path: str | PathLike[str], cluster: Cluster) -> Path:
    """Writes the column checkpoint beside the snapshot at ``path``, which holds the state of
    ``cluster``.

    Raises :class:`StorageError`.
    """
    state = cluster.state
    controls = list(_control_records(state))
    control = encode_control_records(controls, epoch=state.quorum.leader_epoch) if controls else b""
    return Path(
        save_columns(
            path,
            cluster.table,
            records=b"".join((control, *_encoded_rest(state))),
            kraft_version=state.quorum.kraft_version,
        )
    )


def _encoded_rest(state: ClusterState) -> tuple[memoryview, memoryview]:
    """Everything that is no partition, as batches: what goes before the topics, and behind."""
    level = state.metadata_version
    return (
        encode_records(state.snapshot_records_before_topics(), metadata_version=level),
        encode_records(state.snapshot_records_after_topics(), metadata_version=level),
    )


def _control_records(state: ClusterState) -> Iterator[Record]:
    """What follows the header: kraft.version and voters, from kraft.version 1 on."""
    if state.quorum.kraft_version >= 1:
        yield from state.quorum.snapshot_records()
