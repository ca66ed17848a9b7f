"""``verify``: check the files of one metadata directory, or of several nodes, for contradictions.

Replays the log against every snapshot beside it and calls all checks in order; ``file_checks`` has
those of small files, ``node_comparison`` those between nodes. Called by library users and ``kraft
verify``.

Invariants: nothing on disk changes; damage is a finding, not an exception; at most a few MiB of a
log are in memory at a time, besides the state that it makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from kraft._core.bytes.batch_records import RecordBatch, iterate
from kraft._core.snapshot.column_checkpoint import ColumnsRejected, columns_path, load_columns
from kraft.errors import InvalidArgumentError, KraftError
from kraft.image.replay import MetadataState
from kraft.metadata.arguments import disk_errors, path_of, shown
from kraft.metadata.contiguous_slices import (
    BatchRange,
    ContiguousSlices,
    batch_ranges,
    contiguous_slices,
)
from kraft.metadata.diff import Difference, diff
from kraft.metadata.directory import MetadataDirectory, SnapshotFile, reason_of
from kraft.metadata.facade import Metadata
from kraft.metadata.file_checks import check_indexes, check_leader_epochs, check_text_files
from kraft.metadata.known_kafka_faults import KnownKafkaFaults
from kraft.metadata.node_comparison import compare_nodes
from kraft.metadata.snapshots import load_snapshot
from kraft.metadata.source import MetadataSource
from kraft.metadata.verification_findings import Severity, VerificationFinding

#: The number of differences listed for each snapshot and severity; the others are counted.
MOST_LISTED = 20


@dataclass(slots=True)
class VerifiedDirectory:
    """The scope of the checks of one directory.

    ``snapshots`` of ``snapshot_count`` snapshots were compared with the replayed log. The log has
    the offsets from ``log_start_offset`` to ``log_end_offset`` (exclusive), -1 without a log.
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

    directories: list[VerifiedDirectory] = field(default_factory=list)
    findings: list[VerificationFinding] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of this severity."""
        return sum(each.severity is severity for each in self.findings)

    @property
    def is_sound(self) -> bool:
        """True without a contradiction; known faults of Kafka and notes are allowed."""
        return self.count(Severity.CONTRADICTION) == 0


def verify(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    advance: Callable[[int], object] | None = None,
) -> Verification:
    """Check one metadata directory, or those of several nodes of one quorum against each other.

    Replays each log against every snapshot beside it, and checks each index and file against the
    log. ``advance`` is called with the number of bytes of logs replayed and compared so far, at
    most :func:`work_of`.

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
        verified = VerifiedDirectory(
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
    """Return the number of bytes that :func:`verify` replays and compares."""
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


def _damage(source: MetadataSource) -> Iterator[VerificationFinding]:
    torn = source.torn_tail
    if torn is not None:
        yield VerificationFinding(
            Severity.NOTE,
            Path(torn.path),
            f"ends with {torn.size} bytes of an interrupted write at byte {torn.position} "
            f"({torn.reason})",
            torn.offset,
        )
    for gap in source.gaps:
        until = f"up to offset {gap.next_offset}" if gap.next_offset >= 0 else "to the end"
        yield VerificationFinding(
            Severity.CONTRADICTION,
            Path(gap.path),
            f"byte {gap.position}: {gap.reason}; records are lost {until}",
            gap.offset,
        )


class _SnapshotCheck:
    """Replays a log and compares the state with each snapshot on the way."""

    def __init__(
        self, source: MetadataSource, verified: VerifiedDirectory, advance: Callable[[int], object]
    ) -> None:
        self._source = source
        self._verified = verified
        self._advance = advance
        self._findings: list[VerificationFinding] = []
        self._log = source.directory.segments[0].path.parent if source.directory.segments else None

    def run(self) -> list[VerificationFinding]:
        directory = self._source.directory
        sound = [each for each in directory.snapshots if each.size and self._is_sound(each)]
        if directory.bootstrap_checkpoint is not None:
            self._is_sound(directory.bootstrap_checkpoint)
        replacing = self._source.replacing_snapshot
        if replacing in sound:
            self._note_replaced_log(replacing)
            sound.remove(replacing)
        sound.sort(key=lambda each: each.end_offset)
        for run in contiguous_slices(self._source):
            here = [each for each in sound if run.first_offset <= each.end_offset <= run.end_offset]
            self._check_contiguous(run, here)
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
        self._findings.append(VerificationFinding(severity, path, message, offset, other, reason))

    def _note_replaced_log(self, replacing: SnapshotFile) -> None:
        """Report a log that the latest snapshot does not come from, and that a restart empties."""
        log = self._source.log
        assert log is not None
        earlier = len(self._source.directory.snapshots) - 1
        and_snapshots = f", and {earlier} earlier snapshot{'s' * (earlier > 1)}" if earlier else ""
        self._find(
            Severity.NOTE,
            replacing.path,
            f"is ahead of the log, which has the offsets {log.log_start_offset} to "
            f"{log.log_end_offset} up to epoch {log.last_epoch}: the node was killed while it "
            "installed a snapshot of the leader. The next start removes these records"
            f"{and_snapshots}, and continues from this snapshot at offset {replacing.end_offset}",
            replacing.end_offset,
        )

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

    def _check_contiguous(self, run: ContiguousSlices, snapshots: list[SnapshotFile]) -> None:
        """Check one contiguous part of the log, and the snapshots that end in it."""
        # A snapshot at offset 0 holds the first voters, from before the first record.
        begins_empty = run.first_offset == 0 and not (snapshots and snapshots[0].end_offset == 0)
        cluster: MetadataState | None = MetadataState() if begins_empty else None
        for block in batch_ranges(run.slices, 1 << 20):
            for batch in iterate(block.data, base_position=block.position, verify_crc=False):
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
                if cluster is not None and not self._replay(cluster, batch, block):
                    cluster = None
            self._advance(len(block.data))
        for snapshot in snapshots:
            cluster = self._check_snapshot(cluster, snapshot, None)

    def _replay(self, cluster: MetadataState, batch: RecordBatch, block: BatchRange) -> bool:
        start = batch.position - block.position
        try:
            cluster.apply(
                block.data[start : start + batch.size],
                verify_crc=False,
                path=block.path,
                base_position=batch.position,
            )
        except KraftError as error:
            self._find(
                Severity.CONTRADICTION,
                Path(block.path),
                f"a record contradicts those before it: {error}",
                batch.base_offset,
            )
            return False
        return True

    def _check_snapshot(
        self, replayed: MetadataState | None, snapshot: SnapshotFile, following: RecordBatch | None
    ) -> MetadataState | None:
        """Compare a snapshot; return the state to continue with: the snapshot's where ``replayed``
        is None.
        """
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
            self._report(found, snapshot.path, end)
        return replayed

    def _report(self, found: Sequence[Difference], path: Path, end: int) -> None:
        known = KnownKafkaFaults(self._source, end)
        counts: Counter[Severity] = Counter()
        for each in found:
            reason = known.reason(each)
            severity = Severity.CONTRADICTION if reason is None else Severity.KNOWN
            counts[severity] += 1
            if counts[severity] <= MOST_LISTED:
                self._find(severity, path, _difference_text(each), end, reason)
        for severity, count in counts.items():
            if count > MOST_LISTED:
                more = f"and {count - MOST_LISTED} more differences from the replayed log"
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


def _difference_text(change: Difference) -> str:
    """Return a difference as text, without values of settings, which may be secrets."""
    what = " ".join(str(part) for part in (change.kind, change.key, change.field) if part != "")
    if change.kind == "config":
        if change.before is None or change.after is None:
            side = "the snapshot" if change.before is None else "the replayed log"
            return f"{what} is only in {side}"
        return f"{what} differs from the replayed log"
    return f"{what} is {change.after!r}; in the replayed log it is {change.before!r}"
