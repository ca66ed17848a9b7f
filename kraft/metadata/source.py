"""``MetadataSource``: the bytes behind a metadata directory, segment or checkpoint, and the states
in them.

Owns which snapshot and which stretch of the log make the state as of an offset, and how damage is
met: a torn tail is left out and reported, damage that valid batches follow is refused unless
salvaging. Nothing is ever written. Fed by ``directory`` (names) and ``kraft._core.log`` /
``kraft._core.snapshot_file`` (bytes).
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike, fspath
from typing import NamedTuple

from kraft._core.batch_records import iterate
from kraft._core.disk import OsDisk
from kraft._core.log import Log
from kraft._core.recovery import Gap, LogScan, TornTail
from kraft.errors import OffsetOutOfRangeError, StorageError
from kraft.image.replay import Cluster
from kraft.metadata.directory import MetadataDirectory, SnapshotFile
from kraft.metadata.snapshots import load_snapshot, map_snapshot

_EVERYTHING = (1 << 63) - 1
_INDEX_INTERVAL_BYTES = 4096


class Slice(NamedTuple):
    """Whole batches as they lie in a file, from byte ``position`` of ``path`` on."""

    data: memoryview
    path: str
    position: int


class MetadataSource:
    """What lies at a path, opened for reading; see :func:`kraft.open_metadata`."""

    def __init__(self, path: str | PathLike[str], *, salvage: bool = False) -> None:
        self.directory = MetadataDirectory.find(path)
        self.salvage = salvage
        self.log: Log | None = None
        self._segment: Slice | None = None
        self._scan: LogScan | None = None
        if self.directory.metadata_dir is not None and self.directory.segments:
            self.log = Log.open(self.directory.metadata_dir, read_only=True, salvage=salvage)
        elif self.directory.metadata_dir is None and self.directory.segments:
            self._open_segment()

    def _open_segment(self) -> None:
        """A single .log file: scanned as the log scans its segments."""
        (segment,) = self.directory.segments
        if segment.base_offset < 0:
            raise StorageError(
                f"{segment.path} is not named as Kafka names segments (twenty digits, .log), "
                "so the offset where it begins is not known"
            )
        disk = OsDisk()
        scan = LogScan(disk, fspath(segment.path.parent), _INDEX_INTERVAL_BYTES, True, self.salvage)
        scan.run([segment.base_offset])
        (scanned,) = scan.segments
        self._scan = scan
        data = memoryview(b"")
        if scanned.size:
            file = disk.open(fspath(segment.path), read_only=True)
            data = memoryview(file.map(scanned.size))
            file.close()
        self._segment = Slice(data, fspath(segment.path), 0)

    # -- what is there

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log; -1 where there is no log."""
        if self.log is not None:
            return self.log.log_start_offset
        return self.directory.segments[0].base_offset if self._segment is not None else -1

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
        return self.log_start_offset > 0 and self._first_snapshot() is None

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
        first_snapshot = self._first_snapshot()
        if self.log_end_offset < 0:
            if self.directory.snapshots:
                return self._snapshot_range()
            return 0, 0
        if self.log_start_offset == 0 or first_snapshot is None:
            return self.log_start_offset, self.log_end_offset
        newest = self.directory.newest_snapshot()
        end = self.log_end_offset if newest is None else max(self.log_end_offset, newest.end_offset)
        return first_snapshot.end_offset, end

    def _snapshot_range(self) -> tuple[int, int]:
        ends = [snapshot.end_offset for snapshot in self.directory.snapshots]
        return min(ends), max(ends)

    def _first_snapshot(self) -> SnapshotFile | None:
        """The oldest snapshot behind which the log goes on."""
        usable = [
            snapshot
            for snapshot in self.directory.snapshots
            if snapshot.size and snapshot.end_offset >= self.log_start_offset
        ]
        return min(usable, key=lambda snapshot: snapshot.end_offset, default=None)

    def slices(self, since: int = 0) -> Iterator[Slice]:
        """The log's bytes, a slice a segment, from the batch that holds ``since`` on."""
        if self._segment is not None:
            if len(self._segment.data):
                yield self._segment
        elif self.log is not None and self.log.gaps:
            # The bytes that salvaging read past are no batches, so only single batches are
            # contiguous.
            for batch in self.log.batches(since):
                yield Slice(batch.data, batch.path, batch.position)
        elif self.log is not None:
            for segment in self.log.segments:
                start = max(since, segment.base_offset)
                if segment.size and start < segment.end_offset:
                    first = next(self.log.batches(start))
                    yield Slice(self.log.fetch(start, _EVERYTHING), segment.path, first.position)

    def slices_or_snapshot(self, since: int = 0) -> Iterator[Slice]:
        """The log's bytes; where there is no log, those of the snapshot."""
        if self.log_end_offset >= 0:
            yield from self.slices(since)
            return
        snapshot = self.directory.newest_snapshot() or self.directory.bootstrap_checkpoint
        if snapshot is not None:
            yield Slice(map_snapshot(snapshot), fspath(snapshot.path), 0)

    # -- states

    def load(self, at: int | None = None, *, use_column_cache: bool = True) -> tuple[Cluster, int]:
        """The state as of ``at`` (all records below it; None: of everything there is) and where it
        began.

        That is the end offset of the snapshot loaded, 0 where there was none. Records of a
        transaction that is open at that point are not part of it. Raises
        :class:`OffsetOutOfRangeError`, naming the range, and :class:`CorruptRecordError`.
        """
        first, last = self.offset_range
        if at is not None and not first <= at <= last:
            raise OffsetOutOfRangeError(
                f"there is no state as of offset {at}: {self.directory.path} has offsets "
                f"{first} to {last}"
            )
        snapshot = self.directory.newest_snapshot(at)
        if snapshot is None and self.log_end_offset <= 0:
            snapshot = self.directory.bootstrap_checkpoint
        cluster = Cluster()
        if snapshot is not None:
            cluster = load_snapshot(snapshot, use_column_cache=use_column_cache)
        began = cluster.next_offset
        if not self.is_partial:
            for data, path, position in self.slices(began):
                cluster.apply(
                    data,
                    start_offset=began,
                    end_offset=_EVERYTHING if at is None else at,
                    # Opening the log has checked every batch.
                    verify_crc=False,
                    path=path,
                    base_position=position,
                )
                if at is not None and cluster.next_offset >= at:
                    break
        cluster.drop_open_transaction()
        if not cluster.table.is_compact:
            cluster.table.compact()
        cluster.start_journal()
        return cluster, began
