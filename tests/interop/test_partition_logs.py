"""One partition's log, kept by kraft and by Apache Kafka: the same calls, answers and files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraft.broker.log.partition_log import PartitionLog
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests
from tests.harness.produced_batches import NOW_MS, RawBatch, RawRecord
from tests.interop.log_oracle import log_oracle
from tests.interop.own_log import OwnLog, files, sorted_state

pytestmark = pytest.mark.interop

RUNS = 25
STEPS = 60
#: Kafka checks that the indexes have space once an append, here once a batch.
SMALL_INDEX = 100
#: What a run has that others lack. After an unclean stop Kafka forgets producers before the log's
#: start, which kraft finds in a snapshot; and it cannot recover a log with a full index.
PROFILES = ("unclean stops", "small index", "the start moves")


@pytest.fixture(scope="module")
def kafka_log(jars: Jars) -> Iterator[JsonRequests]:
    with log_oracle(jars) as oracle:
        yield oracle


def settings_of(dice: Random, profile: str) -> dict[str, str]:
    return {
        "segment.bytes": str(dice.choice((6_000, 20_000))),
        "segment.ms": str(dice.choice((5_000, 60_000, 10**9))),
        "index.interval.bytes": str(dice.choice((0, 200, 1_000, 4_096))),
        "segment.index.bytes": str(SMALL_INDEX if profile == "small index" else 10_000),
        "retention.ms": str(dice.choice((-1, 20_000))),
        "retention.bytes": str(dice.choice((-1, 6_000))),
        "message.timestamp.type": dice.choice(("CreateTime", "CreateTime", "LogAppendTime")),
    }


def leaders_batch(dice: Random, now_ms: int, sequences: dict[int, int]) -> RawBatch:
    count = dice.choice((1, 2, 7))
    producer_id = dice.choice((-1, -1, 5, 6))
    sequence = -1
    if producer_id >= 0:
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + count
    return RawBatch(
        [RawRecord(dice.randrange(50), b"k", bytes(dice.randrange(250))) for _ in range(count)],
        base_timestamp=now_ms - dice.randrange(3_000),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def followers_batches(dice: Random, now_ms: int, end: int, epoch: int) -> tuple[bytes, int]:
    """Return batches as compaction leaves them, and the epoch after them."""
    data = b""
    for number in range(dice.choice((1, 1, 3, 6))):
        # Not before the first one: Kafka would name a new segment by its offset.
        end += dice.choice((0, 0, 0, 4)) if number else 0
        epoch += dice.choice((0, 0, 0, 1))
        count = dice.choice((1, 3))
        removed = dice.choice((0, 0, 5))
        batch = RawBatch(
            [RawRecord(dice.randrange(50), b"k", bytes(dice.randrange(250))) for _ in range(count)],
            base_offset=end,
            leader_epoch=epoch,
            base_timestamp=now_ms - dice.randrange(3_000),
            last_offset_delta=count - 1 + removed,
        )
        data += batch.encoded()
        end += count + removed
    return data, epoch


@pytest.mark.parametrize("seed", range(RUNS))
def test_the_same_calls_have_the_same_answers_and_leave_the_same_files(
    kafka_log: JsonRequests, tmp_path: Path, seed: int
) -> None:
    dice = Random(seed)
    profile = PROFILES[seed % len(PROFILES)]
    configs = settings_of(dice, profile)
    own = OwnLog(tmp_path / "own", configs)
    theirs = tmp_path / "kafka" / "t-0"
    now_ms = NOW_MS
    opened: dict[str, Any] = {"dir": str(theirs), "configs": configs}
    assert own.open() == sorted_state(
        kafka_log("open", **opened, start=0, recovery=0, clean=False, now=now_ms)
    )
    epoch = 0
    sequences: dict[int, int] = {}
    done: Counter[str] = Counter()
    for _ in range(STEPS):
        now_ms += dice.choice((0, 10, 1_000, 8_000))
        own.now_ms = now_ms
        state = own.state()
        end = state["end"]
        kind = dice.choices(
            ("leader", "follower", "truncate", "restart", "start", "roll", "retention", "reopen",
             "times"),
            (30, 20, 3, 1, 3, 2, 4, 3, 3),
        )[0]  # fmt: skip
        done[kind] += 1
        if (kind == "follower" and profile == "small index") or (
            kind == "start" and profile == "unclean stops"
        ):
            kind = "leader"
        if kind == "leader":
            epoch += dice.choice((0, 0, 0, 1))
            records = leaders_batch(dice, now_ms, sequences).encoded()
            ours = own.leader(records, epoch)
            kafkas = kafka_log("leader", records=records.hex(), epoch=epoch, now=now_ms)
        elif kind == "follower":
            records, epoch = followers_batches(dice, now_ms, end, epoch)
            ours = own.follower(records, epoch)
            kafkas = kafka_log("follower", records=records.hex(), epoch=epoch, now=now_ms)
        elif kind == "truncate":
            offset = dice.choice(
                [end, end + 3, *boundaries(own.log), *([0] if end > state["start"] else [])]
            )
            own.log.truncate_to(offset)
            sequences.clear()
            ours, kafkas = own.state(), kafka_log("truncate", offset=offset, now=now_ms)
            sequences.update({id_: last + 1 for id_, last in ours["producers"]})
        elif kind == "restart":
            offset = dice.choice((0, end, end + 7, 5))
            own.log.restart_at(offset)
            sequences.clear()
            ours, kafkas = own.state(), kafka_log("restart", offset=offset, now=now_ms)
        elif kind == "start":
            offset = dice.randint(state["start"], end)
            own.log.raise_start_offset(offset)
            ours, kafkas = own.state(), kafka_log("start", offset=offset, now=now_ms)
        elif kind == "roll":
            own.log.roll()
            ours, kafkas = own.state(), kafka_log("roll", now=now_ms)
        elif kind == "retention":
            watermark = dice.choice((end, dice.randint(state["start"], end)))
            own.log.high_watermark = watermark
            own.log.apply_retention(now_ms)
            ours = own.state()
            kafkas = kafka_log("retention", watermark=watermark, now=now_ms)
        elif kind == "times":
            for _ in range(5):
                at = now_ms - dice.randrange(100_000)
                found = own.log.offset_at_time(at)
                answer = kafka_log("time", timestamp=at)
                # Kafka searches the first segment only: it misses records after the log's start.
                if answer or found is None:
                    assert ([] if found is None else list(found)) == answer
                offset = dice.randint(state["start"], end)
                whole = bytes.fromhex(kafka_log("read", offset=offset, size=1))
                assert own.log.read(offset, 1, end).read() == whole
                asked = dice.randint(0, epoch + 1)
                known = own.log.end_offset_of(asked)
                assert ([] if known is None else list(known)) == kafka_log("epoch_end", epoch=asked)
            largest = own.log.offset_of_largest_time()
            assert ([] if largest is None else list(largest)) == kafka_log("time", timestamp=-3)
            assert own.log.start_offset == kafka_log("time", timestamp=-2)[1]
            latest = [-1, own.log.end_offset, own.log.latest_epoch]
            assert latest == kafka_log("time", timestamp=-1)
            continue
        else:
            own.log.close()
            closed = kafka_log("close")
            assert closed["recovery"] == own.log.recovery_point
            assert own.files() == files(theirs)
            clean = profile != "unclean stops" or dice.random() < 0.6
            start = state["start"]
            recovery = end if clean else dice.randint(0, end)
            if dice.random() < 0.3:
                # Each continues with the files of the other.
                other = tmp_path / "moved"
                (tmp_path / "own" / "t-0").rename(other)
                theirs.rename(tmp_path / "own" / "t-0")
                other.rename(theirs)
            ours = own.open(start=start, recovery=recovery, clean=clean)
            kafkas = kafka_log(
                "open", **opened, start=start, recovery=recovery, clean=clean, now=now_ms
            )
        assert ours == sorted_state(kafkas), (kind, done)
    own.log.close()
    kafka_log("close")
    assert own.files() == files(theirs)
    shutil.rmtree(tmp_path)


def boundaries(log: PartitionLog) -> list[int]:
    """Return the base offsets of all batches."""
    return [batch.base_offset for batch in log.core.batches(log.start_offset)]
