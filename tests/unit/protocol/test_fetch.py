"""Fetch and Produce: records are views of a frame, and parts of a message that are not copied."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.codec.fetch import METADATA_TOPIC_ID
from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft._core.log.disk import OsDisk
from kraft.errors import InvalidRecordError
from kraft.protocol.fetch import (
    FETCH,
    DivergingEpochData,
    FetchedPartitionData,
    FetchedTopicData,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequestData,
    FetchResponseData,
    FetchTopicData,
    decode_request,
    decode_response,
)
from kraft.protocol.produce import PartitionProduceData, ProduceRequestData, TopicProduceData
from kraft.raft.rpc import FetchRequest, FetchResponse, LogSlice
from kraft.raft.voters import ReplicaKey
from kraft.records import Uuid

TOPIC = Uuid(range(16))
WITH_TOPIC_IDS = range(13, FETCH.highest + 1)


def produced(records: bytes | None) -> ProduceRequestData:
    return ProduceRequestData(None, -1, 1000, [TopicProduceData("", TOPIC, [_partition(records)])])


def _partition(records: bytes | None) -> PartitionProduceData:
    return PartitionProduceData(7, records)


def fetched(*records: bytes | memoryview | FileSlice | None) -> FetchResponseData:
    partitions = [
        FetchedPartitionData(index, 0, 9, 9, 0, records=one) for index, one in enumerate(records)
    ]
    return FetchResponseData(responses=[FetchedTopicData(topic_id=TOPIC, partitions=partitions)])


def joined(parts: Iterable[bytes | memoryview | FileSlice]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)


@pytest.mark.parametrize("frame_type", [bytes, bytearray])
def test_records_are_a_view_of_the_frame(frame_type: type[bytes | bytearray]) -> None:
    frame = frame_type(b"header" + produced(b"records").encode(13))
    request = ProduceRequestData.decode(frame, 13, 6)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"records"
    assert records.obj is frame
    assert records.readonly == (frame_type is bytes)
    if isinstance(frame, bytearray):
        records[0:1] = b"R"
        assert b"Records" in frame


def test_a_view_of_a_part_of_a_frame_begins_at_the_right_byte() -> None:
    body = produced(b"records").encode(13)
    whole = memoryview(b"..." + body + b"...")
    request = ProduceRequestData.decode(whole[3:-3], 13)
    assert request == produced(b"records")


@pytest.mark.parametrize("version", [3, 9, 13])
def test_no_records_and_empty_records_differ(version: int) -> None:
    for records in (None, b""):
        request = produced(records)
        request.topic_data[0].topic_id = Uuid()
        read = ProduceRequestData.decode(request.encode(version), version)
        assert read.topic_data[0].partition_data[0].records == records


def test_records_are_parts_of_a_response_without_a_copy() -> None:
    given = (b"first", None, memoryview(b"second"), b"", memoryview(bytearray(b"third")))
    response = fetched(*given)
    parts, size = response.encode_segments(17)
    assert joined(parts) == response.encode(17)
    assert size == len(response.encode(17))
    assert [id(part) for part in parts[1::2]] == [id(one) for one in given if one]


def test_a_slice_of_a_file_stands_for_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"before|records|after")
    file = OsDisk().open(tmp_path / "segment", read_only=True)
    slice = FileSlice(file, 7, 7)
    assert slice.read() == b"records"
    response = fetched(slice, FileSlice(file, 0, 0), b"in memory")
    parts, size = response.encode_segments(16)
    assert [part for part in parts if isinstance(part, FileSlice)] == [slice]
    sent = joined(parts)
    assert sent == fetched(b"records", b"", b"in memory").encode(16)
    assert size == len(sent)
    with pytest.raises(InvalidRecordError, match=r"records cannot be FileSlice"):
        response.encode(16)
    file.close()


@pytest.mark.parametrize("wrong", ["text", 7, [b"a"], FileSlice])
def test_other_values_are_no_records(wrong: object) -> None:
    response = fetched(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRecordError, match="records cannot be"):
        response.encode_segments(17)
    with pytest.raises(InvalidRecordError, match="records cannot be"):
        response.encode(17)


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 2**40])
def test_a_slice_is_as_large_as_a_field_may_be(size: int) -> None:
    file = OsDisk()
    with pytest.raises(InvalidRecordError, match=f"records cannot have {size} bytes"):
        fetched(FileSlice(file, 0, size)).encode_segments(17)  # type: ignore[arg-type]


def test_records_have_no_tag() -> None:
    class Holder(Struct):
        records: bytes | None = field("records", nullable=True)

    with pytest.raises(ValueError, match="records with a tag"):
        field("records", tag=0)
    for kind in ("struct", "[]struct"):
        with pytest.raises(ValueError, match="records with a tag"):
            field(kind, tag=0, of=Holder)

    class Outer(Struct):
        holder: Holder = field("struct", of=Holder)

    with pytest.raises(ValueError, match="records with a tag"):
        field("struct", tag=0, of=Outer)


def test_a_message_that_fails_to_encode_leaves_nothing_behind() -> None:
    class Last(Message, versions=(0, 0)):
        records: bytes | None = field("records", nullable=True)
        number: int = field("int8")

    with pytest.raises(InvalidRecordError):
        Last(b"x" * 5000, 300).encode_segments(0)
    assert Last(b"x", 1).encode_segments(0) == ([b"\2", b"x", b"\1\0"], 4)


@pytest.mark.parametrize("version", WITH_TOPIC_IDS)
def test_the_raft_layer_reads_the_same_request(version: int) -> None:
    """`decode_request` reads a body of one partition by compiled code of its own."""
    has_directory, has_watermark = version >= 17, version >= 18
    partition = FetchPartitionData(
        0,
        5,
        100,
        4,
        replica_directory_id=TOPIC if has_directory else Uuid(),
        high_watermark=90 if has_watermark else 2**63 - 1,
    )
    request = FetchRequestData(
        cluster_id="cluster",
        max_wait_ms=500,
        max_bytes=1000,
        topics=[FetchTopicData(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )
    if version < 15:
        request.replica_id = 3
    else:
        request.replica_state = FetchReplicaState(3)
    expected = FetchRequest(
        *("cluster", ReplicaKey(3, TOPIC if has_directory else None), 5, 100, 4, 500, 1000),
        90 if has_watermark else 2**63 - 1,
    )
    assert decode_request(version, request.encode(version), 0) == expected


@pytest.mark.parametrize("version", WITH_TOPIC_IDS)
def test_the_raft_layer_reads_the_same_response(version: int) -> None:
    response = fetched(b"records")
    response.responses[0].topic_id = METADATA_TOPIC_ID
    partition = response.responses[0].partitions[0]
    partition.current_leader.leader_id, partition.current_leader.leader_epoch = 3, 5
    partition.diverging_epoch = DivergingEpochData(4, 80)
    read = decode_response(version, response.encode(version), 0, "CONTROLLER")
    assert isinstance(read, FetchResponse)
    assert not isinstance(read.records, LogSlice)
    assert (read.leader_id, read.epoch, read.high_watermark) == (3, 5, 9)
    assert read.diverging_epoch == (4, 80)
    assert bytes(read.records) == b"records"
