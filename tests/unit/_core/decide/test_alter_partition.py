"""AlterPartition requests as bytes: truncated ones, duplicates, and requests decided in parts."""

from __future__ import annotations

import struct

import pytest

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.alter_partition import AlterPartitionRequest, encode_error_response
from kraft.controller.decision import Decision, Records
from kraft.controller.state import election_context
from kraft.controller.topics.isr_changes import EncodedAlterPartition, IsrChange
from kraft.errors import CorruptRecordError, StaleBrokerEpochError, UnsupportedVersionError
from tests.harness.decisions import Lab
from tests.reference.alter_partition_bytes import encoded


def request(lab: Lab, *partitions: int, isr: tuple[int, ...] = (0,)) -> bytes:
    topic_id = lab.cluster.table.topic_id_of(0)
    asked = [IsrChange(topic_id, id, 0, 0, dict.fromkeys(isr, -1)) for id in partitions]
    return encoded(0, lab.cluster.state.brokers[0].epoch, asked, 3)


def lab_of(partitions: int) -> Lab:
    lab = Lab()
    lab.create("t", *[[0, 1, 2]] * partitions)
    return lab


def test_a_truncated_request_is_rejected_as_a_whole() -> None:
    body = request(lab_of(3), 0, 1, 2)
    AlterPartitionRequest(body, 3)
    for end in range(len(body)):
        with pytest.raises(CorruptRecordError):
            AlterPartitionRequest(body[:end], 3)
    with pytest.raises(CorruptRecordError):
        AlterPartitionRequest(body + b"x", 3)
    with pytest.raises(UnsupportedVersionError):
        AlterPartitionRequest(body, 4)


def test_a_count_larger_than_the_bytes_allocates_nothing() -> None:
    for count in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\0"):
        with pytest.raises(CorruptRecordError):
            AlterPartitionRequest(struct.pack(">iq", 0, 0) + count + b"\0" * 40, 3)


def test_a_request_without_partitions_gets_a_response_without_topics() -> None:
    """The response was copied from a NULL pointer: `make sanitize` reports it."""
    lab = lab_of(1)
    decision = EncodedAlterPartition(request(lab), 3).decide(lab.cluster)
    assert decision.response is not None
    assert decision.response[-2:] == b"\x01\x00"


def test_a_large_request_is_decided_in_parts_and_answered_once() -> None:
    lab = lab_of(7)
    body = request(lab, *range(7))
    whole = AlterPartitionRequest(body, 3)
    builder = BatchBuilder()
    whole.decide(election_context(lab.cluster), builder, 7)
    parts = AlterPartitionRequest(body, 3)
    for done in (3, 6, 7):
        part = BatchBuilder()
        parts.decide(election_context(lab.cluster), part, 3)
        assert parts.decided_count == done
        lab.do(Decision(Records.finished(part), None))
    assert parts.encode_response() == whole.encode_response()
    assert lab.partition("t", 6)["isr"] == [0]


def test_the_second_entry_of_a_duplicate_partition_is_rejected() -> None:
    lab = lab_of(2)
    decision = EncodedAlterPartition(request(lab, 1, 1), 3).decide(lab.cluster)
    assert len(decision.records) == 1
    assert decision.response is not None
    assert struct.pack(">ih", 1, 42) in decision.response


@pytest.mark.parametrize("limit", [1, 2, 20])
def test_a_duplicate_partition_after_others_is_rejected(limit: int) -> None:
    lab = lab_of(12)
    asked = AlterPartitionRequest(request(lab, 9, 0, 1, 9, 8, 10, 9, 1), 3)
    record_count = 0
    while asked.decided_count < asked.partition_count:
        builder = BatchBuilder()
        asked.decide(election_context(lab.cluster), builder, limit)
        record_count += builder.record_count
    assert record_count == 5
    answers = asked.encode_response()
    refused = [answers.count(struct.pack(">ih", partition, 42)) for partition in (0, 1, 8, 9, 10)]
    assert refused == [0, 1, 0, 2, 0]


@pytest.mark.parametrize("isr", [(0, 3, 3), (0, 9, 9), (0, 8, 1, 8), (0, 9, 8, 7, 9)])
def test_a_duplicate_isr_member_is_rejected_in_any_slot(isr: tuple[int, ...]) -> None:
    lab = Lab(10)
    lab.create("t", list(range(10)))
    # A dict cannot repeat a member: encode unused broker ids, then overwrite them in the bytes.
    body = request(lab, 0, isr=tuple(range(100, 100 + len(isr))))
    for index, member in enumerate(isr):
        body = body.replace(struct.pack(">iq", 100 + index, -1), struct.pack(">iq", member, -1))
    decision = EncodedAlterPartition(body, 3).decide(lab.cluster)
    assert not decision.records
    assert decision.response is not None
    assert struct.pack(">ih", 0, 42) in decision.response
    once = EncodedAlterPartition(request(lab, 0, isr=tuple(dict.fromkeys(isr))), 3).decide(
        lab.cluster
    )
    assert len(once.records) == 1


def test_a_topic_without_partitions_is_answered_like_the_others() -> None:
    lab = lab_of(1)
    epoch = lab.cluster.state.brokers[0].epoch
    body = struct.pack(">iq", 0, epoch) + b"\2" + b"u" * 16 + b"\1\0\0"
    response = EncodedAlterPartition(body, 2).decide(lab.cluster).response
    assert response == struct.pack(">ih", 0, 0) + b"\2" + b"u" * 16 + b"\1\0\0"


def test_a_broker_of_another_epoch_is_rejected() -> None:
    lab = lab_of(1)
    body = encoded(0, 12345, [], 3)
    with pytest.raises(StaleBrokerEpochError):
        EncodedAlterPartition(body, 3).decide(lab.cluster)
    assert encode_error_response(77) == struct.pack(">ih", 0, 77) + b"\1\0"
