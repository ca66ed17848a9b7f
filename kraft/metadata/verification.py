"""``verify``: whether the files of one metadata directory, or of several nodes, say the same.

Owns the replay of a log against every snapshot beside it, and the order of all checks; those of
small files are in ``file_checks``, those between nodes in ``node_comparison``. Called by library
users and ``kraft verify``.

Invariants: nothing on disk changes; damage is a finding, not an exception; a log is held a few MiB
at a time, the state that it makes as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from kraft._core.batch_records import RecordBatch, iterate
from kraft._core.column_checkpoint import ColumnsRejected, columns_path, load_columns
from kraft.errors import InvalidArgumentError, KraftError
from kraft.image.replay import Cluster
from kraft.metadata.arguments import disk_errors, path_of, shown
from kraft.metadata.diff import Difference, diff
from kraft.metadata.directory import MetadataDirectory, SnapshotFile, reason_of
from kraft.metadata.facade import Metadata
from kraft.metadata.file_checks import check_indexes, check_leader_epochs, check_text_files
from kraft.metadata.findings import Finding, Severity
from kraft.metadata.known_contradictions import KnownContradictions
from kraft.metadata.node_comparison import compare_nodes
from kraft.metadata.runs import Piece, Run, pieces_of, runs_of
from kraft.metadata.snapshots import load_snapshot
from kraft.metadata.source import MetadataSource

#: Differences of one snapshot and severity that are listed one by one.
MOST_TOLD = 20


@dataclass(slots=True)
class Verified:
    """One directory: what was looked at.

    ``snapshots`` counts those that were replayed against the log, of ``snapshot_count``. The log
    has the offsets from ``log_start_offset`` to ``log_end_offset`` (exclusive), -1 without a log.
    """

    path: Path
    node_id: int | None
    log_start_offset: int
    log_end_offset: int
    snapshot_count: int
    snapshots: int = 0


@dataclass(slots=True)
class Verification:
    """The result of :func:`verify`; ``findings`` are in the order of the directories."""

    directories: list[Verified] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """How many findings are of this severity."""
        return sum(each.severity is severity for each in self.findings)

    @property
    def is_sound(self) -> bool:
        """Whether there is no contradiction; those that are known of Kafka and notes may be."""
        return self.count(Severity.CONTRADICTION) == 0


def verify(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    advance: Callable[[int], object] | None = None,
) -> Verification:
    """Check one metadata directory, or those of several nodes of one quorum against each other.

    Each log is replayed against every snapshot beside it, and each index and file is checked
    against the log. ``advance`` is called with the number of bytes of logs replayed and compared
    so far, at most :func:`work_of`.

    Raises :class:`StorageError` where a path holds no metadata, or cannot be read.
    """
    if isinstance(paths, (str, PathLike)):
        paths = (paths,)
    if not isinstance(paths, Iterable):
        raise InvalidArgumentError(f"paths must be a path or several, not {shown(paths)}")
    named = [path_of(each, "each of paths") for each in paths]
    result = Verification()
    progress = _Progress(advance)
    sources = []
    for path in named:
        with disk_errors(path):
            sources.append(MetadataSource(path, salvage=True))
    for source in sources:
        properties = source.directory.meta_properties
        verified = Verified(
            source.directory.path,
            None if properties is None else properties.node_id,
            source.log_start_offset,
            source.log_end_offset,
            len(source.directory.snapshots),
        )
        result.directories.append(verified)
        result.findings += check_text_files(source)
        result.findings += _damage(source)
        result.findings += check_leader_epochs(source)
        result.findings += check_indexes(source)
        result.findings += _SnapshotCheck(source, verified, progress.add).run()
    if len(sources) > 1:
        result.findings += compare_nodes(sources, progress.add)
    return result


def work_of(paths: Iterable[str | PathLike[str]]) -> int:
    """The bytes that :func:`verify` replays and compares."""
    sizes = [
        sum(each.size for each in MetadataDirectory.find(path, salvage=True).segments)
        for path in paths
    ]
    pairs = sum(min(size, other) for at, size in enumerate(sizes) for other in sizes[:at])
    return sum(sizes) + pairs


class _Progress:
    def __init__(self, advance: Callable[[int], object] | None) -> None:
        self._advance = advance
        self._done = 0

    def add(self, size: int) -> None:
        self._done += size
        if self._advance is not None:
            self._advance(self._done)


def _damage(source: MetadataSource) -> Iterator[Finding]:
    torn = source.torn_tail
    if torn is not None:
        yield Finding(
            Severity.NOTE,
            Path(torn.path),
            f"ends in {torn.size} bytes of an interrupted write from byte {torn.position} on "
            f"({torn.reason})",
            torn.offset,
        )
    for gap in source.gaps:
        until = f"up to offset {gap.next_offset}" if gap.next_offset >= 0 else "to the end"
        yield Finding(
            Severity.CONTRADICTION,
            Path(gap.path),
            f"byte {gap.position}: {gap.reason}; the records are lost {until}",
            gap.offset,
        )


class _SnapshotCheck:
    """Replays a log, and compares the state with each snapshot on the way."""

    def __init__(
        self, source: MetadataSource, verified: Verified, advance: Callable[[int], object]
    ) -> None:
        self._source = source
        self._verified = verified
        self._advance = advance
        self._findings: list[Finding] = []
        self._log = source.directory.segments[0].path.parent if source.directory.segments else None

    def run(self) -> list[Finding]:
        directory = self._source.directory
        sound = [each for each in directory.snapshots if each.size and self._is_sound(each)]
        if directory.bootstrap_checkpoint is not None:
            self._is_sound(directory.bootstrap_checkpoint)
        sound.sort(key=lambda each: each.end_offset)
        for run in runs_of(self._source):
            here = [each for each in sound if run.first_offset <= each.end_offset <= run.end_offset]
            self._check_run(run, here)
        return self._findings

    def _find(
        self,
        severity: Severity,
        path: Path,
        message: str,
        offset: int = -1,
        reason: str | None = None,
    ) -> None:
        other = self._log if path.suffix == ".checkpoint" and offset >= 0 else None
        self._findings.append(Finding(severity, path, message, offset, other, reason))

    def _is_sound(self, snapshot: SnapshotFile) -> bool:
        try:
            cluster = load_snapshot(snapshot, use_column_cache=False)
        except KraftError as error:
            self._find(Severity.CONTRADICTION, snapshot.path, reason_of(error))
            return False
        columns = Path(columns_path(snapshot.path))
        if columns.exists():
            loaded = load_columns(snapshot.path)
            if isinstance(loaded, ColumnsRejected):
                self._find(Severity.NOTE, columns, f"is not used: {loaded.reason}")
            else:
                cached = Metadata(load_snapshot(snapshot, use_column_cache=True))
                if found := diff(Metadata(cluster), cached):
                    message = f"differs from its snapshot in {len(found)} places"
                    self._find(Severity.CONTRADICTION, columns, message)
        return True

    def _check_run(self, run: Run, snapshots: list[SnapshotFile]) -> None:
        """One unbroken stretch of the log, and the snapshots that end in it."""
        # The snapshot of offset 0 has what was there before the first record: the first voters.
        begins_empty = run.first_offset == 0 and not (snapshots and snapshots[0].end_offset == 0)
        cluster: Cluster | None = Cluster() if begins_empty else None
        for piece in pieces_of(run.slices, 1 << 20):
            for batch in iterate(piece.data, base_position=piece.position, verify_crc=False):
                while snapshots and snapshots[0].end_offset <= batch.base_offset:
                    cluster = self._check_snapshot(cluster, snapshots.pop(0), batch)
                while snapshots and snapshots[0].end_offset <= batch.last_offset:
                    self._find(
                        Severity.CONTRADICTION,
                        snapshots.pop(0).path,
                        f"ends inside the batch of offsets {batch.base_offset} to "
                        f"{batch.last_offset}",
                        batch.base_offset,
                    )
                if cluster is not None and not self._replay(cluster, batch, piece):
                    cluster = None
            self._advance(len(piece.data))
        for snapshot in snapshots:
            cluster = self._check_snapshot(cluster, snapshot, None)

    def _replay(self, cluster: Cluster, batch: RecordBatch, piece: Piece) -> bool:
        start = batch.position - piece.position
        try:
            cluster.apply(
                piece.data[start : start + batch.size],
                verify_crc=False,
                path=piece.path,
                base_position=batch.position,
            )
        except KraftError as error:
            self._find(
                Severity.CONTRADICTION,
                Path(piece.path),
                f"a record contradicts those before it: {error}",
                batch.base_offset,
            )
            return False
        return True

    def _check_snapshot(
        self, replayed: Cluster | None, snapshot: SnapshotFile, following: RecordBatch | None
    ) -> Cluster | None:
        """Compares; the cluster to go on with: a snapshot stands in where there was none."""
        end = snapshot.end_offset
        loaded = load_snapshot(snapshot, use_column_cache=False)
        self._check_epoch(snapshot)
        if replayed is None:
            return loaded
        if replayed.transaction_start is not None:
            self._find(
                Severity.CONTRADICTION,
                snapshot.path,
                f"ends inside the metadata transaction of offset {replayed.transaction_start}",
                end,
            )
            return replayed
        self._verified.snapshots += 1
        found = diff(Metadata(replayed), Metadata(loaded))
        if found:
            self._tell(found, snapshot.path, end)
        return replayed

    def _tell(self, found: Sequence[Difference], path: Path, end: int) -> None:
        known = KnownContradictions(self._source, end)
        counts: Counter[Severity] = Counter()
        for each in found:
            reason = known.reason(each)
            severity = Severity.CONTRADICTION if reason is None else Severity.KNOWN
            counts[severity] += 1
            if counts[severity] <= MOST_TOLD:
                self._find(severity, path, _told(each), end, reason)
        for severity, count in counts.items():
            if count > MOST_TOLD:
                more = f"and {count - MOST_TOLD} more differences from the replayed log"
                self._find(severity, path, more, end)

    def _check_epoch(self, snapshot: SnapshotFile) -> None:
        log = self._source.log
        last = snapshot.end_offset - 1
        if log is None or not log.log_start_offset <= last < log.log_end_offset:
            return
        if (epoch := log.epoch_at(last)) != snapshot.epoch:
            self._find(
                Severity.CONTRADICTION,
                snapshot.path,
                f"is of epoch {snapshot.epoch}; the last record before its end is of epoch {epoch}",
                snapshot.end_offset,
            )


def _told(change: Difference) -> str:
    """A difference in words, without the values of settings, which may be secrets."""
    what = " ".join(str(part) for part in (change.kind, change.key, change.field) if part != "")
    if change.kind == "config":
        if change.before is None or change.after is None:
            side = "the snapshot" if change.before is None else "the replayed log"
            return f"{what} is only in {side}"
        return f"{what} has another value than in the replayed log"
    return f"{what} is {change.after!r}; in the replayed log it is {change.before!r}"
