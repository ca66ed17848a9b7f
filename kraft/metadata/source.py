"""``MetadataSource``: the bytes behind a metadata directory, segment or checkpoint, and the states
in them.

Owns which snapshot and which stretch of the log make the state as of an offset, and how damage is
met:

- a torn tail is left out and reported;
- any other damage is refused, unless salvaging;
- a salvaging source reads past damage in the log, falls back from a damaged snapshot to the one
  before it and at last to the log alone, and ends the state before the first batch that cannot be
  replayed. ``damage`` says what was left out.

Nothing is ever written. Fed by ``directory`` (names) and ``kraft._core.log`` /
``kraft._core.snapshot_file`` (bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from kraft._core.batch_records import iterate
from kraft._core.disk import OsDisk
from kraft._core.log import Log
from kraft._core.recovery import Gap, LogScan, TornTail
from kraft._core.segment import Segment
from kraft.errors import CorruptRecordError, KraftError, OffsetOutOfRangeError, StorageError
from kraft.image.replay import Cluster
from kraft.metadata.directory import LeftOut, MetadataDirectory, SnapshotFile, reason_of
from kraft.metadata.snapshots import load_snapshot, map_snapshot

_EVERYTHING = (1 << 63) - 1
_INDEX_INTERVAL_BYTES = 4096


class Slice(NamedTuple):
    """Whole batches as they lie in a file, from byte ``position`` of ``path`` on."""

    data: memoryview
    path: str
    position: int


class MetadataSource:
    """What lies at a path, opened for reading; see :func:`kraft.open_metadata`.

    ``left_out`` are the files, or ends of the log, that salvaging has passed over so far: a
    snapshot is looked at when a state is built from it.
    """

    def __init__(self, path: str | PathLike[str], *, salvage: bool = False) -> None:
        self.directory = MetadataDirectory.find(path, salvage=salvage)
        self.salvage = salvage
        self.left_out: list[LeftOut] = list(self.directory.left_out)
        self.log: Log | None = None
        self._scan: LogScan | None = None
        self._unusable: set[Path] = set()
        # Where the state ends, as what lies behind contradicts it; None where nothing does.
        self._contradiction: int | None = None
        if self.directory.metadata_dir is not None and self.directory.segments:
            self.log = Log.open(self.directory.metadata_dir, read_only=True, salvage=salvage)
        elif self.directory.metadata_dir is None and self.directory.segments:
            self._scan = self._scan_segment()

    def _scan_segment(self) -> LogScan:
        """A single .log file: scanned as the log scans its segments."""
        (segment,) = self.directory.segments
        if segment.base_offset < 0:
            raise StorageError(
                f"{segment.path} is not named as Kafka names segments (twenty digits, .log), "
                "so the offset where it begins is not known"
            )
        scan = LogScan(
            OsDisk(), fspath(segment.path.parent), _INDEX_INTERVAL_BYTES, True, self.salvage
        )
        scan.run([segment.base_offset])
        return scan

    def _segments(self) -> Iterable[Segment]:
        if self.log is not None:
            return self.log.segments
        return () if self._scan is None else self._scan.segments

    # -- what is there

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log; -1 where there is no log."""
        if self.log is not None:
            return self.log.log_start_offset
        return self.directory.segments[0].base_offset if self._scan is not None else -1

    @property
    def log_end_offset(self) -> int:
        """The offset behind the last record of the log; -1 where there is no log."""
        if self.log is not None:
            return self.log.log_end_offset
        if self._scan is not None:
            return self._scan.segments[0].end_offset
        return -1

    @property
    def is_partial(self) -> bool:
        """True where the first records are missing, so that no state can be built: a lone later
        segment.
        """
        return self.log_start_offset > 0 and not self._usable_snapshots()

    @property
    def torn_tail(self) -> TornTail | None:
        """What an interrupted write left at the end, which is passed over."""
        source = self.log if self.log is not None else self._scan
        return None if source is None else source.torn_tail

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damage that salvaging read past."""
        source = self.log if self.log is not None else self._scan
        return () if source is None else tuple(source.gaps)

    @property
    def damage(self) -> list[str]:
        """One sentence for each thing that was left out: a torn tail, what salvaging read past."""
        found = []
        torn = self.torn_tail
        if torn is not None:
            found.append(
                f"torn tail: {torn.size} bytes from byte {torn.position} of {torn.path} are left "
                f"out, the log ends at offset {torn.offset} ({torn.reason})"
            )
        for gap in self.gaps:
            goes_on = (
                f"reading went on at offset {gap.next_offset}"
                if gap.next_offset >= 0
                else "nothing follows it"
            )
            found.append(
                f"gap: damage at byte {gap.position} of {gap.path} loses the records from offset "
                f"{gap.offset} on; {goes_on} ({gap.reason})"
            )
        found.extend(f"left out: {each.path}: {each.reason}" for each in self.left_out)
        return found

    def timestamp_ms_before(self, offset: int) -> int:
        """When the last batch of the log that begins below ``offset`` was appended; -1 where there
        is none.

        That is what Kafka tells of a state: ``MetadataProvenance.lastContainedLogTimeMs``.
        """
        newest = -1
        # Behind a gap that salvaging left, the batch before `offset` may lie anywhere before it.
        for data, _, _ in self.slices(0 if self.gaps else max(offset - 1, 0)):
            for batch in iterate(data, verify_crc=False):
                if batch.base_offset >= offset:
                    return newest
                newest = batch.max_timestamp
        return newest

    @property
    def offset_range(self) -> tuple[int, int]:
        """The lowest and the highest offset of which the state can be built."""
        usable = self._usable_snapshots()
        ends = [snapshot.end_offset for snapshot in usable]
        if self.log_end_offset < 0:
            return (min(ends), max(ends)) if ends else (0, 0)
        first = self.log_start_offset
        if first > 0 and ends:
            first = min(ends)
        last = max(self.log_end_offset, *ends) if ends else self.log_end_offset
        if self._contradiction is not None:
            last = max(first, min(last, self._contradiction))
        return first, last

    def newest_snapshot(self, max_end_offset: int | None = None) -> SnapshotFile | None:
        """As that of the directory, without those that salvaging found to be damaged."""
        return self.directory.newest_snapshot(max_end_offset, without=self._unusable)

    def snapshot_to_load(self, at: int | None = None) -> SnapshotFile | None:
        """What the state as of ``at`` begins with: a snapshot, the bootstrap records of a directory
        whose log holds nothing yet, or None where it begins with the log.
        """
        snapshot = self.newest_snapshot(at)
        bootstrap = self.directory.bootstrap_checkpoint
        if snapshot is None and self.log_end_offset <= 0 and bootstrap is not None:
            snapshot = None if bootstrap.path in self._unusable else bootstrap
        return snapshot

    def _usable_snapshots(self) -> list[SnapshotFile]:
        """Those behind which the log goes on, or that stand alone."""
        return [
            snapshot
            for snapshot in self.directory.snapshots
            if snapshot.size
            and snapshot.end_offset >= self.log_start_offset
            and snapshot.path not in self._unusable
        ]

    def slices(self, since: int = 0) -> Iterator[Slice]:
        """The log's bytes, from the batch that holds ``since`` or from before it on.

        A slice is one segment's, or what lies there between two gaps that salvaging read past.
        """
        if self.log is not None and not self.log.gaps:
            for segment in self.log.segments:
                start = max(since, segment.base_offset)
                if segment.size and start < segment.end_offset:
                    first = next(self.log.batches(start))
                    yield Slice(self.log.fetch(start, _EVERYTHING), segment.path, first.position)
            return
        for segment in self._segments():
            if segment.size and since < segment.end_offset:
                yield from _between_gaps(segment)

    def slices_or_snapshot(self, since: int = 0) -> Iterator[Slice]:
        """The log's bytes; where there is no log, those of the snapshot."""
        if self.log_end_offset >= 0:
            yield from self.slices(since)
            return
        snapshot = self.newest_snapshot() or self.directory.bootstrap_checkpoint
        if snapshot is not None:
            yield Slice(map_snapshot(snapshot), fspath(snapshot.path), 0)

    # -- states

    def load(self, at: int | None = None, *, use_column_cache: bool = True) -> tuple[Cluster, int]:
        """The state as of ``at`` (all records below it; None: of everything there is) and where it
        began.

        That is the end offset of the snapshot loaded, 0 where there was none. Records of a
        transaction that is open at that point are not part of it. Raises
        :class:`OffsetOutOfRangeError`, naming the range, and :class:`CorruptRecordError`; when
        salvaging, damage shortens the range instead.
        """
        cluster, _ = self.load_base(at, use_column_cache=use_column_cache)
        began = cluster.next_offset
        end = self._contradiction if at is None else at
        try:
            if not self.is_partial:
                self._replay(cluster, end)
        except KraftError:
            if not self.salvage or self._contradiction is not None:
                raise
            self._find_contradiction(at)
            return self.load(at, use_column_cache=use_column_cache)
        cluster.drop_open_transaction()
        if not cluster.table.is_compact:
            cluster.table.compact()
        cluster.start_journal()
        return cluster, began

    def load_base(
        self, at: int | None = None, *, use_column_cache: bool = False
    ) -> tuple[Cluster, SnapshotFile | None]:
        """What the state as of ``at`` begins with: the newest snapshot that is sound, and the
        cluster that it makes; None and an empty cluster where there is none.
        """
        while True:
            self._check_offset(at)
            snapshot = self.snapshot_to_load(at)
            if snapshot is None:
                return Cluster(), None
            try:
                return load_snapshot(snapshot, use_column_cache=use_column_cache), snapshot
            except KraftError as error:
                if not self.salvage:
                    if isinstance(error, CorruptRecordError):
                        error.add_advice(
                            "Opening with salvage falls back to an older snapshot and the log"
                        )
                    raise
                self._unusable.add(snapshot.path)
                self.left_out.append(LeftOut(snapshot.path, reason_of(error)))

    def _check_offset(self, at: int | None) -> None:
        first, last = self.offset_range
        if at is None:
            return
        if not first <= at <= last:
            raise OffsetOutOfRangeError(
                f"there is no state as of offset {at}: {self.directory.path} has offsets "
                f"{first} to {last}"
            )
        snapshot = self.newest_snapshot(at)
        reached = max(self.log_end_offset, -1 if snapshot is None else snapshot.end_offset)
        if reached < at and last > 0:
            raise OffsetOutOfRangeError(
                f"there is no state as of offset {at}: in {self.directory.path} the records from "
                f"offset {max(reached, 0)} on are missing up to the next snapshot"
            )

    def _replay(self, cluster: Cluster, end: int | None) -> None:
        began = cluster.next_offset
        for data, path, position in self.slices(began):
            cluster.apply(
                data,
                start_offset=began,
                end_offset=_EVERYTHING if end is None else end,
                # Opening the log has checked every batch.
                verify_crc=False,
                path=path,
                base_position=position,
            )
            if end is not None and cluster.next_offset >= end:
                break

    def _find_contradiction(self, at: int | None) -> None:
        """Notes the first batch that cannot be replayed: the state ends before it."""
        cluster, _ = self.load_base(at)
        began = cluster.next_offset
        for data, path, position in self.slices(began):
            for batch in iterate(data, verify_crc=False):
                start = batch.position
                try:
                    cluster.apply(
                        data[start : start + batch.size],
                        start_offset=began,
                        verify_crc=False,
                        path=path,
                        base_position=position + start,
                    )
                except KraftError as error:
                    self._contradiction = batch.base_offset
                    self.left_out.append(
                        LeftOut(
                            Path(path),
                            f"the records from offset {batch.base_offset} on, as the next ones "
                            f"contradict those before: {error}",
                        )
                    )
                    return


def _between_gaps(segment: Segment) -> Iterator[Slice]:
    file = OsDisk().open(segment.path, read_only=True)
    try:
        data = memoryview(file.map(segment.size))
    finally:
        file.close()
    begin = 0
    for start, stop in (*segment.gaps, (segment.size, segment.size)):
        if begin < start:
            yield Slice(data[begin:start], segment.path, begin)
        begin = stop
