"""``MetadataSource``: read a metadata directory, segment or checkpoint, and load states from it.

Selects the snapshot and the part of the log that make the state as of an offset. Damage:

- a torn tail is skipped and reported, and so is a log that a restart empties because the latest
  snapshot is ahead of it;
- any other damage raises, unless salvaging;
- a salvaging source reads past damage in the log, falls back from a damaged snapshot to the one
  before it and finally to the log alone, and ends the state before the first batch that cannot be
  replayed. ``damage`` reports what was skipped.

Opens and loads again where the node that owns the directory has deleted a listed file meanwhile.

Never writes. Calls ``directory`` (names), ``kraft._core.log`` and
``kraft._core.snapshot.snapshot_file`` (bytes); called by ``open_metadata``, ``verify``, ``salvage``
and the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from kraft._core.bytes.batch_records import iterate
from kraft._core.log.disk import OsDisk
from kraft._core.log.log import Log
from kraft._core.log.recovery import Gap, LogScan, TornTail
from kraft._core.log.segment import Segment
from kraft.errors import (
    CorruptRecordError,
    KraftError,
    MissingFileError,
    OffsetOutOfRangeError,
    StorageError,
)
from kraft.image.replay import MetadataState
from kraft.metadata.directory import (
    LeftOut,
    MetadataDirectory,
    SnapshotFile,
    list_again,
    reason_of,
    replaces_log,
)
from kraft.metadata.snapshots import load_snapshot, map_snapshot

_EVERYTHING = (1 << 63) - 1
_INDEX_INTERVAL_BYTES = 4096


class Slice(NamedTuple):
    """Whole batches as they are in a file, from byte ``position`` of ``path`` on."""

    data: memoryview
    path: str
    position: int


class MetadataSource:
    """The files at a path, opened for reading; see :func:`kraft.open_metadata`.

    ``left_out`` lists the files, or ends of the log, that salvaging has skipped so far: a snapshot
    is read only when a state is loaded from it.
    """

    def __init__(self, path: str | PathLike[str], *, salvage: bool = False) -> None:
        self._path = path
        self.salvage = salvage
        list_again(self._open)

    def _open(self) -> None:
        """List and open the files. Raises MissingFileError where the node that owns them has
        deleted one in between.
        """
        self.directory = MetadataDirectory.find(self._path, salvage=self.salvage)
        self.left_out: list[LeftOut] = list(self.directory.left_out)
        self.log: Log | None = None
        self._scan: LogScan | None = None
        self._unusable: set[Path] = set()
        # The first offset whose batch contradicts the state; None where no batch does.
        self._contradiction: int | None = None
        segments = self.directory.segments
        if self.directory.metadata_dir is not None and segments:
            self.log = Log.open(self.directory.metadata_dir, read_only=True, salvage=self.salvage)
            # The log lists again. If it starts later now, the snapshot before it is not listed.
            if not segments[0].path.exists():
                raise MissingFileError(f"{segments[0].path} was deleted while it was opened")
        elif self.directory.metadata_dir is None and segments:
            self._scan = self._scan_segment()

    def _scan_segment(self) -> LogScan:
        """Scan a single .log file as ``Log.open`` scans its segments."""
        (segment,) = self.directory.segments
        if segment.base_offset < 0:
            raise StorageError(
                f"{segment.path} is not named as Kafka names segments (twenty digits, .log), "
                "so its base offset is unknown"
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

    # -- offsets and damage

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log; -1 without a log."""
        if self.log is not None:
            return self.log.log_start_offset
        return self.directory.segments[0].base_offset if self._scan is not None else -1

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record of the log; -1 without a log."""
        if self.log is not None:
            return self.log.log_end_offset
        if self._scan is not None:
            return self._scan.segments[0].end_offset
        return -1

    @property
    def is_partial(self) -> bool:
        """True where the first records are missing (a lone later segment): no state
        can be built.
        """
        return self.log_start_offset > 0 and not self._usable_snapshots()

    @property
    def replacing_snapshot(self) -> SnapshotFile | None:
        """The latest snapshot where the log has records and a restart removes them all for it.

        See :func:`~kraft.metadata.directory.replaces_log`.
        """
        latest, log = self.newest_snapshot(), self.log
        if latest is None or log is None or log.log_end_offset == log.log_start_offset:
            return None
        is_ahead = replaces_log(latest.end_offset, latest.epoch, log.log_end_offset, log.last_epoch)
        return latest if is_ahead else None

    @property
    def torn_tail(self) -> TornTail | None:
        """The bytes of an interrupted write at the log's end, which are skipped."""
        source = self.log if self.log is not None else self._scan
        return None if source is None else source.torn_tail

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damage that salvaging read past."""
        source = self.log if self.log is not None else self._scan
        return () if source is None else tuple(source.gaps)

    @property
    def damage(self) -> list[str]:
        """One sentence for each skipped part: a torn tail, a log that a restart empties, and what
        salvaging skipped.
        """
        found = []
        torn = self.torn_tail
        if torn is not None:
            found.append(
                f"torn tail: {torn.size} bytes from byte {torn.position} of {torn.path} are "
                f"skipped, the log ends at offset {torn.offset} ({torn.reason})"
            )
        for gap in self.gaps:
            goes_on = (
                f"reading continues at offset {gap.next_offset}"
                if gap.next_offset >= 0
                else "no batch follows"
            )
            found.append(
                f"gap: damage at byte {gap.position} of {gap.path} loses the records from offset "
                f"{gap.offset} on; {goes_on} ({gap.reason})"
            )
        replacing = self.replacing_snapshot
        if replacing is not None:
            found.append(
                f"replaced log: the log of offsets {self.log_start_offset} to "
                f"{self.log_end_offset} lacks the last record of {replacing.path.name}, and a "
                f"restart empties it; the state ends at offset {replacing.end_offset}"
            )
        found.extend(f"skipped: {each.path}: {each.reason}" for each in self.left_out)
        return found

    def timestamp_ms_before(self, offset: int) -> int:
        """Return the append time of the last batch that begins below ``offset``, in ms; -1 without
        one.

        Kafka reports it as ``MetadataProvenance.lastContainedLogTimeMs``.
        """
        replacing = self.replacing_snapshot
        if replacing is not None and offset >= replacing.end_offset:
            return -1
        newest = -1
        # With gaps, the batch before `offset` may be at any earlier offset: read from the start.
        for data, _, _ in self.slices(0 if self.gaps else max(offset - 1, 0)):
            for batch in iterate(data, verify_crc=False):
                if batch.base_offset >= offset:
                    return newest
                newest = batch.max_timestamp
        return newest

    @property
    def offset_range(self) -> tuple[int, int]:
        """The lowest and the highest offset as of which a state can be built."""
        usable = self._usable_snapshots()
        ends = [snapshot.end_offset for snapshot in usable]
        if self.log_end_offset < 0:
            return (min(ends), max(ends)) if ends else (0, 0)
        first = self.log_start_offset
        if first > 0 and ends:
            first = min(ends)
        last = max(self.log_end_offset, *ends) if ends else self.log_end_offset
        if (replacing := self.replacing_snapshot) is not None:
            last = replacing.end_offset
        if self._contradiction is not None:
            last = max(first, min(last, self._contradiction))
        return first, last

    def newest_snapshot(self, max_end_offset: int | None = None) -> SnapshotFile | None:
        """Return the directory's newest snapshot that salvaging did not find damaged."""
        return self.directory.newest_snapshot(max_end_offset, without=self._unusable)

    def snapshot_to_load(self, at: int | None = None) -> SnapshotFile | None:
        """Return the snapshot from which the state as of ``at`` is built; None to start from the
        log.

        That may be the bootstrap records of a directory whose log is empty.
        """
        snapshot = self.newest_snapshot(at)
        bootstrap = self.directory.bootstrap_checkpoint
        if snapshot is None and self.log_end_offset <= 0 and bootstrap is not None:
            snapshot = None if bootstrap.path in self._unusable else bootstrap
        return snapshot

    def _usable_snapshots(self) -> list[SnapshotFile]:
        """Return the snapshots that the log continues, or that have no log."""
        return [
            snapshot
            for snapshot in self.directory.snapshots
            if snapshot.size
            and snapshot.end_offset >= self.log_start_offset
            and snapshot.path not in self._unusable
        ]

    def slices(self, since: int = 0) -> Iterator[Slice]:
        """Yield the log's bytes, starting at or before the batch that holds ``since``.

        A slice is one segment, or the part of it between two gaps that salvaging read past.
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
        """Yield the log's bytes; without a log those of the snapshot."""
        if self.log_end_offset >= 0:
            yield from self.slices(since)
            return
        snapshot = self.newest_snapshot() or self.directory.bootstrap_checkpoint
        if snapshot is not None:
            yield Slice(map_snapshot(snapshot), fspath(snapshot.path), 0)

    # -- states

    def load(
        self, at: int | None = None, *, use_column_cache: bool = True
    ) -> tuple[MetadataState, int]:
        """Return the state as of ``at`` (None: of all records) and the end offset of its snapshot
        (0: none).

        Records of a transaction that is open at that offset are not part of it. From the end of
        `replacing_snapshot` on the log is not read; a state as of an offset before it comes from
        the log, and may have records that were never committed. Raises
        :class:`OffsetOutOfRangeError` with the available range, and :class:`CorruptRecordError`;
        when salvaging, damage shortens the range instead.
        """
        cluster, base = self.load_base(at, use_column_cache=use_column_cache)
        began = cluster.next_offset
        is_replaced = base is not None and base == self.replacing_snapshot
        end = self._contradiction if at is None else at
        try:
            if not self.is_partial and not is_replaced:
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
    ) -> tuple[MetadataState, SnapshotFile | None]:
        """Return the state of the newest sound snapshot for ``at``, and that snapshot; an empty
        state and None without one.
        """
        while True:
            self._check_offset(at)
            snapshot = self.snapshot_to_load(at)
            if snapshot is None:
                return MetadataState(), None
            try:
                return load_snapshot(snapshot, use_column_cache=use_column_cache), snapshot
            except MissingFileError:
                # The node that owns the directory has deleted it, and has a later one.
                list_again(self._open)
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
                f"no state is available as of offset {at}: {self.directory.path} has offsets "
                f"{first} to {last}"
            )
        snapshot = self.newest_snapshot(at)
        reached = max(self.log_end_offset, -1 if snapshot is None else snapshot.end_offset)
        if reached < at and last > 0:
            raise OffsetOutOfRangeError(
                f"no state is available as of offset {at}: in {self.directory.path} the records "
                f"from offset {max(reached, 0)} on are missing up to the next snapshot"
            )

    def _replay(self, cluster: MetadataState, end: int | None) -> None:
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
        """Find the first batch that cannot be replayed; the state ends before it."""
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
                            f"the records from offset {batch.base_offset} on, because they "
                            f"contradict earlier ones: {error}",
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
