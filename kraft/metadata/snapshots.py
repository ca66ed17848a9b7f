"""Snapshots of a cluster: from Kafka's checkpoint files and back."""

from __future__ import annotations

from kraft._core.disk import OsDisk
from kraft.image.replay import Cluster
from kraft.metadata.directory import SnapshotFile


def load_snapshot(snapshot: SnapshotFile, *, use_column_cache: bool = True) -> Cluster:
    """The cluster as of the snapshot's end offset."""
    cluster = Cluster()
    cluster.apply_snapshot(
        map_snapshot(snapshot), end_offset=max(snapshot.end_offset, 0), path=snapshot.path
    )
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
