"""Records of partitions and topics: encode and decode every layout, and reject invalid bytes.

The codec has no Python interface, so the tests use it through the table and compare it with
``kraft.records``.
"""

from __future__ import annotations

import numpy as np
import pytest

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.wire import Writer
from kraft._core.codec.partition_codec import reason_text
from kraft._core.table.table import PartitionTable
from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.records import Uuid, decode_value
from kraft.records.values import encode_value
from tests.harness.metadata_files import record_values

TOPIC_ID = Uuid(bytes(range(16)))
TOPIC = records.Topic(name="orders", topic_id=TOPIC_ID)
DIRECTORY = Uuid(b"\xaa" * 16)
FULL = records.Partition(
    partition_id=3,
    topic_id=TOPIC_ID,
    replicas=[4, 5, 6],
    isr=[6],
    removing_replicas=[4],
    adding_replicas=[6],
    leader=6,
    leader_recovery_state=1,
    leader_epoch=8,
    partition_epoch=9,
    directories=[DIRECTORY, Uuid(bytes(16)), DIRECTORY],
    eligible_leader_replicas=[5],
    last_known_elr=[4],
    version=2,
)


def table_of(*values: bytes) -> PartitionTable:
    builder = BatchBuilder(0, 1)
    for value in values:
        builder.append(value)
    table = PartitionTable()
    table.apply(builder.finish())
    return table


def with_topic(*values: bytes) -> PartitionTable:
    return table_of(encode_value(TOPIC), *values)


def encoded(table: PartitionTable, version: int) -> bytes:
    builder = BatchBuilder(0, 1)
    table.encode_partitions(builder, version=version)
    (value,) = record_values(bytes(builder.finish()))
    return value


def test_a_record_with_all_fields_is_encoded_as_it_was_decoded() -> None:
    value = encode_value(FULL)
    table = with_topic(value)
    assert encoded(table, 2) == value


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_version_is_written_with_the_fields_that_it_has(version: int) -> None:
    """A version before 2 omits the ELR, and version 0 also omits the directories."""
    record = FULL.replace(
        directories=FULL.directories if version >= 1 else [],
        eligible_leader_replicas=FULL.eligible_leader_replicas if version == 2 else None,
        last_known_elr=FULL.last_known_elr if version == 2 else None,
    )
    value = encode_value(record, version=version)
    assert encoded(with_topic(value), version) == value
    assert encoded(with_topic(encode_value(FULL)), version) == value


def test_a_topic_and_its_removal_are_decoded_as_typed_records_do() -> None:
    table = with_topic()
    builder = BatchBuilder(0, 1)
    table.encode_topic_record(builder, 0)
    table.encode_topic_removal(builder, 0)
    assert record_values(bytes(builder.finish())) == [
        encode_value(TOPIC),
        encode_value(records.RemoveTopic(topic_id=TOPIC_ID)),
    ]


def test_unknown_tags_are_skipped_wherever_they_stand() -> None:
    later = {3: b"three", 77: b"x" * 200}
    partition = FULL.replace(unknown_tagged_fields=later)
    change = records.PartitionChange(
        partition_id=3, topic_id=TOPIC_ID, isr=[4, 5], unknown_tagged_fields={99: b""}, version=2
    )
    removal = records.RemoveTopic(topic_id=TOPIC_ID, unknown_tagged_fields={0: b"later"})
    topic = TOPIC.replace(unknown_tagged_fields={5: b"five"})
    table = table_of(encode_value(topic), encode_value(partition), encode_value(change))
    assert table.state_of(0)["isr"] == [4, 5]
    values = [encode_value(record) for record in (topic, partition, removal)]
    assert table_of(*values).topic_count == 0


@pytest.mark.parametrize("record", [FULL, FULL.replace(replicas=[], directories=[])])
def test_every_truncation_of_a_record_is_rejected(record: records.Partition) -> None:
    value = encode_value(record)
    for size in range(3, len(value)):
        with pytest.raises(CorruptRecordError):
            with_topic(value[:size])
    with pytest.raises(CorruptRecordError):
        with_topic(value + b"\0")


def test_every_truncation_of_a_change_is_rejected() -> None:
    change = records.PartitionChange(
        partition_id=3,
        topic_id=TOPIC_ID,
        isr=[4],
        leader=4,
        replicas=[4, 5],
        removing_replicas=[],
        adding_replicas=[5],
        leader_recovery_state=0,
        directories=[DIRECTORY, DIRECTORY],
        eligible_leader_replicas=[5],
        last_known_elr=[],
        version=2,
    )
    value = encode_value(change)
    assert with_topic(encode_value(FULL), value).state_of(0)["replicas"] == [4, 5]
    for size in range(3, len(value)):
        with pytest.raises(CorruptRecordError):
            with_topic(encode_value(FULL), value[:size])


#: Record fields that have another name in a table row.
STATE_NAMES = {"eligible_leader_replicas": "elr"}
LISTS = (
    *("replicas", "isr", "removing_replicas", "adding_replicas"),
    *("eligible_leader_replicas", "last_known_elr"),
)


@pytest.mark.parametrize("field", LISTS)
def test_a_list_of_more_than_64_is_rejected(field: str) -> None:
    fits = FULL.replace(directories=[], **{field: list(range(64))})
    assert encoded(with_topic(encode_value(fits, version=2)), 2)[3:7] == b"\0\0\0\3"
    too_many = FULL.replace(directories=[], **{field: list(range(65))})
    with pytest.raises(CorruptRecordError, match="longer than 64"):
        with_topic(encode_value(too_many, version=2))


@pytest.mark.parametrize("field", LISTS)
def test_a_change_to_a_list_of_more_than_64_is_rejected(field: str) -> None:
    for count in (64, 65):
        change = records.PartitionChange(
            partition_id=FULL.partition_id,
            topic_id=FULL.topic_id,
            version=2,
            **{field: list(range(count))},
        )
        if field == "replicas":
            change = change.replace(directories=[DIRECTORY] * count)
        values = encode_value(FULL.replace(directories=[])), encode_value(change)
        if count == 64:
            assert with_topic(*values).state_of(0)[STATE_NAMES.get(field, field)] == [*range(64)]
        else:
            with pytest.raises(CorruptRecordError, match="longer than 64"):
                with_topic(*values)


def test_a_change_to_more_than_64_directories_is_rejected() -> None:
    change = records.PartitionChange(
        partition_id=FULL.partition_id,
        topic_id=FULL.topic_id,
        directories=[DIRECTORY] * 65,
        version=1,
    )
    with pytest.raises(CorruptRecordError, match="longer than 64"):
        with_topic(encode_value(FULL), encode_value(change))


def test_a_count_beyond_the_bytes_is_rejected_before_memory_is_allocated() -> None:
    value = bytearray(encode_value(FULL, version=2))
    value[23:24] = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptRecordError, match="break its layout"):
        with_topic(bytes(value))


def test_directories_must_be_as_many_as_replicas() -> None:
    with pytest.raises(CorruptRecordError, match="as many directories"):
        with_topic(encode_value(FULL.replace(directories=[DIRECTORY])))


@pytest.mark.parametrize("key", [3, 5])
def test_an_unknown_newer_record_version_is_rejected(key: int) -> None:
    value = bytearray(encode_value(FULL))
    value[1:3] = bytes([key, 3])
    with pytest.raises(UnsupportedVersionError, match="newer than this package"):
        with_topic(bytes(value))


def test_an_unknown_newer_frame_version_is_rejected() -> None:
    with pytest.raises(UnsupportedVersionError, match="frame version 2"):
        table_of(b"\2" + encode_value(TOPIC)[1:])


@pytest.mark.parametrize(
    "name",
    [
        b"\xff",
        b"a\xc3",
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"ok\xe2\x82",
        b"\x80",
        b"12345678\xe2(\xa1",
        b"\xf0\x9f\x98x",
    ],
)
def test_a_name_that_is_not_utf8_is_rejected(name: bytes) -> None:
    # If the table accepted the name, every later query that returns topic names would fail.
    value = b"\1\2\0" + bytes([len(name) + 1]) + name + TOPIC_ID + b"\0"
    with pytest.raises(CorruptRecordError):
        table_of(value)
    with pytest.raises(CorruptRecordError):
        decode_value(value)


@pytest.mark.parametrize("name", ["é", "퟿￿€", "😀\U0010ffff", "orders-ß-123456789", ""])
def test_any_name_in_utf8_is_accepted(name: str) -> None:
    table = table_of(encode_value(TOPIC.replace(name=name)))
    assert table.topic_name(0) == name
    assert table.topic_number(name) == 0


def tagged(value: bytes, tag: int, payload: bytes) -> bytes:
    """Return a record value with one field added to its empty tagged section."""
    assert value[-1] == 0
    writer = Writer()
    for part in (1, tag, len(payload)):
        writer.write_uvarint(part)
    return value[:-1] + writer.getvalue() + payload


PLAIN = records.Partition(partition_id=3, topic_id=TOPIC_ID, replicas=[4], isr=[4], leader=4)
CHANGE = records.PartitionChange(partition_id=3, topic_id=TOPIC_ID)
ONE_BROKER = b"\2\0\0\0\4"


@pytest.mark.parametrize(
    ("record", "version", "tag", "payload"),
    [
        (PLAIN, 0, 1, ONE_BROKER),
        (PLAIN, 1, 2, ONE_BROKER),
        (CHANGE, 0, 8, b"\2" + DIRECTORY),
        (CHANGE, 1, 6, ONE_BROKER),
        (CHANGE, 1, 7, ONE_BROKER),
    ],
)
def test_a_tag_of_a_later_version_is_rejected_and_not_skipped(
    record: records.Record, version: int, tag: int, payload: bytes
) -> None:
    # Kafka rejects the tag too ("Tag 1 is not valid for version 0"): skipping it would lose an ELR.
    value = tagged(encode_value(record, version), tag, payload)
    with pytest.raises(CorruptRecordError, match="version"):
        decode_value(value)
    with pytest.raises(CorruptRecordError, match="version"):
        with_topic(encode_value(PLAIN), value)


@pytest.mark.parametrize("tag", [1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize(
    "record", [PLAIN, CHANGE, TOPIC, records.RemoveTopic(topic_id=TOPIC_ID), records.NoOp()]
)
def test_a_tag_that_no_kafka_can_write_is_rejected_as_the_object_codec_does(
    record: records.Record, tag: int
) -> None:
    value = tagged(encode_value(record), tag, b"x")
    with pytest.raises(CorruptRecordError):
        decode_value(value)
    before = [] if isinstance(record, records.Topic) else [encode_value(TOPIC), encode_value(PLAIN)]
    with pytest.raises(CorruptRecordError):
        table_of(*before, value)


@pytest.mark.parametrize("record", [TOPIC, records.RemoveTopic(topic_id=TOPIC_ID)])
def test_a_topic_record_of_a_later_version_is_rejected_and_not_skipped(
    record: records.Record,
) -> None:
    value = bytearray(encode_value(record))
    value[2] = 1
    before = [] if record is TOPIC else [encode_value(TOPIC)]
    with pytest.raises(UnsupportedVersionError):
        table_of(*before, bytes(value))


def test_every_reason_code_has_a_text() -> None:
    assert len({reason_text(reason) for reason in range(-5, 0)}) == 5
    assert reason_text(-99) == "unknown reason -99"


def test_a_leader_of_minus_two_in_a_change_is_no_change() -> None:
    # Kafka omits the leader's tag when the leader does not change; an explicit -2 means the same.
    head = encode_value(records.PartitionChange(partition_id=3, topic_id=TOPIC_ID, version=0))
    table = with_topic(encode_value(FULL), head[:-1] + b"\1\1\4" + b"\xff\xff\xff\xfe")
    assert table.state_of(0)["leader"] == 6
    assert table.state_of(0)["leader_epoch"] == 8
    assert table.state_of(0)["partition_epoch"] == 10


def test_rows_are_encoded_in_the_order_asked_for() -> None:
    table = with_topic(*(encode_value(FULL.replace(partition_id=n)) for n in range(4)))
    builder = BatchBuilder(0, 1)
    table.encode_partitions(builder, np.array([2, 0], np.int32), version=2)
    ids = [value[6] for value in record_values(bytes(builder.finish()))]
    assert ids == [2, 0]
