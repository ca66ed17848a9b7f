"""Load and save snapshots: Kafka's checkpoint files, optionally with a column checkpoint.

Defines the content of a snapshot and its order (``MetadataImage.write``): features, brokers and
controllers, topics with their partitions, then the rest. The file formats are in
``kraft._core.snapshot.snapshot_file`` (Kafka's, authoritative) and
``kraft._core.snapshot.column_checkpoint`` (a cache of the same state, mapped instead of replayed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path

from kraft._core.log.disk import OsDisk
from kraft._core.snapshot.column_checkpoint import (
    ColumnsRejected,
    columns_path,
    load_columns,
    save_columns,
)
from kraft._core.snapshot.snapshot_file import SnapshotReader, write_snapshot
from kraft.errors import InvalidRequestError
from kraft.image.cluster import ClusterState
from kraft.image.replay import MetadataState
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


def load_snapshot(snapshot: SnapshotFile, *, use_column_cache: bool = True) -> MetadataState:
    """Return the state as of the snapshot's end offset.

    Loads the column checkpoint beside it instead where that is sound and belongs to this file.
    Raises :class:`CorruptRecordError` for a damaged or truncated snapshot.
    """
    end_offset = max(snapshot.end_offset, 0)
    if use_column_cache and Path(columns_path(snapshot.path)).exists():
        loaded = load_column_state(snapshot.path, end_offset)
        if not isinstance(loaded, ColumnsRejected):
            return loaded
    cluster = MetadataState()
    reader = SnapshotReader(snapshot.path)
    with cluster.loading_snapshot(end_offset) as callbacks:
        reader.read(cluster.table, **callbacks)
    return cluster


def load_column_state(
    path: str | PathLike[str],
    end_offset: int,
    *,
    to_grow: bool = False,
    is_supported_config: Callable[[int, str], bool] | None = None,
) -> MetadataState | ColumnsRejected:
    """Return the state of the column checkpoint beside the snapshot at ``path``, or why it cannot
    be used.

    ``to_grow`` as for `load_columns`, ``is_supported_config`` as for `MetadataState`.
    """
    columns = load_columns(path, to_grow=to_grow)
    if isinstance(columns, ColumnsRejected):
        return columns
    cluster = MetadataState(table=columns.table, is_supported_config=is_supported_config)
    header = SnapshotHeader(last_contained_log_timestamp=columns.last_contained_log_timestamp_ms)
    with cluster.loading_snapshot(end_offset) as callbacks:
        # The columns have no header: apply one for the epoch and the last record's time.
        cluster.state.apply_control(header, max(end_offset - 1, 0), columns.epoch)
        cluster.table.apply(columns.records, path=path, **callbacks)
    return cluster


def map_snapshot(snapshot: SnapshotFile) -> memoryview:
    """Return the bytes of a snapshot file, mapped."""
    if snapshot.size == 0:
        return memoryview(b"")
    file = OsDisk().open(str(snapshot.path), read_only=True)
    try:
        return memoryview(file.map(snapshot.size))
    finally:
        file.close()


def save_snapshot(
    directory: str | PathLike[str],
    cluster: MetadataState,
    *,
    last_contained_log_timestamp_ms: int,
    timestamp_ms: int,
    columns: bool = True,
) -> Path:
    """Write the state as Kafka's snapshot into ``directory`` and fsync it; with ``columns`` its
    columns too.

    Raises :class:`InvalidRequestError` while a transaction is open,
    :class:`UnsupportedVersionError` where the metadata.version cannot express the state,
    :class:`StorageError`.
    """
    if cluster.transaction_start is not None:
        raise InvalidRequestError(
            f"the metadata transaction of offset {cluster.transaction_start} is open at offset "
            f"{cluster.next_offset}, and a snapshot must end before it: open the metadata with "
            f"at={cluster.transaction_start}"
        )
    if cluster.dropped_transaction is not None:
        raise InvalidRequestError(
            f"the log ends inside the metadata transaction of offset "
            f"{cluster.dropped_transaction}, and a snapshot must end before it: open the metadata "
            f"with at={cluster.dropped_transaction}"
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


def save_snapshot_columns(path: str | PathLike[str], cluster: MetadataState) -> Path:
    """Write the column checkpoint of the snapshot at ``path``, which holds the state of
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
    """Return everything except topics and partitions as batches: before the topics, and after."""
    level = state.metadata_version
    return (
        encode_records(state.snapshot_records_before_topics(), metadata_version=level),
        encode_records(state.snapshot_records_after_topics(), metadata_version=level),
    )


def _control_records(state: ClusterState) -> Iterator[Record]:
    """Yield the records after the header: kraft.version and voters, from kraft.version 1 on."""
    if state.quorum.kraft_version >= 1:
        yield from state.quorum.snapshot_records()
