"""File names and small files of a partition's directory.

Defines the names of a segment's files (storage/.../internals/log/LogFileUtils.java), the text of
`partition.metadata` (PartitionMetadataFile.java) and the producer snapshot that Kafka writes beside
each rolled segment, which for a metadata log never has a producer:

    .snapshot   version i16 = 1 | crc u32 of the rest | entry count i32 = 0

Used by `log` and `segment`; uses the disk only through a `Disk` argument.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from kraft._core.bytes.batch import scan
from kraft._core.bytes.checksum import crc32c
from kraft._core.codec.message_schema import Uuid
from kraft._core.log.disk import write_atomically
from kraft.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Container

    from kraft._core.log.disk import Disk

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
PRODUCER_SNAPSHOT = ".snapshot"
TRANSACTION_INDEX = ".txnindex"
PARTITION_METADATA = "partition.metadata"
#: Added to the names of files that will be removed; a start removes them.
DELETED = ".deleted"
#: Of the files of a compacted segment, until it is complete, and until it has replaced others.
CLEANED = ".cleaned"
SWAP = ".swap"

# Files that are useless once their segment's .log is removed.
BESIDE_LOG = (OFFSET_INDEX, TIME_INDEX, PRODUCER_SNAPSHOT, TRANSACTION_INDEX)

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.snapshot|\.txnindex)")
_SUFFIXED_FILE = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.snapshot|\.txnindex)(\.deleted|\.cleaned|\.swap|\.tmp)"
)

_ADDED = (DELETED, CLEANED, SWAP, ".tmp")

_MOST_SMALL_FILE_BYTES = 1 << 20

_NO_PRODUCERS = struct.pack(">i", 0)
EMPTY_PRODUCER_SNAPSHOT = struct.pack(">hI", 1, crc32c(_NO_PRODUCERS)) + _NO_PRODUCERS


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of one file of a segment: the base offset in 20 digits, and the suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) of a segment's file, or None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) >= 1 << 63:
        return None
    return int(match[1]), match[2]


def partition_metadata_bytes(topic_id: Uuid) -> bytes:
    """Return the content of `partition.metadata`, version 0."""
    return f"version: 0\ntopic_id: {topic_id!s}".encode()


def parse_partition_metadata(content: bytes, *, path: str | None = None) -> Uuid:
    """Return the topic id of a `partition.metadata`. Raises CorruptRecordError."""
    try:
        fields = dict(line.split(": ", 1) for line in content.decode().splitlines() if line)
        if fields["version"] != "0":
            raise ValueError(f"unknown version {fields['version']}")
        return Uuid.parse(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptRecordError(f"malformed partition metadata: {error}", path=path) from error


def base_offsets_of_logs(disk: Disk, directory: str) -> list[int]:
    """Return the base offset of every segment that has a `.log` file, in the listing's order."""
    files = [parse_segment_file(name) for name in disk.list(directory)]
    return [file[0] for file in files if file is not None and file[1] == LOG]


def remove_orphans(disk: Disk, directory: str, base_offsets: Container[int]) -> None:
    """Remove index files without a segment, like Kafka when it loads; keep producer snapshots."""
    for name in disk.list(directory):
        file = parse_segment_file(name)
        if file is not None and file[0] not in base_offsets and file[1] != PRODUCER_SNAPSHOT:
            disk.remove(f"{directory}/{name}")


class SegmentNames(NamedTuple):
    """The segments of a directory by their base offsets, ascending."""

    base_offsets: list[int]
    #: All names in the directory.
    names: list[str]
    #: Whether a name was removed or changed.
    is_changed: bool


def tidy_segments(disk: Disk, directory: str) -> SegmentNames:
    """Return a directory's segments after removing what a stop left, as Kafka when it loads a log.

    Finishes replacements, and removes index files without a segment, and producer snapshots that
    belong to no segment, but the latest.
    """
    names = disk.list(directory)
    is_changed = any(name.endswith(_ADDED) for name in names) and finish_replacements(
        disk, directory
    )
    if is_changed:
        names = disk.list(directory)
    files = [file for file in map(parse_segment_file, names) if file is not None]
    bases = [base for base, suffix in files if suffix == LOG]
    known = set(bases)
    snapshots = [base for base, suffix in files if suffix == PRODUCER_SNAPSHOT]
    known_snapshots = known | set(snapshots[-1:])
    for base, suffix in files:
        if base not in (known_snapshots if suffix == PRODUCER_SNAPSHOT else known):
            disk.remove(segment_file(directory, base, suffix))
            is_changed = True
    return SegmentNames(bases, names, is_changed)


def finish_replacements(disk: Disk, directory: str) -> bool:
    """Finish what an interrupted compaction or deletion left; return whether a name changed.

    Rules of LogLoader.load: files with `.deleted` and `.cleaned` are removed. Segments with `.swap`
    are complete: the segments that they replace are removed, and they get their names. A `.cleaned`
    file at or before a `.swap` file is of a split (KAFKA-6264) that is not complete, nor is the
    `.swap` file.
    """
    files = [
        (int(match[1]), match[2], match[3])
        for match in map(_SUFFIXED_FILE.fullmatch, disk.list(directory))
        if match is not None
    ]
    first_cleaned = min((base for base, _, added in files if added == CLEANED), default=1 << 63)
    swaps = [(base, kind) for base, kind, added in files if added == SWAP and base < first_cleaned]
    for base, kind, added in files:
        if added != SWAP or base >= first_cleaned:
            disk.remove(segment_file(directory, base, kind) + added)
    if swaps:
        _swap(disk, directory, swaps)
    return bool(files)


def _swap(disk: Disk, directory: str, swaps: list[tuple[int, str]]) -> None:
    logs = [base for base, kind in swaps if kind == LOG]
    end = max(
        (end_of_segment_file(disk, segment_file(directory, base, LOG) + SWAP) for base in logs),
        default=-1,
    )
    for name in disk.list(directory):
        match = _SEGMENT_FILE.fullmatch(name)
        if match is not None and min(logs, default=0) <= int(match[1]) < end:
            disk.remove(f"{directory}/{name}")
    # A replaced segment must not return beside its replacement.
    disk.sync_directory(directory)
    for base, kind in swaps:
        path = segment_file(directory, base, kind)
        disk.rename(path + SWAP, path)
    disk.sync_directory(directory)


def end_of_segment_file(disk: Disk, path: str) -> int:
    """Return the offset after the last whole batch of a `.log` file, -1 without a batch."""
    file = disk.open(path, read_only=True)
    try:
        table = scan(file.map(file.size()), verify_crc=False)
        return int(table.last_offsets[-1]) + 1 if len(table) else -1
    finally:
        file.close()


def write_producer_snapshot(disk: Disk, directory: str, base_offset: int) -> None:
    """Write a snapshot without producers beside the segment that begins at `base_offset`."""
    file = disk.open(segment_file(directory, base_offset, PRODUCER_SNAPSHOT), create=True)
    try:
        file.truncate(0)
        file.append([EMPTY_PRODUCER_SNAPSHOT])
    finally:
        file.close()


def read_small_file(disk: Disk, path: str) -> bytes:
    """Return the content of a file beside the segments, at most its first MiB."""
    file = disk.open(path, read_only=True)
    try:
        return file.read_at(0, min(file.size(), _MOST_SMALL_FILE_BYTES))
    finally:
        file.close()


def read_topic_id(disk: Disk, directory: str) -> Uuid | None:
    """Return the topic id of `partition.metadata`, or None without the file.

    Raises CorruptRecordError.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    return parse_partition_metadata(read_small_file(disk, path), path=path)


def write_topic_id(disk: Disk, directory: str, topic_id: Uuid) -> None:
    """Write `partition.metadata` if there is none."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        write_atomically(disk, path, partition_metadata_bytes(topic_id))
