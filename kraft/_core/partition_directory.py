"""The names and the small files of a partition's directory.

Owns: how a segment's files are called (storage/.../internals/log/LogFileUtils.java), the text of
`partition.metadata` (PartitionMetadataFile.java) and the producer snapshot that Kafka lays beside
each rolled segment, which in a metadata log is always that of no producers:

    .snapshot   version i16 = 1 | crc u32 of what follows | entry count i32 = 0

Fed by `log` and `segment`; imports nothing but the error family and the checksum.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from uuid import UUID

from kraft._core.checksum import crc32c
from kraft.errors import CorruptRecordError

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
