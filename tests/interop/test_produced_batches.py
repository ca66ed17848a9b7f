"""Produced batches, valid, wrong and hostile, appended by kraft and to a log of Apache Kafka.

Both must append the same bytes or give the same error code and errors of records. The differences
are those in the docstring of ``kraft._core.bytes.produced_batch``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from kraft._core.bytes.batch import inflate, scan
from kraft._core.bytes.batch_check import validate as check_all
from kraft._core.bytes.batch_records import iterate
from kraft._core.bytes.compression import CODEC_NAMES
from kraft.broker.produce_validation import CODECS, ProduceRules, validate
from kraft.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
    CorruptRecordError,
    KraftError,
)
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests
from tests.harness.produced_batches import (
    HOUR_MS,
    NOW_MS,
    RawBatch,
    RawRecord,
    generated_batch,
    mutated,
    read_content,
    with_wrong_field,
)
from tests.interop.produce_oracle import produce_oracle

pytestmark = pytest.mark.interop

CASES = 1500
#: The same cases in every run: a rare one must not fail the check of an unrelated change.
SEED = int(os.environ.get("SEED", "1"))
REASONS = (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)


@pytest.fixture(scope="module")
def log(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JsonRequests]:
    with produce_oracle(jars, tmp_path_factory.mktemp("log")) as oracle:
        yield oracle


def generated_configs(dice: Random) -> dict[str, str]:
    """Return settings of a topic that a produced batch meets."""
    configs = {"segment.bytes": str(1 << 20)}
    if dice.random() < 0.3:
        configs["message.timestamp.type"] = "LogAppendTime"
    if dice.random() < 0.5:
        configs["message.timestamp.before.max.ms"] = str(HOUR_MS)
    if dice.random() < 0.2:
        configs["message.timestamp.after.max.ms"] = str(dice.choice((0, 2**63 - 1)))
    if dice.random() < 0.3:
        configs["cleanup.policy"] = dice.choice(("compact", "compact,delete"))
    if dice.random() < 0.2:
        configs["max.message.bytes"] = str(dice.choice((0, 100, 300, 2000)))
    if dice.random() < 0.5:
        configs["compression.type"] = dice.choice(list(CODECS))
    return configs


def ours(question: dict[str, Any]) -> dict[str, Any]:
    """Return kraft's answer in the form of the oracle's."""
    try:
        batch = validate(
            bytes.fromhex(question["records"]),
            ProduceRules.from_configs(question["configs"]),
            "t-0",
            next_offset=question["offset"],
            leader_epoch=question["epoch"],
            now_ms=question["now"],
            version=question["version"],
        )
    except KraftError as error:
        record_errors = [list(one) for one in getattr(error, "record_errors", ())]
        return {"code": error.kafka_code, "message": str(error), "record_errors": record_errors}
    return {
        "bytes": batch.data.hex(),
        "first": question["offset"],
        "last": question["offset"] + batch.record_count - 1,
        "max_timestamp": batch.max_timestamp,
        "append_time": batch.append_time_ms,
    }


def has_odd_names(data: bytes) -> bool:
    """Return whether the name of a header is not UTF-8."""
    names = [name for batch in iterate(data) for r in batch for name, _ in r.headers]
    return any(name.decode(errors="replace").encode() != name for name in names)


def without_names(data: bytes) -> list[Any]:
    rows = read_content(bytes(inflate(data)))
    return [(*row, [value for _, value in headers]) for *row, headers in rows]


def with_times(data: bytes) -> list[Any]:
    """Return the content of a plain batch with absolute timestamps."""
    base = int(scan(data).base_timestamps[0])
    return [(base + delta, *row) for delta, *row in read_content(data)]


def is_dense(data: bytes) -> bool:
    try:
        check_all(data, dense=True)
    except CorruptRecordError:
        return False
    return True


def compared(question: dict[str, Any], mine: dict[str, Any], kafka: dict[str, Any]) -> str:
    """Check that both answers agree, or differ as documented; return which."""
    told = f"{question}\nkraft: {mine}\nKafka: {kafka}"
    code, expected = mine.get("code", NONE), kafka.get("code", NONE)
    if expected == UNKNOWN_SERVER_ERROR:
        # An exception that Kafka does not expect here.
        if code == NONE:
            # Its builder takes no negative timestamp or epoch, and cannot build a batch again
            # whose records it has read without keys and values.
            failures = ("IllegalArgumentException", "UnsupportedOperationException")
            assert any(name in kafka["message"] for name in failures), told
            return "built where Kafka's builder fails"
        assert code in REASONS, told
        return "a reason instead of UNKNOWN_SERVER_ERROR"
    accepted = expected == NONE or kafka["record_errors"]
    if code == INVALID_RECORD and accepted and not mine["record_errors"]:
        # All of kraft's readers reject the records that Kafka reads.
        sent = bytes.fromhex(question["records"])
        with pytest.raises(CorruptRecordError):
            check_all(sent[: int.from_bytes(sent[8:12], "big") + 12])
        return "stricter about framing"
    if code != expected and MESSAGE_TOO_LARGE in (code, expected):
        # The compressors differ: a batch is just too large after one of them.
        packed = bytes.fromhex(mine.get("bytes") or kafka["bytes"])
        limit = int(question["configs"]["max.message.bytes"])
        assert {code, expected} == {NONE, MESSAGE_TOO_LARGE}, told
        assert limit / 2 < len(packed) <= limit, told
        return "another size after compression"
    assert code == expected, told
    if code != NONE:
        assert len(mine["record_errors"]) == len(kafka["record_errors"]), told
        pairs = zip(mine["record_errors"], kafka["record_errors"], strict=True)
        for (index, text), (their_index, theirs) in pairs:
            assert index == their_index, told
            if text.startswith("Invalid timestamp type"):
                assert theirs.startswith("Invalid timestamp type in message"), told
            else:
                assert text == theirs, told
        return f"rejected with {code}"
    got, wanted = bytes.fromhex(mine.pop("bytes")), bytes.fromhex(kafka.pop("bytes"))
    assert mine == kafka, told
    if got == wanted:
        return "equal"
    source = question["records"]
    if bytes(inflate(got)) == bytes(inflate(wanted)):
        target = question["configs"].get("compression.type", "producer")
        assert CODECS[target] > 0 or int(source[44:46], 16) & 7, told
        return "equal when inflated"
    if has_odd_names(got):
        # Java's text replaces what is not UTF-8.
        assert without_names(got) == without_names(wanted), told
        return "with names that are not UTF-8"
    assert not is_dense(wanted), told
    assert is_dense(got), told
    assert with_times(got) == with_times(wanted), told
    assert scan(got).base_offsets.tolist() == [question["offset"]], told
    return "with dense offsets"


def run(log: JsonRequests, cases: int, batch_of: Callable[[Random, dict[str, str]], bytes]) -> Any:
    dice = Random(SEED)
    found: Counter[str] = Counter()
    for _ in range(cases):
        configs = generated_configs(dice)
        question = {
            "records": batch_of(dice, configs).hex(),
            "version": dice.choice((3, 6, 7, 11, 13)),
            "configs": configs,
            "now": NOW_MS + dice.choice((0, 1, 500)),
            "offset": dice.choice((0, 5, 2**31 + 7, 2**45)),
            "epoch": dice.choice((0, 3, 2**31 - 1)),
        }
        found[compared(question, ours(question), log("append", **question))] += 1
    print(f"seed {SEED}: {dict(found)}")
    return found


def test_valid_batches_are_appended_as_by_kafka(log: JsonRequests) -> None:
    def made(dice: Random, configs: dict[str, str]) -> bytes:
        return generated_batch(dice, with_keys="cleanup.policy" in configs).encoded()

    found = run(log, CASES, made)
    assert not {"stricter about framing", "with dense offsets"} & set(found)
    assert found["equal"] > CASES / 4
    assert found["equal when inflated"] > CASES / 20


def test_batches_with_a_wrong_field_are_treated_as_by_kafka(log: JsonRequests) -> None:
    def made(dice: Random, configs: dict[str, str]) -> bytes:
        batch = generated_batch(dice, with_keys=dice.random() < 0.5)
        for _ in range(dice.choice((1, 1, 2))):
            batch = with_wrong_field(dice, batch)
        return batch.encoded()

    found = run(log, 2 * CASES, made)
    assert all(found[f"rejected with {code}"] for code in (2, 10, 32, 76, 87))
    assert found["equal"]
    assert found["with dense offsets"]


def test_mutated_bytes_are_treated_as_by_kafka(log: JsonRequests) -> None:
    def made(dice: Random, configs: dict[str, str]) -> bytes:
        whole = generated_batch(dice).encoded()
        data = mutated(dice, whole)
        return data + whole[: dice.randrange(len(whole))] if dice.random() < 0.1 else data

    found = run(log, 2 * CASES, made)
    assert found["equal"]
    assert found["rejected with 2"]
    assert found["rejected with 87"]


@pytest.mark.parametrize("whole", [b"", RawBatch().encoded()], ids=["alone", "after a batch"])
@pytest.mark.parametrize("size", [11, 12, 16, 17])
@pytest.mark.parametrize("length", [-1, 0, 13, 14, 70])
def test_the_beginning_of_a_batch_is_treated_as_by_kafka(
    log: JsonRequests, whole: bytes, size: int, length: int
) -> None:
    begun = (bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(4) + b"\2")[:size]
    question = {
        "records": (whole + begun).hex(),
        "version": 11,
        "configs": {},
        "now": NOW_MS,
        "offset": 0,
        "epoch": 0,
    }
    compared(question, ours(question), log("append", **question))


@pytest.mark.parametrize("codec", [0, 3])
def test_a_batch_larger_than_a_segment_is_rejected_as_by_kafka(
    log: JsonRequests, codec: int
) -> None:
    value = Random(1).randbytes(1_200_000)
    question = {
        "records": RawBatch([RawRecord(value=value)], codec=codec).encoded().hex(),
        "version": 11,
        "configs": {"segment.bytes": str(1 << 20), "max.message.bytes": str(4 << 20)},
        "now": NOW_MS,
        "offset": 0,
        "epoch": 0,
    }
    outcome = compared(question, ours(question), log("append", **question))
    assert outcome == f"rejected with {RECORD_LIST_TOO_LARGE}"


@pytest.mark.parametrize("codec", CODEC_NAMES[1:])
def test_kafka_reads_what_kraft_compresses(log: JsonRequests, codec: str) -> None:
    records = [RawRecord(key=b"k%d" % i, value=b"%d" % (i * i) * (i % 50)) for i in range(2000)]
    plain = RawBatch(records).encoded()
    rules = ProduceRules.from_configs({"compression.type": codec})
    packed = validate(plain, rules, "t-0", next_offset=0, leader_epoch=0, now_ms=NOW_MS)
    assert packed.is_rebuilt
    answer = log(
        "append",
        records=packed.data.hex(),
        version=7,
        configs={"compression.type": "uncompressed"},
        now=NOW_MS,
        offset=0,
        epoch=0,
    )
    assert bytes.fromhex(answer["bytes"]) == bytes(inflate(packed.data))
