"""``salvage``: write the sound part of a damaged metadata directory to a new one.

Keeps the newest snapshot that loads, the contiguous part of the log around or after it up to the
first batch that cannot be replayed, and every other sound snapshot within that part. A log that a
restart would empty, because that snapshot is ahead of it, is dropped. Records after
a gap that no snapshot covers are dropped, because the content of the lost records is unknown.

Invariants: the source never changes; the new directory gets its name after it is complete and
synced; every batch and snapshot in it is a byte-for-byte copy that was checked and replayed. Called
by library users and ``kraft salvage``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from kraft._core.bytes.batch_records import iterate
from kraft._core.log.log import Log
from kraft.errors import InvalidRequestError, KraftError, StorageError
from kraft.image.replay import MetadataState
from kraft.metadata.arguments import INT32_MAX, disk_errors, path_of, text, whole_number
from kraft.metadata.contiguous_slices import ContiguousSlices, batch_ranges, contiguous_slices
from kraft.metadata.directory import (
    BOOTSTRAP_CHECKPOINT,
    META_PROPERTIES,
    METADATA_LOG,
    QUORUM_STATE,
    LeftOut,
    SnapshotFile,
    reason_of,
)
from kraft.metadata.new_directory import check_is_new, new_directory, sync
from kraft.metadata.properties import property_line
from kraft.metadata.snapshots import load_snapshot
from kraft.metadata.source import MetadataSource
from kraft.records import Uuid

_MOST_SEGMENT_BYTES = (1 << 31) - 1
_FOR_EVER_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The result of :func:`salvage`.

    The log in ``path`` has the offsets from ``log_start_offset`` to ``end_offset`` (exclusive), in
    ``segments`` files; ``snapshots`` are the names of the snapshots. ``epoch`` is the leader epoch
    of the last record. ``left_out`` has one sentence for everything that was dropped.
    """

    path: Path
    log_start_offset: int
    end_offset: int
    epoch: int
    segments: int
    snapshots: tuple[str, ...]
    left_out: tuple[str, ...]


def salvage(
    path: str | PathLike[str],
    to: str | PathLike[str],
    *,
    cluster_id: str | None = None,
    node_id: int | None = None,
    advance: Callable[[int], object] | None = None,
) -> Salvaged:
    """Write the sound part of the metadata directory ``path`` to the new directory ``to``.

    ``to`` gets the layout of a ``log.dir``. ``cluster_id`` and ``node_id`` create a new
    ``meta.properties`` where that of ``path`` is lost; without them it is omitted. ``advance`` is
    called with the number of bytes of the log written so far.

    Raises :class:`InvalidRequestError` where ``to`` exists and is not an empty directory,
    :class:`StorageError` where nothing is sound or a write fails.
    """
    found, target = path_of(path, "path"), path_of(to, "to")
    if cluster_id is not None:
        text(cluster_id, "cluster_id")
    if node_id is not None:
        node_id = whole_number(node_id, "node_id", high=INT32_MAX)
    with disk_errors(found):
        return _salvage(MetadataSource(found, salvage=True), target, cluster_id, node_id, advance)


def _salvage(
    source: MetadataSource,
    target: Path,
    cluster_id: str | None,
    node_id: int | None,
    advance: Callable[[int], object] | None,
) -> Salvaged:
    # Before the plan, which reads the whole source.
    check_is_new(target)
    if (cluster_id is None) != (node_id is None):
        raise InvalidRequestError("give the cluster id and the node id together, or neither")
    plan = _SalvagePlan(source)
    with new_directory(target) as part:
        (part / METADATA_LOG).mkdir()
        segments = plan.write(part, advance or (lambda done: None))
        plan.write_identity(part, cluster_id, node_id)
    return Salvaged(
        target,
        plan.first_offset,
        plan.end_offset,
        plan.epoch,
        segments,
        tuple(each.path.name for each in plan.snapshots),
        (*source.damage, *plan.left_out),
    )


class _SalvagePlan:
    """The part of a source that is kept: selected by the constructor, written by the methods."""

    def __init__(self, source: MetadataSource) -> None:
        self._source = source
        self.left_out: list[str] = []
        cluster, base = source.load_base()
        is_replaced = base is not None and base == source.replacing_snapshot
        # `damage` names a log that a restart would empty.
        runs = [] if is_replaced else list(contiguous_slices(source))
        began = cluster.next_offset
        self._run = next(
            (run for run in runs if run.first_offset <= began <= run.end_offset),
            None,
        )
        bootstrap = source.directory.bootstrap_checkpoint
        self._bootstrap = bootstrap if bootstrap and self._loads(bootstrap) else None
        if base is None and self._run is None and (runs or self._bootstrap is None):
            raise StorageError(
                f"nothing can be salvaged from {source.directory.path}: no snapshot is sound, and "
                "the log has no record at offset 0"
            )
        self.first_offset = began if self._run is None else self._run.first_offset
        self.end_offset = began
        self.epoch = cluster.state.quorum.leader_epoch
        if self._run is not None:
            self._replay(cluster, self._run)
        self._note_lost(runs)
        self.snapshots = [
            each
            for each in source.directory.snapshots
            if self.first_offset <= each.end_offset <= self.end_offset and self._loads(each)
        ]
        self._quorum = cluster.state.quorum

    def _replay(self, cluster: MetadataState, run: ContiguousSlices) -> None:
        """Replay the contiguous part; set ``end_offset`` to where replaying stops."""
        for path, position, data in batch_ranges(run.slices):
            for batch in iterate(data, verify_crc=False):
                start = batch.position
                if batch.last_offset < cluster.next_offset:
                    continue
                try:
                    cluster.apply(
                        data[start : start + batch.size],
                        path=path,
                        base_position=position + start,
                        verify_crc=False,
                    )
                except KraftError as error:
                    self.left_out.append(
                        f"the records from offset {batch.base_offset} on contradict those before: "
                        f"{error}"
                    )
                    if batch.base_offset < self.end_offset:
                        # The snapshot ends inside this batch: keep it, and start an empty log.
                        self._run, self.first_offset = None, self.end_offset
                    self.end_offset = max(batch.base_offset, self.end_offset)
                    return
                self.epoch = batch.partition_leader_epoch
        self.end_offset = max(run.end_offset, self.end_offset)

    def _note_lost(self, runs: list[ContiguousSlices]) -> None:
        for run in runs:
            if run is not self._run and run.first_offset >= self.end_offset:
                self.left_out.append(
                    f"the records from offset {run.first_offset} to {run.end_offset} are after a "
                    f"gap that no sound snapshot covers: the log ends at offset {self.end_offset}"
                )
            elif run is not self._run:
                self.left_out.append(
                    f"the records from offset {run.first_offset} to {run.end_offset} are before a "
                    "gap; a snapshot covers them"
                )

    def _loads(self, snapshot: SnapshotFile) -> bool:
        if snapshot.size == 0 or any(each.path == snapshot.path for each in self._source.left_out):
            return False
        try:
            load_snapshot(snapshot, use_column_cache=False)
        except KraftError as error:
            self._source.left_out.append(LeftOut(snapshot.path, reason_of(error)))
            return False
        return True

    def write(self, log_dir: Path, advance: Callable[[int], object]) -> int:
        """Write log and snapshots; return the number of segments."""
        directory = log_dir / METADATA_LOG
        for snapshot in self.snapshots:
            _copy(snapshot.path, directory / snapshot.path.name)
        if self._bootstrap is not None:
            _copy(self._bootstrap.path, log_dir / BOOTSTRAP_CHECKPOINT)
        if self._run is None and not self.snapshots:
            # Formatted and never started: the first start creates the log.
            directory.rmdir()
            return 0
        with Log.open(directory, segment_bytes=_MOST_SEGMENT_BYTES, segment_ms=_FOR_EVER_MS) as log:
            if self.first_offset > 0:
                log.truncate_fully_and_start_at(self.first_offset)
            before, done = "", 0
            for path, _, data in batch_ranges([] if self._run is None else self._run.slices):
                if path != before:
                    log.roll()
                    before = path
                log.append(data, verify_crc=True)
                done += len(data)
                advance(done)
                if log.log_end_offset >= self.end_offset:
                    break
            log.truncate_to(self.end_offset)
            log.sync()
            return len(log.segments)

    def write_identity(self, log_dir: Path, cluster_id: str | None, node_id: int | None) -> None:
        """Write ``quorum-state``, then ``meta.properties``."""
        found = self._source.directory
        if found.quorum_state is not None and found.metadata_dir is not None:
            if (log_dir / METADATA_LOG).is_dir():
                _copy(found.metadata_dir / QUORUM_STATE, log_dir / METADATA_LOG / QUORUM_STATE)
        elif any(each.path.name == QUORUM_STATE for each in found.left_out):
            self.left_out.append(
                f"{QUORUM_STATE}: the node loses the epoch in which it voted; start it only in a "
                "quorum that has a leader"
            )
        if cluster_id is not None and node_id is not None:
            (log_dir / META_PROPERTIES).write_bytes(self._identity(cluster_id, node_id))
            sync(log_dir / META_PROPERTIES)
        elif found.meta_properties is not None and found.log_dir is not None:
            _copy(found.log_dir / META_PROPERTIES, log_dir / META_PROPERTIES)
        else:
            self.left_out.append(
                f"{META_PROPERTIES}: a node needs it to start; give the cluster id and the node id "
                "to write it"
            )

    def _identity(self, cluster_id: str, node_id: int) -> bytes:
        """Return a ``meta.properties`` with the directory id that the voters have for this node."""
        fields = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id)}
        for voter in self._quorum.voters:
            if voter.id == node_id and voter.directory_id != Uuid(bytes(16)):
                fields["directory.id"] = str(voter.directory_id)
        return "".join(property_line(name, value) for name, value in fields.items()).encode("ascii")


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    sync(target)
