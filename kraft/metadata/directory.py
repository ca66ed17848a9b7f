"""Find, name and parse the files of a metadata log directory without changing them.

Knows Kafka's layout of a ``log.dir`` that holds the metadata log::

    <log.dir>/
        meta.properties                                 cluster.id, node.id, directory.id
        bootstrap.checkpoint                            written by `kafka-storage format`
        __cluster_metadata-0/
            quorum-state                                one line of JSON: epoch, leader, vote
            00000000000000000000.log                    segments, named by base offset
            00000000000000000000-0000000000.checkpoint  snapshots: end offset, epoch
            partition.metadata                          the topic id of the log

Reads only names, sizes and the three small text files; ``kraft._core.log`` and
``kraft._core.snapshot.snapshot_file`` read segments and checkpoints. Sources: Kafka's
``MetaProperties``, ``FileQuorumStateStore`` with ``QuorumStateData.json``, ``Snapshots``,
``BootstrapDirectory``.

The node that owns the directory may run: :func:`list_again` repeats a reading whose files it has
deleted or renamed in between.

A salvaging reader skips a damaged text file and lists it instead of rejecting the directory.

Invariants: no file is created, renamed or removed; no text file larger than 1 MiB is read; segments
are ordered by base offset and snapshots by (epoch, end offset), Kafka's order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kraft._core.bytes.checksum import crc32c
from kraft._core.codec.fetch import METADATA_TOPIC_ID
from kraft.errors import (
    CorruptRecordError,
    KraftError,
    MissingFileError,
    StorageError,
    UnsupportedVersionError,
)
from kraft.metadata.properties import parse_properties
from kraft.records import Uuid

METADATA_LOG = "__cluster_metadata-0"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
META_PROPERTIES = "meta.properties"
QUORUM_STATE = "quorum-state"
PARTITION_METADATA = "partition.metadata"

# The text files are a few hundred bytes; a quorum-state of data_version 0 also names each voter.
_MAX_TEXT_BYTES = 1 << 20

_SEGMENT_NAME = re.compile(r"(\d{20})\.log\Z", re.ASCII)
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z", re.ASCII)
_UNFINISHED_SUFFIXES = (".part", ".deleted", ".tmp")
_INT16 = (-(1 << 15), (1 << 15) - 1)
_INT32 = (-(1 << 31), (1 << 31) - 1)
_INT64 = (-(1 << 63), (1 << 63) - 1)

# kraft's quorum-state ends with a checksum of the text before it; Kafka ignores the field.
_CHECKSUM = re.compile(rb',"crc32c":"([0-9a-f]{8})"}\Z')

# A running node deletes files a few times an hour, and a listing takes well below 10 ms.
_LISTINGS = 10

T = TypeVar("T")


class LeftOut(NamedTuple):
    """A file that salvaging skipped, and the reason."""

    path: Path
    reason: str


class MetaProperties(NamedTuple):
    """``meta.properties``: the ids of cluster, node and directory.

    ``version`` is 0 or 1. In version 0 (written before 3.3) the node id is called ``broker.id`` and
    every field may be absent; ``directory_id`` exists since 3.7 and may be absent in both.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None


class QuorumState(NamedTuple):
    """``quorum-state``: the last election that the node took part in.

    ``leader_id`` and ``voted_id`` are -1 for none; since 4.0 both may be set. ``data_version`` 0
    names the static voters; 1 (kraft.version 1) names the voted directory instead.
    """

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: Uuid | None
    voters: tuple[int, ...] | None


class SegmentFile(NamedTuple):
    """One ``.log`` file; ``base_offset`` is -1 where the file name does not contain it."""

    path: Path
    base_offset: int
    size: int


class SnapshotFile(NamedTuple):
    """One ``.checkpoint`` file: the state up to ``end_offset`` (exclusive; -1 if not
    in the name).
    """

    path: Path
    end_offset: int
    epoch: int
    size: int


class MetadataDirectory(NamedTuple):
    """The files of one metadata log, as found by :meth:`find`.

    ``segments`` ascend by base offset, ``snapshots`` by (epoch, end offset). ``unfinished`` are the
    ``.part``, ``.deleted`` and ``.tmp`` files that a running or crashed node left; they are listed
    and never read. ``left_out`` are the text files that salvaging could not read.
    """

    path: Path
    log_dir: Path | None
    metadata_dir: Path | None
    meta_properties: MetaProperties | None
    quorum_state: QuorumState | None
    segments: tuple[SegmentFile, ...]
    snapshots: tuple[SnapshotFile, ...]
    bootstrap_checkpoint: SnapshotFile | None
    unfinished: tuple[Path, ...]
    left_out: tuple[LeftOut, ...] = ()

    @classmethod
    def find(cls, path: str | PathLike[str], *, salvage: bool = False) -> MetadataDirectory:
        """Return the files at ``path``: a ``log.dir``, a metadata log directory, a ``.log`` or
        ``.checkpoint``.

        Raises :class:`StorageError` where none of these exists (the message says what was looked
        for), :class:`CorruptRecordError` for a malformed text file, and
        :class:`UnsupportedVersionError` for one of an unknown version. With ``salvage`` such a text
        file is skipped instead.
        """
        path = Path(path)
        if path.is_dir():
            return list_again(lambda: cls._of_directory(path, salvage))
        if not path.exists():
            raise MissingFileError(f"no such file or directory: {path}")
        return cls._of_file(path)

    @property
    def log_start_offset(self) -> int:
        """The base offset of the first segment; -1 without a segment or where its name lacks it."""
        return self.segments[0].base_offset if self.segments else -1

    def newest_snapshot(
        self, max_end_offset: int | None = None, *, without: Container[Path] = ()
    ) -> SnapshotFile | None:
        """Return the newest snapshot from which the state can be built, or None.

        It is not empty and does not end before the log starts, as the records between the two would
        be missing; with ``max_end_offset`` it ends at or before that offset. The paths in
        ``without`` are known to be damaged.
        """
        for snapshot in reversed(self.snapshots):
            if snapshot.size == 0 or 0 <= snapshot.end_offset < self.log_start_offset:
                continue
            if snapshot.path in without:
                continue
            if max_end_offset is None or snapshot.end_offset <= max_end_offset:
                return snapshot
        return None

    @classmethod
    def _of_directory(cls, path: Path, salvage: bool) -> MetadataDirectory:
        texts = _TextFiles(salvage=salvage)
        if path.name == METADATA_LOG or _looks_like_a_log(path):
            return cls._of_metadata_dir(path, path, path.parent, texts)
        return cls._of_log_dir(path, texts)

    @classmethod
    def _of_log_dir(cls, path: Path, texts: _TextFiles) -> MetadataDirectory:
        if (path / METADATA_LOG).is_dir():
            return cls._of_metadata_dir(path, path / METADATA_LOG, path, texts)
        properties = texts.read(path / META_PROPERTIES, _meta_properties)
        bootstrap = _bootstrap_checkpoint(path)
        if bootstrap is not None:
            # Formatted and never started: the first records are there, a log is not.
            return cls(path, path, None, properties, None, (), (), bootstrap, (), texts.left_out)
        looked_for = (
            f"looked for {METADATA_LOG}/, {BOOTSTRAP_CHECKPOINT}, segments (%020d.log) "
            f"and snapshots (%020d-%010d.checkpoint)"
        )
        hint = ""
        if properties is not None:
            hint = f"; it has {META_PROPERTIES}: is metadata.log.dir another directory?"
        raise StorageError(f"{path} has no metadata log: {looked_for}{hint}")

    @classmethod
    def _of_metadata_dir(
        cls, path: Path, metadata_dir: Path, log_dir: Path, texts: _TextFiles
    ) -> MetadataDirectory:
        if metadata_dir.name == METADATA_LOG:
            texts.read(metadata_dir / PARTITION_METADATA, _refuse_data_partition)
        elif (metadata_dir / PARTITION_METADATA).is_file():
            _refuse_data_partition(metadata_dir / PARTITION_METADATA)
        segments: list[SegmentFile] = []
        snapshots: list[SnapshotFile] = []
        unfinished: list[Path] = []
        for entry in _entries(metadata_dir):
            if entry.name.endswith(_UNFINISHED_SUFFIXES):
                unfinished.append(entry)
            elif (match := _SEGMENT_NAME.match(entry.name)) and int(match[1]) <= _INT64[1]:
                segments.append(SegmentFile(entry, int(match[1]), _size(entry)))
            elif (match := _SNAPSHOT_NAME.match(entry.name)) and int(match[1]) <= _INT64[1]:
                snapshots.append(SnapshotFile(entry, int(match[1]), int(match[2]), _size(entry)))
        segments.sort(key=lambda segment: segment.base_offset)
        snapshots.sort(key=lambda snapshot: (snapshot.epoch, snapshot.end_offset))
        bootstrap = _bootstrap_checkpoint(log_dir)
        if not segments and not snapshots and bootstrap is None:
            raise StorageError(
                f"{metadata_dir} has no metadata log: looked for segments (%020d.log) and "
                f"snapshots (%020d-%010d.checkpoint)"
            )
        return cls(
            path,
            log_dir,
            metadata_dir,
            texts.read(log_dir / META_PROPERTIES, _meta_properties),
            texts.read(metadata_dir / QUORUM_STATE, _quorum_state),
            tuple(segments),
            tuple(snapshots),
            bootstrap,
            tuple(unfinished),
            texts.left_out,
        )

    @classmethod
    def _of_file(cls, path: Path) -> MetadataDirectory:
        if path.suffix == ".log":
            match = _SEGMENT_NAME.match(path.name)
            segment = SegmentFile(path, int(match[1]) if match else -1, _size(path))
            return cls(path, None, None, None, None, (segment,), (), None, ())
        if path.suffix == ".checkpoint":
            snapshot = _snapshot_file(path)
            return cls(path, None, None, None, None, (), (snapshot,), None, ())
        raise StorageError(
            f"{path} is neither a directory nor a log segment (.log) nor a snapshot (.checkpoint)"
        )


class _TextFiles:
    """Reads small text files; rejects a malformed one, or skips it when salvaging."""

    def __init__(self, *, salvage: bool) -> None:
        self._salvage = salvage
        self._left_out: list[LeftOut] = []

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(self._left_out)

    def read(self, path: Path, parse: Callable[[Path], T]) -> T | None:
        """Return ``parse(path)``; None where the file is missing or skipped."""
        if not path.is_file():
            return None
        try:
            return parse(path)
        except KraftError as error:
            if not self._salvage:
                raise
            self._left_out.append(LeftOut(path, reason_of(error)))
            return None


def list_again(read: Callable[[], T]) -> T:
    """Return ``read()``, a listing of a directory and the opening of the listed files.

    Call it again, up to ten times, where it raises :class:`MissingFileError`: a running node
    deletes the segments before its snapshots, and old snapshots, also after the listing.
    """
    for _ in range(_LISTINGS - 1):
        with suppress(MissingFileError):
            return read()
    return read()


def replaces_log(end_offset: int, epoch: int, log_end_offset: int, log_last_epoch: int) -> bool:
    """Return whether a restart empties a log for the snapshot of this id, the latest one.

    The log lacks the last record that the snapshot contains: the process was killed after it gave a
    downloaded snapshot its name, and before it emptied the log. Records of the log may then be
    uncommitted ones of an earlier leader, also after the snapshot's end
    (``KafkaMetadataLog.truncateToLatestSnapshot``).
    """
    return end_offset > 0 and (end_offset > log_end_offset or epoch > log_last_epoch)


def reason_of(error: KraftError) -> str:
    """Return an error's text without the path of the file."""
    if not isinstance(error, CorruptRecordError):
        return str(error)
    at = f" at byte {error.position}" if error.position >= 0 else ""
    return f"{error.reason}{at}"


def parse_meta_properties(text: str, path: str | PathLike[str] | None = None) -> MetaProperties:
    """Return the fields of a ``meta.properties`` file (Kafka's ``MetaProperties``)
    from its text.
    """
    properties = parse_properties(text, path)
    version_text = properties.get("version", "0")
    if version_text not in ("0", "1"):
        raise UnsupportedVersionError(
            f"{META_PROPERTIES} has version {version_text!r}, supported are 0 and 1 (file {path})"
        )
    version = int(version_text)
    id_name = "node.id" if version == 1 else "broker.id"
    if version == 1:
        for name in ("cluster.id", id_name):
            if name not in properties:
                raise CorruptRecordError(f"{META_PROPERTIES} has no {name}", path=path)
    node_id = None
    if id_name in properties:
        text_id = properties[id_name]
        node_id = int(text_id) if re.fullmatch(r"[+-]?[0-9]{1,10}", text_id) else None
        if node_id is None or not _INT32[0] <= node_id <= _INT32[1]:
            raise CorruptRecordError(
                f"{META_PROPERTIES}: {id_name} is {text_id!r:.40}, not a number of 32 bits",
                path=path,
            )
    directory_id = None
    if "directory.id" in properties:
        directory_id = _uuid(properties["directory.id"], "directory.id", META_PROPERTIES, path)
    return MetaProperties(version, properties.get("cluster.id"), node_id, directory_id)


def without_checksum(content: bytes, path: str | PathLike[str] | None = None) -> tuple[bytes, bool]:
    """Return the content of a ``quorum-state`` as Kafka writes it, and whether it had a checksum.

    kraft writes one (``,"crc32c":"89abcdef"}`` at the end), which Kafka ignores. Raises
    :class:`CorruptRecordError` where it does not match.
    """
    match = _CHECKSUM.search(content)
    if match is None:
        return content, False
    plain = content[: match.start()] + b"}"
    if int(match[1], 16) != crc32c(plain):
        raise CorruptRecordError("the checksum in quorum-state does not match", path=path)
    return plain, True


def parse_quorum_state(text: str, path: str | PathLike[str] | None = None) -> QuorumState:
    """Return the fields of a ``quorum-state`` file from its text; only the first line counts, as in
    Kafka.

    Every field that ``QuorumStateData.json`` names for the ``data_version`` must exist with its
    type and within its range; other fields are ignored.
    """
    # Imported here: json is a fifth of the time of `import kraft`, and few openings need it.
    import json

    line = text.split("\n", 1)[0]
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptRecordError(f"{QUORUM_STATE} is not JSON: {error}", path=path) from None
    if not isinstance(data, dict):
        raise CorruptRecordError(f"{QUORUM_STATE} is not a JSON object", path=path)
    version = _integer(data, "data_version", _INT16, path)
    if version not in (0, 1):
        raise UnsupportedVersionError(
            f"{QUORUM_STATE} has data_version {version}, supported are 0 and 1 (file {path})"
        )
    voted_directory_id: Uuid | None = None
    voters: tuple[int, ...] | None = None
    if version == 0:
        _string(data, "clusterId", path)
        _integer(data, "appliedOffset", _INT64, path)
        voters = _voters(data, path)
    else:
        text_id = _string(data, "votedDirectoryId", path)
        voted_directory_id = _uuid(text_id, "votedDirectoryId", QUORUM_STATE, path)
    return QuorumState(
        version,
        _integer(data, "leaderId", _INT32, path),
        _integer(data, "leaderEpoch", _INT32, path),
        _integer(data, "votedId", _INT32, path),
        voted_directory_id,
        voters,
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _field(data: Mapping[str, Any], name: str, path: str | PathLike[str] | None) -> Any:
    if name not in data:
        raise CorruptRecordError(f"{QUORUM_STATE} has no field {name}", path=path)
    return data[name]


def _integer(
    data: Mapping[str, Any], name: str, bounds: tuple[int, int], path: str | PathLike[str] | None
) -> int:
    value = _field(data, name, path)
    # type(), as isinstance() would accept a JSON true for node 1.
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise CorruptRecordError(
            f"{QUORUM_STATE}: {name} is {value!r:.40}, not an integer in {bounds[0]}..{bounds[1]}",
            path=path,
        )
    return value


def _string(data: Mapping[str, Any], name: str, path: str | PathLike[str] | None) -> str:
    value = _field(data, name, path)
    if not isinstance(value, str):
        raise CorruptRecordError(f"{QUORUM_STATE}: {name} is {value!r:.40}, not text", path=path)
    return value


def _voters(data: Mapping[str, Any], path: str | PathLike[str] | None) -> tuple[int, ...] | None:
    voters = _field(data, "currentVoters", path)
    if voters is None:
        return None
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise CorruptRecordError(
            f"{QUORUM_STATE}: currentVoters is not an array of objects", path=path
        )
    return tuple(_integer(voter, "voterId", _INT32, path) for voter in voters)


def _uuid(text: str, field: str, file: str, path: str | PathLike[str] | None) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError:
        raise CorruptRecordError(
            f"{file}: {field} is {text!r:.40}, not a uuid", path=path
        ) from None


def _snapshot_file(path: Path) -> SnapshotFile:
    if path.name == BOOTSTRAP_CHECKPOINT:
        return SnapshotFile(path, 0, 0, _size(path))
    match = _SNAPSHOT_NAME.match(path.name)
    end_offset, epoch = (int(match[1]), int(match[2])) if match else (-1, -1)
    return SnapshotFile(path, end_offset, epoch, _size(path))


def _bootstrap_checkpoint(log_dir: Path) -> SnapshotFile | None:
    path = log_dir / BOOTSTRAP_CHECKPOINT
    return _snapshot_file(path) if path.is_file() else None


def _meta_properties(path: Path) -> MetaProperties:
    return parse_meta_properties(_text(path), path)


def _quorum_state(path: Path) -> QuorumState:
    text = _text(path)
    without_checksum(text.encode(), path)
    return parse_quorum_state(text, path)


def _looks_like_a_log(path: Path) -> bool:
    """Return whether a directory of another name holds a metadata log (a copy or a renamed one)."""
    return any(
        _SEGMENT_NAME.match(entry.name) or _SNAPSHOT_NAME.match(entry.name)
        for entry in _entries(path)
    )


def _refuse_data_partition(path: Path) -> None:
    """Raise for a data partition's directory, recognized by its ``partition.metadata``."""
    match = re.search(r"^topic_id:\s*(\S+)\s*$", _text(path), re.MULTILINE)
    if match and match[1] != str(METADATA_TOPIC_ID):
        raise StorageError(
            f"{path.parent} is the log of a data partition (topic id {match[1]}), "
            f"not of the metadata (topic id {METADATA_TOPIC_ID!s})"
        )


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError as error:
        raise StorageError(f"cannot list {path}: {error.strerror}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise MissingFileError(f"cannot stat {path}: no such file") from None
    except OSError as error:
        raise StorageError(f"cannot stat {path}: {error.strerror}") from error


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_TEXT_BYTES + 1)
    except FileNotFoundError:
        raise MissingFileError(f"cannot read {path}: no such file") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > _MAX_TEXT_BYTES:
        raise CorruptRecordError(f"larger than {_MAX_TEXT_BYTES} bytes", path=path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecordError("not UTF-8", path=path, position=error.start) from None
