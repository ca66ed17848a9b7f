"""The rules of a topic, and the result of a partition's records of a Produce request."""

from __future__ import annotations

import pytest

from kraft._core.bytes.batch import scan
from kraft.broker.produce_validation import CODECS, ProduceRules, check, validate
from kraft.errors import (
    INVALID_RECORD,
    RECORD_LIST_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    InvalidConfigError,
    RejectedBatchError,
)
from tests.harness.produced_batches import APPEND_TIME, NOW_MS, RawBatch, RawRecord


def test_no_config_gives_kafkas_defaults() -> None:
    rules = ProduceRules.from_configs({})
    assert rules == ProduceRules()
    assert rules.before_max_ms == 2**63 - 1
    assert rules.after_max_ms == 3_600_000
    assert rules.max_message_bytes == 1024 * 1024 + 12


def test_configs_become_rules() -> None:
    rules = ProduceRules.from_configs(
        {
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "5",
            "message.timestamp.after.max.ms": "6",
            "max.message.bytes": "7",
            "segment.bytes": "8",
            "cleanup.policy": "delete, compact",
            "compression.type": "zstd",
        }
    )
    assert rules == ProduceRules(True, 5, 6, 7, 8, True, 4)
    assert not ProduceRules.from_configs({"cleanup.policy": "delete"}).keys_required


def test_compression_types_have_kafkas_names() -> None:
    assert CODECS == {
        "producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [("compression.type", "none"), ("max.message.bytes", "many")]
)
def test_an_impossible_config_is_rejected(key: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=key):
        ProduceRules.from_configs({key: value})


def test_a_batch_gets_the_offset_the_epoch_and_the_append_time() -> None:
    sent = RawBatch([RawRecord(), RawRecord()]).encoded()
    batch = validate(
        sent, ProduceRules(append_time=True), "t-0", next_offset=40, leader_epoch=6, now_ms=NOW_MS
    )
    table = scan(batch.data)
    assert table.base_offsets.tolist() == [40]
    assert table.last_offsets.tolist() == [41]
    assert table.partition_leader_epochs.tolist() == [6]
    assert table.max_timestamps.tolist() == [NOW_MS]
    assert table.attributes.tolist() == [APPEND_TIME]


def test_null_records_are_rejected() -> None:
    with pytest.raises(RejectedBatchError, match="no records for t-0") as caught:
        check(None, ProduceRules(), "t-0", now_ms=NOW_MS)
    assert caught.value.kafka_code == INVALID_RECORD


def test_a_batch_larger_than_a_segment_is_rejected() -> None:
    sent = RawBatch().encoded()
    rules = ProduceRules(segment_bytes=len(sent) - 1)
    with pytest.raises(RejectedBatchError, match=r"segment\.bytes") as caught:
        check(sent, rules, "t-0", now_ms=NOW_MS)
    assert caught.value.kafka_code == RECORD_LIST_TOO_LARGE


def test_old_requests_may_not_use_zstd() -> None:
    sent = RawBatch(codec=4).encoded()
    check(sent, ProduceRules(), "t-0", now_ms=NOW_MS, version=7)
    with pytest.raises(RejectedBatchError) as caught:
        check(sent, ProduceRules(), "t-0", now_ms=NOW_MS, version=6)
    assert caught.value.kafka_code == UNSUPPORTED_COMPRESSION_TYPE
