"""Names and levels of metadata.version, and the version in which each record is written."""

from __future__ import annotations

import pytest

from kraft.errors import (
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedVersionError,
)
from kraft.records import (
    LATEST_PRODUCTION,
    BrokerRegistrationChange,
    ClearElr,
    Config,
    KRaftVoters,
    LeaderChange,
    MetadataVersion,
    NoOp,
    Partition,
    RegisterBroker,
    RegisterController,
    SnapshotFooter,
    Topic,
    UnregisterController,
    Uuid,
    Voter,
    decode_control,
    decode_control_key,
    decode_value,
    default_feature_level,
    encode_control,
    encode_control_key,
    encode_value,
    feature_dependencies,
    record_version,
)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("3.3-IV0", 4),
        ("3.3", 7),
        ("3.0", 1),
        ("3.9.1", 21),
        ("4.0", 25),
        ("4.3", 30),
        ("4.3.1", 30),
        ("4.4", 33),
        ("4.4-IV0", 31),
    ],
)
def test_a_text_is_the_name_of_a_level_or_of_a_release(text: str, level: int) -> None:
    assert MetadataVersion.from_text(text) == level


@pytest.mark.parametrize("text", ["", "garbage", "4.2-IV5", "4.3-IV0-x", "4.5", "4.5-IV0", "4"])
def test_an_unknown_text_is_rejected_with_the_known_ones(text: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"3.0-IV1, .*4.4-IV0, 4.4-IV1, 4.4-IV2$"):
        MetadataVersion.from_text(text)


def test_levels_up_to_4_4_are_known() -> None:
    assert MetadataVersion.from_level(33).text == "4.4-IV2"
    for level in (0, 34, -1):
        with pytest.raises(UnsupportedVersionError, match="1-33"):
            MetadataVersion.from_level(level)


def test_a_registration_change_is_written_in_the_lowest_version_that_carries_it() -> None:
    directory = Uuid(range(16))
    for version, record in enumerate(
        (
            BrokerRegistrationChange(1, 2, fenced=-1),
            BrokerRegistrationChange(1, 2, in_controlled_shutdown=1),
            BrokerRegistrationChange(1, 2, log_dirs=[directory]),
            BrokerRegistrationChange(1, 2, cordoned_log_dirs=[]),
        )
    ):
        assert record_version(BrokerRegistrationChange, 30, record) == version
        assert decode_value(encode_value(record, metadata_version=30)).version == version
    cordoned = BrokerRegistrationChange(1, 2, cordoned_log_dirs=[directory])
    for record, level in ((cordoned, 29), (BrokerRegistrationChange(log_dirs=[directory]), 16)):
        with pytest.raises(UnsupportedVersionError, match=r"needs metadata\.version"):
            encode_value(record, metadata_version=level)


def test_a_record_is_not_written_before_its_level() -> None:
    for record, level in (
        (NoOp(), 5),
        (BrokerRegistrationChange(), 6),
        (RegisterController(), 15),
        (ClearElr(), 23),
        (UnregisterController(), 33),
    ):
        assert record_version(type(record), level) == 0
        with pytest.raises(UnsupportedVersionError, match=r"needs metadata\.version"):
            encode_value(record, metadata_version=level - 1)
    assert record_version(Topic, 1) == 0


def test_the_version_written_is_the_one_asked_for_then_the_one_read_then_the_newest() -> None:
    record = Partition(1, Uuid(range(16)), [1], [1])
    assert encode_value(record)[2] == record_version(Partition, LATEST_PRODUCTION) == 2
    read = decode_value(encode_value(record, version=0))
    assert encode_value(read)[2] == 0
    assert encode_value(read, metadata_version=17)[2] == 1
    assert encode_value(read, version=2, metadata_version=17)[2] == 2
    assert encode_value(RegisterBroker(1))[2] == 4
    with pytest.raises(UnsupportedVersionError, match=r"Partition.directories"):
        encode_value(record.replace(directories=[Uuid()]), metadata_version=16)


def test_features_have_defaults_and_dependencies() -> None:
    assert default_feature_level("metadata.version", 25) == 25
    assert default_feature_level("transaction.version", 24) == 2
    assert feature_dependencies("eligible.leader.replicas.version", 1) == {"metadata.version": 23}
    with pytest.raises(UnsupportedVersionError, match="bogus"):
        default_feature_level("bogus", 30)
    with pytest.raises(UnsupportedVersionError, match="no level 3"):
        feature_dependencies("transaction.version", 3)


def test_control_records_have_their_type_in_the_key_and_their_version_in_the_value() -> None:
    leader = LeaderChange(3, [Voter(1), Voter(3)], [Voter(3)])
    assert encode_control_key(leader).hex() == "00000002"
    assert encode_control(leader).hex() == (
        "0000" "00000003" "03" "0000000100" "0000000300" "02" "0000000300" "00"
    )  # fmt: skip
    assert decode_control(decode_control_key(b"\0\0\0\2"), encode_control(leader)) == leader
    assert decode_control(6, encode_control(KRaftVoters())) == KRaftVoters()


def test_damaged_or_unknown_control_records_are_rejected() -> None:
    with pytest.raises(CorruptRecordError, match="version ends early"):
        decode_control(4, b"\0")
    with pytest.raises(CorruptRecordError) as caught:
        decode_control(3, bytes(9))
    assert caught.value.position == 2
    with pytest.raises(UnsupportedVersionError, match="type 7"):
        decode_control(7, bytes(3))
    with pytest.raises(UnsupportedVersionError, match="versions 0-0, not 1"):
        decode_control(4, b"\0\1\0")
    with pytest.raises(CorruptRecordError, match="3 bytes, not 4"):
        decode_control_key(bytes(3))
    with pytest.raises(UnsupportedVersionError, match="key has version 1"):
        decode_control_key(b"\0\1\0\2")
    with pytest.raises(InvalidRecordError, match="not a control record"):
        encode_control(Config())
    assert decode_control(4, encode_control(SnapshotFooter())) == SnapshotFooter()
