"""Check, map, download and remove the snapshot files of the metadata log.

Responsible for the ``.checkpoint`` files of a metadata log's directory, and the ``.part`` file of a
download; of the ``.columns`` beside them it only removes those that were left over. A snapshot is
served or loaded only after every byte of it was checked: headers, CRCs, the framing of records, its
header and footer, its control records. The chunks of a download are checked as they arrive, and
their sync begins then, so that little work remains at its end.

A start checks the latest snapshot only: it loads no other one, and the earlier ones may be many
times its bytes. They are checked soon afterwards. A controller's start loads the latest snapshot,
which checks every byte as well, so that the store reads only its headers and control records; or it
loads the columns beside it, and the snapshot is checked soon afterwards too.

Invariants: ``all`` and ``unchecked`` are replaced and never changed, so that other threads may read
them; a mapped snapshot stays readable after its file is removed. Sources: KIP-630, KIP-853, Kafka's
``Snapshots``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, scan, split
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.batch_records import iterate
from kraft._core.log.disk import Disk, File
from kraft._core.snapshot.column_checkpoint import COLUMNS_SUFFIX
from kraft._core.snapshot.snapshot_file import (
    PART_SUFFIX,
    SUFFIX,
    SnapshotReader,
    parse_snapshot_name,
    snapshot_name,
)
from kraft.errors import (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from kraft.raft.rpc import OffsetAndEpoch, SnapshotSlice
from kraft.raft.voters import VoterSet
from kraft.records import control

#: Bytes of a snapshot that are checked in one call. Other threads get the interpreter meanwhile;
#: after each call, taking it back may wait for one of them.
CHECK_SIZE = 64 * 1024 * 1024
#: The errors of a file that is not a snapshot, or not one that this package can read.
INVALID_SNAPSHOT = (CorruptRecordError, UnsupportedVersionError, UnsupportedCompressionTypeError)
#: Bytes of a download after which their sync begins.
SYNC_SIZE = 4 * 1024 * 1024
#: The largest batch that is assembled from chunks for its check: twice the size that Kafka writes.
MAX_ASSEMBLED_SIZE = 16 * 1024 * 1024
#: The length field of a batch counts the bytes after this position.
LENGTH_END = 12


class StoredSnapshot(NamedTuple):
    """A checked snapshot: its mapped bytes, and the quorum state in its control records."""

    id: OffsetAndEpoch
    data: memoryview
    #: The time of the last record in it, in ms.
    last_contained_log_timestamp_ms: int
    #: None and 0 where there are no such records.
    voters: VoterSet | None
    kraft_version: int

    @property
    def size(self) -> int:
        return len(self.data)


def read_stored_snapshot(
    disk: Disk,
    path: str,
    id: OffsetAndEpoch,
    checked: RecordsCheck | None = None,
    *,
    is_loaded_next: bool = False,
) -> StoredSnapshot:
    """Map the file at ``path`` and check all of it. Raises CorruptRecordError, StorageError.

    ``checked`` has checked the same bytes already, if it passed for the file's size. With
    ``is_loaded_next`` the caller loads the snapshot, which checks its records.
    """
    file = disk.open(path, read_only=True)
    try:
        data = memoryview(file.map(file.size()))
    finally:
        file.close()
    try:
        info = SnapshotReader(data).info
        if info.epoch != id.epoch:
            raise CorruptRecordError(
                f"the last record has epoch {info.epoch}, and the file's name says {id.epoch}"
            )
        if is_loaded_next:
            checked = RecordsCheck()
            checked.check_control_batches(data)
        elif checked is None or not checked.has_passed(len(data)):
            checked = RecordsCheck()
            for piece in split(data, CHECK_SIZE):
                checked.check_batches(piece)
    except CorruptRecordError as error:
        raise error.at(path=path) from None
    timestamp_ms = info.last_contained_log_timestamp_ms
    return StoredSnapshot(id, data, timestamp_ms, checked.voters, checked.kraft_version)


class RecordsCheck:
    """Checks every batch and record of a snapshot, and reads its control records.

    Call `check_batches` with whole batches, or `check_chunk` with chunks of any extent.
    `SnapshotReader` checks that no batch is missing in between.
    """

    def __init__(self) -> None:
        #: None and 0 where there are no such records.
        self.voters: VoterSet | None = None
        self.kraft_version = 0
        self._position = 0
        #: The first bytes of a batch that is not complete yet.
        self._partial_batch = bytearray()
        self._has_failed = False

    def has_passed(self, size: int) -> bool:
        """Return whether exactly ``size`` bytes were checked, without an error."""
        return not self._has_failed and not self._partial_batch and self._position == size

    def check_chunk(self, data: bytes | memoryview) -> None:
        """Check the next chunk of a download; raises nothing.

        An error, or a batch too large to be assembled, is left to the check of the whole file,
        whose errors have a position.
        """
        if self._has_failed:
            return
        try:
            self._check_chunk(memoryview(data))
        except INVALID_SNAPSHOT:
            self._has_failed = True
            self._partial_batch = bytearray()

    def _check_chunk(self, data: memoryview) -> None:
        partial = self._partial_batch
        while partial:
            wanted = LENGTH_END
            if len(partial) >= LENGTH_END:
                wanted += int.from_bytes(partial[8:LENGTH_END], "big", signed=True)
            if wanted > MAX_ASSEMBLED_SIZE:
                raise CorruptRecordError(
                    f"a batch of {wanted} bytes: at most {MAX_ASSEMBLED_SIZE} are assembled"
                )
            if wanted <= len(partial) and len(partial) >= LENGTH_END:
                self.check_batches(memoryview(partial))
                partial = self._partial_batch = bytearray()
            elif not data:
                return
            else:
                missing = wanted - len(partial)
                partial += data[:missing]
                data = data[missing:]
        whole = scan(data, verify_crc=False).tail_position
        self.check_batches(data[:whole])
        partial += data[whole:]

    def check_batches(self, piece: memoryview) -> None:
        """Check the next whole batches. Raises one of `INVALID_SNAPSHOT`."""
        table = validate(piece, dense=True, base_position=self._position)
        is_control = (table.attributes & ATTRIBUTE_CONTROL) != 0
        positions = table.positions[is_control] - self._position
        for position, size in zip(
            positions.tolist(), table.sizes[is_control].tolist(), strict=True
        ):
            self._read_control_batch(piece[position : position + size])
        self._position += len(piece)

    def check_control_batches(self, data: memoryview) -> None:
        """Check the control batches of a whole snapshot. Raises one of `INVALID_SNAPSHOT`."""
        table = scan(data, verify_crc=False)
        is_control = (table.attributes & ATTRIBUTE_CONTROL) != 0
        for position, length in zip(
            table.positions[is_control].tolist(),
            table.batch_lengths[is_control].tolist(),
            strict=True,
        ):
            self._read_control_batch(data[position : position + LENGTH_END + length], position)

    def _read_control_batch(self, batch: memoryview, position: int = 0) -> None:
        for record_batch in iterate(batch, base_position=position):
            for record in record_batch:
                assert record.control_type is not None
                decoded = control.decode_control(record.control_type, record.value or b"")
                if isinstance(decoded, control.KRaftVersion):
                    self.kraft_version = decoded.kraft_version
                elif isinstance(decoded, control.KRaftVoters):
                    self.voters = VoterSet.from_record(decoded)


class Download(NamedTuple):
    """The file of a download under way, and the check of its chunks."""

    file: File
    check: RecordsCheck


class SnapshotFiles:
    """The snapshots of one directory. One thread changes them; any may read."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._downloads: dict[OffsetAndEpoch, Download] = {}
        #: The checked snapshots by id, ascending.
        self.all: Mapping[OffsetAndEpoch, StoredSnapshot] = MappingProxyType({})
        #: The sizes of earlier snapshots that a start has found and not checked yet, by id.
        self.unchecked: Mapping[OffsetAndEpoch, int] = MappingProxyType({})

    def find(self) -> list[OffsetAndEpoch]:
        """Return the ids of the snapshot files in the directory, ascending."""
        ids = (parse_snapshot_name(name) for name in self._disk.list(self._directory))
        return sorted(OffsetAndEpoch(*id) for id in ids if id is not None)

    def path(self, id: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot_name(*id)}"

    @property
    def latest(self) -> StoredSnapshot | None:
        return self.all[max(self.all)] if self.all else None

    def add(self, id: OffsetAndEpoch, *, is_loaded_next: bool = False) -> StoredSnapshot:
        """Check a complete file, see `read_stored_snapshot`, and add it to ``all``."""
        path = self.path(id)
        snapshot = read_stored_snapshot(self._disk, path, id, is_loaded_next=is_loaded_next)
        self._list(snapshot)
        return snapshot

    def expect(self, id: OffsetAndEpoch) -> None:
        """Note a snapshot file that is checked later, and neither served nor loaded until then."""
        file = self._disk.open(self.path(id), read_only=True)
        try:
            self.unchecked = MappingProxyType({**self.unchecked, id: file.size()})
        finally:
            file.close()

    def check(self, id: OffsetAndEpoch) -> StoredSnapshot:
        """Return the snapshot of a file, checked; in any thread, as nothing is changed."""
        return read_stored_snapshot(self._disk, self.path(id), id)

    def resolve(self, id: OffsetAndEpoch, snapshot: StoredSnapshot | None) -> None:
        """Add an expected snapshot that was checked; None where the check failed."""
        if id in self.unchecked:
            self._forget_unchecked(lambda one: one == id)
            if snapshot is not None:
                self._list(snapshot)

    def _forget_unchecked(self, is_gone: Callable[[OffsetAndEpoch], bool]) -> None:
        left = {id: size for id, size in self.unchecked.items() if not is_gone(id)}
        self.unchecked = MappingProxyType(left)

    def _list(self, snapshot: StoredSnapshot) -> None:
        snapshots = {**self.all, snapshot.id: snapshot}
        self.all = MappingProxyType(dict(sorted(snapshots.items())))

    def read(self, slice: SnapshotSlice) -> memoryview:
        """Return the bytes of a slice, not copied; empty where the snapshot was removed."""
        snapshot = self.all.get(slice.snapshot_id)
        if snapshot is None:
            return memoryview(b"")
        return snapshot.data[slice.position : slice.position + slice.max_size]

    def remove_before(self, id: OffsetAndEpoch) -> None:
        """Remove the snapshots before ``id``, also files that ``all`` does not have."""
        self.all = MappingProxyType({at: one for at, one in self.all.items() if at >= id})
        self._forget_unchecked(lambda one: one < id)
        before = [old for old in self.find() if old < id]
        for old in before:
            self._disk.remove(self.path(old))
        if before:
            self.remove_lone_columns()
            self._disk.sync_directory(self._directory)

    def remove_lone_columns(self) -> None:
        """Remove the column checkpoints whose snapshots are gone; a crash may bring them back."""
        names = set(self._disk.list(self._directory))
        for name in names:
            if name.endswith(COLUMNS_SUFFIX) and name.replace(COLUMNS_SUFFIX, SUFFIX) not in names:
                self._disk.remove(f"{self._directory}/{name}")

    # -- downloads

    def store_chunk(self, id: OffsetAndEpoch, position: int, data: bytes | memoryview) -> None:
        """Append a chunk to a download; position 0 starts the download again."""
        if position == 0:
            self.drop_download(id)
            file = self._disk.open(self._part(id), create=True)
            file.truncate(0)
            self._downloads[id] = Download(file, RecordsCheck())
        file, check = self._downloads[id]
        assert file.size() == position, (id, position, file.size())
        file.append([data])
        end = position + len(data)
        begun = position - position % SYNC_SIZE
        if end - begun >= SYNC_SIZE:
            file.begin_sync(begun, end - end % SYNC_SIZE - begun)
        check.check_chunk(data)

    def finish_download(self, id: OffsetAndEpoch) -> StoredSnapshot:
        """Sync and check the download, and rename it to its final name, durably.

        Raises one of `INVALID_SNAPSHOT` for an invalid snapshot, after removing the download.
        """
        file, check = self._downloads.pop(id)
        try:
            file.sync()
        finally:
            file.close()
        try:
            snapshot = read_stored_snapshot(self._disk, self._part(id), id, check)
        except INVALID_SNAPSHOT:
            self._disk.remove(self._part(id))
            raise
        self._disk.rename(self._part(id), self.path(id))
        self._disk.sync_directory(self._directory)
        self._list(snapshot)
        return snapshot

    def drop_download(self, id: OffsetAndEpoch) -> None:
        download = self._downloads.pop(id, None)
        if download is not None:
            download.file.close()
            self._disk.remove(self._part(id))

    def close(self) -> None:
        for download in self._downloads.values():
            download.file.close()
        self._downloads.clear()

    def _part(self, id: OffsetAndEpoch) -> str:
        return self.path(id) + PART_SUFFIX


def is_unfinished(name: str) -> bool:
    """Return whether a file is left from an interrupted download, deletion or replacement."""
    return os.path.splitext(name)[1] in (PART_SUFFIX, ".deleted", ".tmp")
