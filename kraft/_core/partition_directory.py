"""The names and the small files of a partition's directory.

Owns: how a segment's files are called (storage/.../internals/log/LogFileUtils.java), the text of
`partition.metadata` (PartitionMetadataFile.java) and the producer snapshot that Kafka lays beside
each rolled segment, which in a metadata log is always that of no producers:

    .snapshot   version i16 = 1 | crc u32 of what follows | entry count i32 = 0

Fed by `log` and `segment`. What touches the disk does so through the `Disk` it is given.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import TYPE_CHECKING
from uuid import UUID

from kraft._core.checksum import crc32c
from kraft._core.disk import write_atomically
from kraft.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Container

    from kraft._core.disk import Disk

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
PRODUCER_SNAPSHOT = ".snapshot"
PARTITION_METADATA = "partition.metadata"

# The topic id of __cluster_metadata (clients/.../common/Uuid.java): text AAAAAAAAAAAAAAAAAAAAAQ.
METADATA_TOPIC_ID = UUID(int=1)

# The files that mean nothing once their segment's .log is gone.
BESIDE_LOG = (OFFSET_INDEX, TIME_INDEX, PRODUCER_SNAPSHOT)

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.snapshot)")

_MOST_SMALL_FILE_BYTES = 1 << 20

_NO_PRODUCERS = struct.pack(">i", 0)
EMPTY_PRODUCER_SNAPSHOT = struct.pack(">hI", 1, crc32c(_NO_PRODUCERS)) + _NO_PRODUCERS


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """The path of one file of a segment: the base offset in 20 digits, and the suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """(base offset, suffix) of a segment's file; None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) >= 1 << 63:
        return None
    return int(match[1]), match[2]


def partition_metadata_bytes(topic_id: UUID) -> bytes:
    """The content of `partition.metadata`, version 0."""
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}".encode()


def parse_partition_metadata(content: bytes, *, path: str | None = None) -> UUID:
    """The topic id in a `partition.metadata`. Raises CorruptRecordError."""
    try:
        fields = dict(line.split(": ", 1) for line in content.decode().splitlines() if line)
        if fields["version"] != "0":
            raise ValueError(f"unknown version {fields['version']}")
        return UUID(bytes=base64.b64decode(fields["topic_id"] + "==", b"-_", validate=True))
    except (ValueError, KeyError, binascii.Error) as error:
        raise CorruptRecordError(f"malformed partition metadata: {error}", path=path) from error


def base_offsets_of_logs(disk: Disk, directory: str) -> list[int]:
    """The base offset of every segment that has a `.log` file, in the order of the listing."""
    files = [parse_segment_file(name) for name in disk.list(directory)]
    return [file[0] for file in files if file is not None and file[1] == LOG]


def remove_orphans(disk: Disk, directory: str, base_offsets: Container[int]) -> None:
    """Removes the index files of segments that are not there, as Kafka does when loading;
    producer snapshots stay."""
    for name in disk.list(directory):
        file = parse_segment_file(name)
        if file is not None and file[0] not in base_offsets and file[1] != PRODUCER_SNAPSHOT:
            disk.remove(f"{directory}/{name}")


def write_producer_snapshot(disk: Disk, directory: str, base_offset: int) -> None:
    """Lays the snapshot of no producers beside the segment that begins at `base_offset`."""
    file = disk.open(segment_file(directory, base_offset, PRODUCER_SNAPSHOT), create=True)
    try:
        file.truncate(0)
        file.append([EMPTY_PRODUCER_SNAPSHOT])
    finally:
        file.close()


def read_small_file(disk: Disk, path: str) -> bytes:
    """The content of a file beside the segments, of which at most 1 MiB is looked at."""
    file = disk.open(path, read_only=True)
    try:
        return file.read_at(0, min(file.size(), _MOST_SMALL_FILE_BYTES))
    finally:
        file.close()


def read_topic_id(disk: Disk, directory: str) -> UUID | None:
    """The topic id in `partition.metadata`; None without that file. Raises CorruptRecordError."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    return parse_partition_metadata(read_small_file(disk, path), path=path)


def write_topic_id(disk: Disk, directory: str, topic_id: UUID) -> None:
    """Writes `partition.metadata` where there is none."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        write_atomically(disk, path, partition_metadata_bytes(topic_id))
