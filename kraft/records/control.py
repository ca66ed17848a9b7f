"""The control records that the raft layer writes into the metadata log and its snapshots.

Holds their schemas and classes, and the codec of their keys and values: the key holds the type, and
the value begins with its own version.

    key    int16 key version = 0 | int16 type
    value  int16 version | struct in that version (tagged sections as in metadata records)

Source: ControlRecordType and ControlRecordUtils of ``org.apache.kafka.common.record``, and the
schemas LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord and
VotersRecord. Kafka reads and writes only version 0 of LeaderChange, whatever its version field
contains; version 1 (KIP-853) exists in the schema.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Record, Struct
from kraft.errors import CorruptRecordError, InvalidRecordError, UnsupportedVersionError


class Voter(Struct):
    """A voter of an epoch, in LeaderChange."""

    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid", since=1)


class VoterEndpoint(Struct):
    """An address of a voter."""

    name: str = field("string")
    host: str = field("string")
    port: int = field("uint16")


class KRaftVersionFeature(Struct):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int = field("int16")
    max_supported_version: int = field("int16")


class KRaftVoter(Struct):
    """A voter with its endpoints and its range of kraft.version, in KRaftVoters."""

    voter_id: int = field("int32")
    voter_directory_id: Uuid = field("uuid")
    endpoints: list[VoterEndpoint] = field("[]struct", of=VoterEndpoint)
    kraft_version_feature: KRaftVersionFeature = field("struct", of=KRaftVersionFeature)


class LeaderChange(Record, versions=(0, 1)):
    """The first record of an epoch: its leader, all voters, and the voters that granted a vote."""

    leader_id: int = field("int32")
    voters: list[Voter] = field("[]struct", of=Voter)
    granting_voters: list[Voter] = field("[]struct", of=Voter)


class SnapshotHeader(Record, versions=(0, 0)):
    """The first record of a snapshot, with the time of its last log record in milliseconds."""

    last_contained_log_timestamp: int = field("int64")


class SnapshotFooter(Record, versions=(0, 0)):
    """The last record of a snapshot: a file without it is incomplete."""


class KRaftVersion(Record, versions=(0, 0)):
    """The finalized level of kraft.version."""

    kraft_version: int = field("int16")


class KRaftVoters(Record, versions=(0, 0)):
    """The voters of the quorum from here on (KIP-853)."""

    voters: list[KRaftVoter] = field("[]struct", of=KRaftVoter)


#: Control record classes by the type in the record's key.
CONTROL_TYPES: dict[int, type[Record]] = {
    2: LeaderChange,
    3: SnapshotHeader,
    4: SnapshotFooter,
    5: KRaftVersion,
    6: KRaftVoters,
}

_TYPE_OF = {made: type for type, made in CONTROL_TYPES.items()}


def control_type(record: Record) -> int:
    """Return the type in the key of a control record; raise InvalidRecordError for others."""
    try:
        return _TYPE_OF[type(record)]
    except KeyError:
        raise InvalidRecordError(f"not a control record: {record!r}") from None


def decode_control_key(key: bytes | memoryview) -> int:
    """Return the type in a control record's key.

    Raises CorruptRecordError for a key that ends early, UnsupportedVersionError for a key version
    that this package does not know. A longer key is read by its first four bytes, as Kafka does.
    """
    if len(key) < 4:
        raise CorruptRecordError(f"a control record's key has {len(key)} bytes, not 4", position=0)
    version = int.from_bytes(key[:2], "big", signed=True)
    if version != 0:
        raise UnsupportedVersionError(f"a control record's key has version {version}, not 0")
    return int.from_bytes(key[2:4], "big", signed=True)


def encode_control_key(record: Record) -> bytes:
    return b"\0\0" + control_type(record).to_bytes(2, "big")


def decode_control(type: int, value: bytes | memoryview) -> Record:
    """Return the control record of this type and value.

    Raises CorruptRecordError for malformed bytes, UnsupportedVersionError for a type or version
    that this package does not know.
    """
    made = CONTROL_TYPES.get(type)
    if made is None:
        raise UnsupportedVersionError(f"no control record has type {type}")
    if len(value) < 2:
        raise CorruptRecordError(f"{made.__name__}.version ends early", position=0)
    version = int.from_bytes(value[:2], "big", signed=True)
    record = made.schema.decode(value, version, 2)
    assert isinstance(record, Record)
    return record


def encode_control(record: Record, version: int = 0) -> bytes:
    """Encode the value of a control record, its version first; raise as ``encode_value`` does."""
    control_type(record)
    return version.to_bytes(2, "big", signed=True) + type(record).schema.encode(record, version)
