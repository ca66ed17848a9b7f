"""Compaction beside Apache Kafka's cleaner: the same logs, the same records and files are left."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraft._core.bytes.batch import inflate, scan
from kraft.broker.log.log_cleaner import LogCleaner
from kraft.broker.log.log_manager import LogManager
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests
from tests.harness.produced_batches import (
    APPEND_TIME,
    CONTROL,
    NOW_MS,
    TRANSACTIONAL,
    RawBatch,
    RawRecord,
)
from tests.interop.log_oracle import log_oracle
from tests.interop.own_log import OwnLog, files, sorted_state

pytestmark = pytest.mark.interop

RUNS = 24
STEPS = 90
KEY = ("t", 0)
#: Bytes of the map of keys: enough for all, and for 90 of them.
MEMORIES = (1 << 20, 2_400)


@pytest.fixture(scope="module")
def kafka_log(jars: Jars) -> Iterator[JsonRequests]:
    with log_oracle(jars) as oracle:
        yield oracle


class CompactedLog(OwnLog):
    """A log of kraft and its cleaner, with the calls and answers of the oracle."""

    def open(self, *, start: int = 0, recovery: int = 0, clean: bool = False) -> dict[str, Any]:
        super().open(start=start, recovery=recovery, clean=clean)
        self.directory.cleaner_offsets = self.directory._checkpoint("cleaner-offset-checkpoint")
        self.directory.partitions[KEY] = self.log
        self.manager = LogManager([self.directory], lambda topic: self.log.settings)
        return self.state()

    def clean(self, watermark: int, memory: int, step_bytes: int) -> dict[str, Any]:
        """Do one round."""
        self.log.high_watermark = watermark
        self.manager.flush_rolled()
        self.manager.write_checkpoints()
        cleaner = LogCleaner(self.manager, memory=memory, step_bytes=step_bytes)
        assert cleaner.choose(self.now_ms) is None or cleaner.step(self.now_ms)
        compaction = cleaner.current
        while cleaner.current is not None:
            cleaner.step(self.now_ms)
        if compaction is None:
            return self.state()
        assert compaction.is_complete
        return {**self.state(), "clean": self.directory.cleaner_offsets[KEY]}

    def checkpoint(self) -> str:
        return checkpoint(self.home)


def checkpoint(home: Path) -> str:
    path = home / "cleaner-offset-checkpoint"
    return path.read_text() if path.exists() else ""


def settings_of(dice: Random, profile: str) -> dict[str, str]:
    return {
        "segment.bytes": "1000000" if profile == "codecs" else str(dice.choice((6_000, 12_000))),
        "segment.ms": str(dice.choice((5_000, 10**9))),
        "index.interval.bytes": str(dice.choice((0, 200, 4_096))),
        "segment.index.bytes": "10000",
        "cleanup.policy": dice.choice(("compact", "compact", "compact,delete")),
        "retention.ms": str(dice.choice((-1, 60_000))),
        "min.cleanable.dirty.ratio": "0"
        if profile == "codecs"
        else dice.choice(("0", "0.3", "0.5")),
        "min.compaction.lag.ms": str(dice.choice((0, 0, 3_000))),
        "max.compaction.lag.ms": str(dice.choice((2**63 - 1, 10_000))),
        "delete.retention.ms": str(dice.choice((0, 5_000, 60_000))),
        # Kafka takes other segments at random otherwise.
        "segment.jitter.ms": "0",
    }


def keyed_records(dice: Random, keys: int) -> list[RawRecord]:
    return [
        RawRecord(
            dice.randrange(-50, 50),
            None if dice.random() < 0.03 else b"key-%d" % dice.randrange(keys),
            None if dice.random() < 0.2 else bytes(dice.randrange(120)),
            [(b"header", dice.choice((None, b"", b"x")))] if dice.random() < 0.1 else (),
        )
        for _ in range(dice.choice((1, 2, 5)))
    ]


def batch_of(
    dice: Random, profile: str, keys: int, now_ms: int, end: int, epoch: int, last: dict[int, int]
) -> RawBatch:
    """Return a batch of a leader's log, of an idempotent producer at times."""
    records = keyed_records(dice, keys)
    producer = dice.choice((-1, -1, 5, 6, 7)) if profile == "producers" else -1
    sequence = -1
    if producer >= 0:
        sequence = last.get(producer, 0)
        last[producer] = sequence + len(records)
    return RawBatch(
        records,
        base_offset=end,
        leader_epoch=epoch,
        base_timestamp=now_ms - dice.randrange(3_000),
        attributes=APPEND_TIME if dice.random() < 0.2 else 0,
        last_offset_delta=len(records) - 1 + dice.choice((0, 0, 0, 4)),
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
        codec=dice.choice((0, 1, 2, 3, 4)) if profile == "codecs" else 0,
    )


def records_of(directory: Path) -> list[Any]:
    """Return every batch of a log, inflated: its header but sizes and CRC, and its records."""
    found: list[Any] = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        plain = inflate(data)
        table = scan(plain)
        assert table.tail_reason is None
        for row in range(len(table)):
            header = table.array[row]
            start = int(header["position"]) + 61
            names = [name for name in header.dtype.names if name not in ("position", "crc")]
            records = plain[start : start - 61 + int(table.sizes[row])]
            found.append(({name: int(header[name]) for name in names}, records))
        # The codec stays too.
        assert len(scan(data)) == len(table)
        found.append((path.name, [int(each) & 7 for each in scan(data).array["attributes"]]))
    return found


@pytest.mark.parametrize("seed", range(RUNS))
def test_the_same_records_stay_as_with_kafkas_cleaner(
    kafka_log: JsonRequests, tmp_path: Path, seed: int
) -> None:
    dice = Random(seed)
    profile = ("plain", "producers", "codecs")[seed % 3]
    memory = MEMORIES[seed // 3 % 2]
    configs = settings_of(dice, profile)
    own = CompactedLog(tmp_path / "own", configs)
    theirs = tmp_path / "kafka" / "t-0"
    keys = dice.choice((3, 30, 300))
    now_ms, epoch, last = NOW_MS, 0, dict[int, int]()
    opened: dict[str, Any] = {"dir": str(theirs), "configs": configs}
    own.open()
    kafka_log("open", **opened, start=0, recovery=0, clean=False, now=now_ms)
    done: Counter[str] = Counter()

    def compared(ours: dict[str, Any], kafkas: dict[str, Any]) -> None:
        kafkas = sorted_state(kafkas)
        if profile == "codecs":
            # Java's codecs and ours do not make the same bytes.
            for each in (ours, kafkas):
                each["segments"] = [[base, time] for base, _, time in each["segments"]]
        assert ours == kafkas, (kind, done)

    for _ in range(STEPS):
        now_ms += dice.choice((0, 10, 1_000, 8_000))
        own.now_ms = now_ms
        state = own.state()
        end = state["end"]
        kind = dice.choices(
            ("append", "clean", "roll", "truncate", "restart", "retention", "start", "reopen"),
            (60, 14, 8, 3, 1, 3, 2, 3),
        )[0]
        done[kind] += 1
        if kind == "append":
            epoch += dice.choice((0, 0, 0, 1))
            data = b""
            for _ in range(dice.choice((1, 3, 6))):
                one = batch_of(dice, profile, keys, now_ms, end, epoch, last)
                data += one.encoded()
                assert one.last_offset_delta is not None
                end += one.last_offset_delta + 1
            compared(
                own.follower(data, epoch),
                kafka_log("follower", records=data.hex(), epoch=epoch, now=now_ms),
            )
        elif kind == "clean":
            watermark = dice.choice((end, end, dice.randint(state["start"], end)))
            ours = own.clean(watermark, memory, dice.choice((1, 500, 1 << 20)))
            done["cleaned"] += "clean" in ours
            compared(ours, kafka_log("clean", watermark=watermark, memory=memory, now=now_ms))
        elif kind == "roll":
            own.log.roll()
            compared(own.state(), kafka_log("roll", now=now_ms))
        elif kind == "truncate":
            bases = [each.base_offset for each in own.log.core.batches(state["start"])]
            offset = dice.choice([end, *bases])
            own.log.truncate_to(offset)
            compared(own.state(), kafka_log("truncate", offset=offset, now=now_ms))
        elif kind == "restart":
            own.log.restart_at(end + 5)
            compared(own.state(), kafka_log("restart", offset=end + 5, now=now_ms))
        elif kind == "retention":
            own.log.high_watermark = end
            own.log.apply_retention(now_ms)
            compared(own.state(), kafka_log("retention", watermark=end, now=now_ms))
        elif kind == "start":
            offset = dice.randint(state["start"], end)
            own.log.raise_start_offset(offset)
            compared(own.state(), kafka_log("start", offset=offset, now=now_ms))
        else:
            own.log.close()
            kafka_log("close")
            compared_files(own, theirs, profile)
            ours = own.open(start=state["start"], recovery=end, clean=True)
            compared(
                ours,
                kafka_log(
                    "open", **opened, start=state["start"], recovery=end, clean=True, now=now_ms
                ),
            )
        last.update({id_: sequence + 1 for id_, sequence in own.state()["producers"]})
    assert done["cleaned"]
    own.log.close()
    kafka_log("close")
    compared_files(own, theirs, profile)
    assert own.checkpoint() == checkpoint(theirs.parent)
    shutil.rmtree(tmp_path)


def compared_files(own: CompactedLog, theirs: Path, profile: str) -> None:
    if profile == "codecs":
        assert records_of(own.home / "t-0") == records_of(theirs)
    else:
        assert own.files() == files(theirs)


def marker(dice: Random, producer: int, end: int, now_ms: int) -> RawBatch:
    """Return the end of a transaction: a commit or an abort."""
    key = (0).to_bytes(2, "big") + dice.randrange(2).to_bytes(2, "big")
    return RawBatch(
        [RawRecord(key=key, value=bytes(6))],
        base_offset=end,
        leader_epoch=0,
        attributes=TRANSACTIONAL | CONTROL,
        base_timestamp=now_ms,
        producer_id=producer,
        producer_epoch=0,
    )


@pytest.mark.parametrize("seed", range(RUNS // 2))
def test_transactions_of_kafkas_logs_are_compacted_alike(
    kafka_log: JsonRequests, tmp_path: Path, seed: int
) -> None:
    dice = Random(seed)
    configs = {
        **settings_of(dice, "plain"),
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": "0",
        "segment.ms": str(10**9),
    }
    theirs = tmp_path / "kafka" / "t-0"
    opened: dict[str, Any] = {"dir": str(theirs), "configs": configs}
    now_ms, end = NOW_MS, 0
    kafka_log("open", **opened, start=0, recovery=0, clean=False, now=now_ms)
    sequences: dict[int, int] = {}
    open_since: dict[int, int] = {}
    cleaned = 0
    for _ in range(12):
        for _ in range(dice.randrange(5, 25)):
            now_ms += dice.choice((0, 10, 1_000))
            producer = dice.choice((-1, 5, 6, 7))
            if producer in open_since and dice.random() < 0.4:
                batch = marker(dice, producer, end, now_ms)
                del open_since[producer]
                count = 1
            else:
                records = keyed_records(dice, 8)
                count = len(records)
                batch = RawBatch(
                    records,
                    base_offset=end,
                    leader_epoch=0,
                    base_timestamp=now_ms,
                    attributes=TRANSACTIONAL if producer >= 0 else 0,
                    producer_id=producer,
                    producer_epoch=0 if producer >= 0 else -1,
                    base_sequence=sequences.get(producer, 0) if producer >= 0 else -1,
                )
                if producer >= 0:
                    open_since.setdefault(producer, end)
                    sequences[producer] = sequences.get(producer, 0) + count
            kafka_log("follower", records=batch.encoded().hex(), epoch=0, now=now_ms)
            end += count
        state = kafka_log("close") and None
        shutil.rmtree(tmp_path / "own", ignore_errors=True)
        shutil.copytree(theirs.parent, tmp_path / "own")
        own = CompactedLog(tmp_path / "own", configs)
        own.now_ms = now_ms
        ours = own.open(recovery=end, clean=True)
        kafka_log("open", **opened, start=0, recovery=end, clean=True, now=now_ms)
        ours = own.clean(end, MEMORIES[seed % 2], 1_000)
        state = sorted_state(
            kafka_log("clean", watermark=end, memory=MEMORIES[seed % 2], now=now_ms)
        )
        assert ours == state
        cleaned += "clean" in ours
        own.log.close()
        kafka_log("close")
        assert own.files() == files(theirs)
        assert transactions(own.home / "t-0") == transactions(theirs)
        kafka_log("open", **opened, start=0, recovery=end, clean=True, now=now_ms)
    assert cleaned
    kafka_log("close")


def transactions(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in directory.glob("*.txnindex") if path.stat().st_size
    }
