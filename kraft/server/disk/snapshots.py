"""The snapshots of the metadata log, as files: checked, mapped, downloaded, forgotten.

Owns the ``.checkpoint`` files of a metadata log's directory, and the ``.part`` of a download. A
snapshot is taken into the list once every byte of it has been checked: headers, CRCs, records'
framing, its header and footer, its control records. What is served or loaded was checked before.
A download is checked, and its way to the device begun, chunk by chunk while more of it is on its
way, so that little is left to do at its end.

Invariants: ``all`` is replaced and never changed, so that other threads may look into it; a mapped
snapshot stays readable after its file is removed. Sources: KIP-630, KIP-853, Kafka's ``Snapshots``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft._core.batch import ATTRIBUTE_CONTROL, scan, split
from kraft._core.batch_check import validate
from kraft._core.batch_records import iterate
from kraft._core.disk import Disk, File
from kraft._core.snapshot_file import (
    PART_SUFFIX,
    SnapshotReader,
    parse_snapshot_name,
    snapshot_name,
)
from kraft.errors import (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from kraft.raft.messages import OffsetAndEpoch, SnapshotSlice
from kraft.raft.voters import VoterSet
from kraft.records import control

#: Of a snapshot, checked in one go.
PIECE_SIZE = 4 * 1024 * 1024
#: What is raised for a file that is no snapshot, or none that this package can read.
UNSOUND = (CorruptRecordError, UnsupportedVersionError, UnsupportedCompressionTypeError)
#: Bytes of a download after which the device is to begin with them.
SYNC_SIZE = 4 * 1024 * 1024
#: The largest batch that is put together from chunks to be checked: twice what Kafka writes.
MAX_PIECED_SIZE = 16 * 1024 * 1024
#: Of a batch, before that which its length counts.
LENGTH_END = 12


class StoredSnapshot(NamedTuple):
    """A snapshot that was checked: its bytes, mapped, and what its control records say."""

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
    disk: Disk, path: str, id: OffsetAndEpoch, checked: RecordsCheck | None = None
) -> StoredSnapshot:
    """Maps the file at ``path`` and checks all of it; ``checked`` is what has seen its bytes
    already. Raises CorruptRecordError, StorageError.
    """
    file = disk.open(path, read_only=True)
    try:
        data = memoryview(file.map(file.size()))
    finally:
        file.close()
    try:
        info = SnapshotReader(data).info
        if info.epoch != id.epoch:
            raise CorruptRecordError(f"a snapshot of epoch {info.epoch} is named {id.epoch}")
        if checked is None or not checked.has_passed(len(data)):
            checked = RecordsCheck()
            for piece in split(data, PIECE_SIZE):
                # Piece by piece, so that other threads get the interpreter in between.
                checked.check(piece)
    except CorruptRecordError as error:
        raise error.at(path=path) from None
    timestamp_ms = info.last_contained_log_timestamp_ms
    return StoredSnapshot(id, data, timestamp_ms, checked.voters, checked.kraft_version)


class RecordsCheck:
    """Checks every batch and record of a snapshot; what its control records say of the quorum.

    Either whole batches are given to `check`, or chunks that are cut anywhere to `take_chunk`. That
    batches follow each other without a gap is for `SnapshotReader` to say.
    """

    def __init__(self) -> None:
        #: None and 0 where there are no such records.
        self.voters: VoterSet | None = None
        self.kraft_version = 0
        self._position = 0
        #: Of a batch whose end is not there yet.
        self._begun = bytearray()
        self._is_given_up = False

    def has_passed(self, size: int) -> bool:
        """Whether ``size`` bytes were given, no more, and all of them are sound."""
        return not self._is_given_up and not self._begun and self._position == size

    def take_chunk(self, data: bytes | memoryview) -> None:
        """The next chunk of a download. Raises nothing: whatever is amiss, and a batch too large to
        be put together here, is left to a check of the whole file, which can say where it is.
        """
        if self._is_given_up:
            return
        try:
            self._take_chunk(memoryview(data))
        except UNSOUND:
            self._is_given_up = True
            self._begun = bytearray()

    def _take_chunk(self, data: memoryview) -> None:
        begun = self._begun
        while begun:
            wanted = LENGTH_END
            if len(begun) >= LENGTH_END:
                wanted += int.from_bytes(begun[8:LENGTH_END], "big", signed=True)
            if wanted > MAX_PIECED_SIZE:
                raise CorruptRecordError(f"a batch of {wanted} bytes")
            if wanted <= len(begun) and len(begun) >= LENGTH_END:
                self.check(memoryview(begun))
                begun = self._begun = bytearray()
            elif not data:
                return
            else:
                missing = wanted - len(begun)
                begun += data[:missing]
                data = data[missing:]
        whole = scan(data, verify_crc=False).tail_position
        self.check(data[:whole])
        begun += data[whole:]

    def check(self, piece: memoryview) -> None:
        """Whole batches, the next ones. Raises one of `UNSOUND`."""
        table = validate(piece, dense=True, base_position=self._position)
        is_control = (table.attributes & ATTRIBUTE_CONTROL) != 0
        positions = table.positions[is_control] - self._position
        for position, size in zip(
            positions.tolist(), table.sizes[is_control].tolist(), strict=True
        ):
            self._read_control_batch(piece[position : position + size])
        self._position += len(piece)

    def _read_control_batch(self, batch: memoryview) -> None:
        for record_batch in iterate(batch, verify_crc=False):
            for record in record_batch:
                assert record.control_type is not None
                decoded = control.decode_control(record.control_type, record.value or b"")
                if isinstance(decoded, control.KRaftVersion):
                    self.kraft_version = decoded.kraft_version
                elif isinstance(decoded, control.KRaftVoters):
                    self.voters = VoterSet.from_record(decoded)


class Download(NamedTuple):
    """The file of a snapshot that is on its way, and how far its bytes are checked."""

    file: File
    check: RecordsCheck


class SnapshotFiles:
    """The snapshots of one directory. One thread changes them; any may read."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._downloads: dict[OffsetAndEpoch, Download] = {}
        #: By id, ascending.
        self.all: Mapping[OffsetAndEpoch, StoredSnapshot] = MappingProxyType({})

    def find(self) -> list[OffsetAndEpoch]:
        """The ids of the files that are there, ascending."""
        ids = (parse_snapshot_name(name) for name in self._disk.list(self._directory))
        return sorted(OffsetAndEpoch(*id) for id in ids if id is not None)

    def path(self, id: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot_name(*id)}"

    @property
    def latest(self) -> StoredSnapshot | None:
        return self.all[max(self.all)] if self.all else None

    def take_in(self, id: OffsetAndEpoch) -> StoredSnapshot:
        """Checks a complete file and takes it into the list."""
        snapshot = read_stored_snapshot(self._disk, self.path(id), id)
        self._list(snapshot)
        return snapshot

    def _list(self, snapshot: StoredSnapshot) -> None:
        snapshots = {**self.all, snapshot.id: snapshot}
        self.all = MappingProxyType(dict(sorted(snapshots.items())))

    def read(self, slice: SnapshotSlice) -> memoryview:
        """The bytes of a slice, not copied; empty where there is no such snapshot any more."""
        snapshot = self.all.get(slice.snapshot_id)
        if snapshot is None:
            return memoryview(b"")
        return snapshot.data[slice.position : slice.position + slice.max_size]

    def remove_before(self, id: OffsetAndEpoch) -> None:
        """Forgets and removes the snapshots before ``id``, those that nobody listed included."""
        self.all = MappingProxyType({at: one for at, one in self.all.items() if at >= id})
        before = [old for old in self.find() if old < id]
        for old in before:
            self._disk.remove(self.path(old))
        if before:
            self._disk.sync_directory(self._directory)

    # -- downloads

    def store_chunk(self, id: OffsetAndEpoch, position: int, data: bytes | memoryview) -> None:
        """Bytes of a download, each behind those before; position 0 begins it anew."""
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
        check.take_chunk(data)

    def finish_download(self, id: OffsetAndEpoch) -> StoredSnapshot:
        """Syncs and checks the download, and puts it under its name, durably.

        Raises one of `UNSOUND` where it is no sound snapshot; the download is gone then.
        """
        file, check = self._downloads.pop(id)
        try:
            file.sync()
        finally:
            file.close()
        try:
            snapshot = read_stored_snapshot(self._disk, self._part(id), id, check)
        except UNSOUND:
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
    """Whether a file is what an interrupted download, deletion or replacement left behind."""
    return os.path.splitext(name)[1] in (PART_SUFFIX, ".deleted", ".tmp")
