"""The records of `__consumer_offsets`, beside the schemas in Kafka's jars and known bytes."""

from __future__ import annotations

import pytest

from kraft._core.codec.message_schema import Uuid
from kraft.broker.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group,
    decode_key,
    decode_offset,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from kraft.errors import CorruptRecordError, UnsupportedVersionError


def test_an_offset_has_these_bytes() -> None:
    value = OffsetCommitValue(
        offset=5, leader_epoch=3, metadata="m", commit_timestamp=7, topic_id=Uuid(b"i" * 16)
    )
    record = offset_record("g", "t", 2, value)
    assert record.key.hex() == "000100016700017400000002"
    assert record.value is not None
    assert record.value.hex() == (
        "0004000000000000000500000003026d0000000000000007010010" + "69" * 16
    )
    assert decode_key(record.key) == OffsetCommitKey(group="g", topic="t", partition=2)
    assert decode_offset(record.value) == value
    assert offset_tombstone("g", "t", 2) == (record.key, None)


def test_an_offset_with_an_expire_timestamp_has_version_1() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=3, commit_timestamp=7, expire_timestamp=9)
    encoded = offset_record("g", "t", 2, value).value
    assert encoded is not None
    assert encoded.hex() == "00010000000000000005000000000000000000070000000000000009"
    assert decode_offset(encoded) == value.replace(leader_epoch=-1)


def test_a_group_has_these_bytes() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=6,
        members=[member],
    )
    record = group_record("g", value)
    assert record.key.hex() == "0002000167"
    assert record.value is not None
    assert record.value.hex() == (
        "0003"
        "0008" + b"consumer".hex() + "00000004"
        "0005" + b"range".hex() + "00016d"
        "0000000000000006"
        "00000001"
        "00016d"
        "ffff"
        "000163"
        "000168"
        "00000001"
        "00000002"
        "0000000173"
        "0000000161"
    )
    assert decode_group(record.value) == value
    assert decode_key(record.key) == GroupMetadataKey(group="g")
    assert group_tombstone("g") == (record.key, None)


@pytest.mark.parametrize("version", range(5))
def test_all_versions_are_read(version: int) -> None:
    offset = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7)
    assert decode_offset(version.to_bytes(2, "big") + offset.encode(version)) == offset
    group = GroupMetadataValue(protocol_type="consumer", generation=4, protocol=None, leader=None)
    assert decode_group(version.to_bytes(2, "big") + group.encode(version)) == group


def test_the_legacy_key_has_the_same_fields() -> None:
    key = decode_key(bytes.fromhex("000000016700017400000002"))
    assert key == OffsetCommitKey(group="g", topic="t", partition=2)


def test_other_kinds_of_groups_are_skipped() -> None:
    assert decode_key(b"\0\3\0\1g") is None  # ConsumerGroupMetadataKey


def test_damaged_records_are_rejected() -> None:
    for key in (b"", b"\0", b"\0\1\0\1g", b"\0\2\0\5g"):
        with pytest.raises(CorruptRecordError):
            decode_key(key)
    for value in (b"", b"\0\4\0", b"\0\1" + bytes(9)):
        with pytest.raises(CorruptRecordError):
            decode_offset(value)
    with pytest.raises(UnsupportedVersionError):
        decode_offset(b"\0\5" + bytes(40))
