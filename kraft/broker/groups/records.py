"""The records of ``__consumer_offsets``: typed classes, and their keys and values as bytes.

A key begins with an int16 that says what the record is about (0 and 1: a committed offset; 2: a
classic group), a value with the int16 version of its schema; the bodies follow. A record without a
value is a tombstone. Records of groups that kraft does not have (KIP-848, KIP-932, KIP-1071) have
other keys: `decode_key` returns None for them.

Written are the versions that Kafka 4.3 writes: OffsetCommitValue 4, or 1 if the client asked for a
retention time, and GroupMetadataValue 3. All versions are read.
Source: the JSON schemas in ``common/message`` of the ``kafka-group-coordinator`` jar,
``CoordinatorRecordSerde``, ``GroupCoordinatorRecordHelpers``, ``GroupCoordinatorShard.replay``.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import CorruptRecordError

#: The first two bytes of a key: which kind of record it is (``CoordinatorRecordType``).
LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
#: The last version with an expire timestamp.
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1

NO_TIMESTAMP = -1


class OffsetCommitKey(Message, api_key=OFFSET_COMMIT, versions=(0, 0), flexible_since=1):
    """The key of a committed offset; the legacy key has the same fields."""

    group: str = field("string")
    topic: str = field("string")
    partition: int = field("int32")


class OffsetCommitValue(Message, api_key=OFFSET_COMMIT, versions=(0, 4), flexible_since=4):
    """The offset that a group committed for one partition."""

    offset: int = field("int64")
    leader_epoch: int = field("int32", -1, since=3, ignorable=True)
    metadata: str = field("string")
    commit_timestamp: int = field("int64")
    expire_timestamp: int = field("int64", -1, since=1, until=1, ignorable=True)
    topic_id: Uuid = field("uuid", since=4, tag=0, ignorable=True)


class GroupMetadataKey(Message, api_key=GROUP_METADATA, versions=(0, 0), flexible_since=1):
    """The key of a classic group."""

    group: str = field("string")


class MemberMetadata(Struct):
    """A member of a group with a generation; ``assignment`` is what its leader assigned to it."""

    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, since=3, nullable=True, ignorable=True)
    client_id: str = field("string")
    client_host: str = field("string")
    rebalance_timeout: int = field("int32", -1, since=1, ignorable=True)
    session_timeout: int = field("int32")
    subscription: bytes = field("bytes")
    assignment: bytes = field("bytes")


class GroupMetadataValue(Message, api_key=GROUP_METADATA, versions=(0, 4), flexible_since=4):
    """A classic group and its members; ``leader`` and ``protocol`` are None without members."""

    protocol_type: str = field("string")
    generation: int = field("int32")
    protocol: str | None = field("string", nullable=True)
    leader: str | None = field("string", nullable=True)
    current_state_timestamp: int = field("int64", -1, since=2, ignorable=True)
    members: list[MemberMetadata] = field("[]struct", of=MemberMetadata)


class GroupRecord(NamedTuple):
    """A record to append: its key and value as bytes; ``value`` is None for a tombstone."""

    key: bytes
    value: bytes | None


def offset_record(group: str, topic: str, partition: int, value: OffsetCommitValue) -> GroupRecord:
    """Return the record of a committed offset, in the version that Kafka 4.3 writes it in."""
    expires = value.expire_timestamp != NO_TIMESTAMP
    version = OFFSET_COMMIT_WITH_EXPIRY_VERSION if expires else OFFSET_COMMIT_VERSION
    body = value.encode(version)
    return GroupRecord(offset_key(group, topic, partition), version.to_bytes(2, "big") + body)


def offset_tombstone(group: str, topic: str, partition: int) -> GroupRecord:
    """Return the record that deletes a committed offset."""
    return GroupRecord(offset_key(group, topic, partition), None)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    return b"\0\1" + OffsetCommitKey(group=group, topic=topic, partition=partition).encode(0)


def group_record(group: str, value: GroupMetadataValue) -> GroupRecord:
    """Return the record of a classic group, in the version that Kafka 4.3 writes it in."""
    version = GROUP_METADATA_VERSION
    return GroupRecord(_group_key(group), version.to_bytes(2, "big") + value.encode(version))


def group_tombstone(group: str) -> GroupRecord:
    """Return the record that deletes a classic group."""
    return GroupRecord(_group_key(group), None)


def _group_key(group: str) -> bytes:
    return b"\0\2" + GroupMetadataKey(group=group).encode(0)


def decode_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Return the typed key, or None for a record of a kind that kraft does not have.

    Raises CorruptRecordError for a key that is cut short or malformed.
    """
    kind = key_kind(key)
    if kind in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
        return OffsetCommitKey.decode(key, 0, 2)
    return GroupMetadataKey.decode(key, 0, 2) if kind == GROUP_METADATA else None


def key_kind(key: bytes) -> int:
    """Return the int16 at the front of a key; raise CorruptRecordError for a shorter key."""
    if len(key) < 2:
        raise CorruptRecordError(f"the key of a group record has {len(key)} bytes, not 2 or more")
    return int.from_bytes(key[:2], "big", signed=True)


def decode_offset(value: bytes) -> OffsetCommitValue:
    """Return the typed value of a committed offset; raise like `decode_group`."""
    return OffsetCommitValue.decode(value, _version(value), 2)


def decode_group(value: bytes) -> GroupMetadataValue:
    """Return the typed value of a classic group.

    Raises CorruptRecordError for a malformed value, UnsupportedVersionError for an unknown version.
    """
    return GroupMetadataValue.decode(value, _version(value), 2)


def _version(value: bytes) -> int:
    if len(value) < 2:
        raise CorruptRecordError(
            f"the value of a group record has {len(value)} bytes, not 2 or more"
        )
    return int.from_bytes(value[:2], "big", signed=True)
