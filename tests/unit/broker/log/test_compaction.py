"""Compaction of partition logs: rounds, what is due, interruptions, and the files that are left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft.broker.log.cleanable import cleanable_range, grouped
from kraft.broker.log.log_cleaner import LogCleaner
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from kraft.errors import StorageError
from tests.harness.partition_logs import TOPIC_ID, Logs
from tests.harness.produced_batches import NOW_MS, RawBatch, RawRecord

COMPACTED = LogSettings(
    segment_bytes=400,
    index_interval_bytes=100,
    compacts=True,
    deletes=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path, settings=COMPACTED)


@pytest.fixture
def log(logs: Logs) -> PartitionLog:
    return logs.manager.create("t", 0, TOPIC_ID)


def put(
    log: PartitionLog, *keys: bytes, value: bytes | None = b"x" * 40, time_ms: int = NOW_MS
) -> None:
    for key in keys:
        batch = RawBatch([RawRecord(key=key, value=value)], base_timestamp=time_ms)
        log.append_as_leader(bytearray(batch.encoded()), 1)
    log.high_watermark = log.end_offset


def clean(logs: Logs, *, step_bytes: int = 1 << 20, memory: int = 1 << 16) -> LogCleaner:
    """Run rounds until no log is due."""
    cleaner = LogCleaner(logs.manager, memory=memory, step_bytes=step_bytes)
    logs.manager.flush_rolled()
    logs.manager.write_checkpoints()
    for _ in range(10_000):
        if not cleaner.step(logs.now_ms):
            return cleaner
    raise AssertionError("the cleaner never ends")


def content(log: PartitionLog) -> dict[int, bytes | None]:
    """Return the key of each record by its offset."""
    return {
        record.offset: record.key
        for batch in log.core.batches(log.start_offset)
        for record in next(iter(iterate(batch.data)))
    }


@pytest.mark.parametrize("step_bytes", [1, 1 << 20])
def test_the_last_record_of_each_key_is_left(
    logs: Logs, log: PartitionLog, step_bytes: int
) -> None:
    put(log, *[b"a", b"b", b"c"] * 10)
    clean(logs, step_bytes=step_bytes)
    active = log.core.base_offsets[-1]
    left = [(offset, key) for offset, key in content(log).items() if offset < active]
    assert [offset for offset, _ in left] == [active - 3, active - 2, active - 1]
    assert {key for _, key in left} == {b"a", b"b", b"c"}
    assert (log.start_offset, log.end_offset) == (0, 30)
    assert logs.directories[0].cleaner_offsets == {("t", 0): active}
    assert log.read(0, 1, 30).read()[:8] == (active - 3).to_bytes(8, "big")


def test_segments_that_became_small_become_one_in_the_next_round(
    logs: Logs, log: PartitionLog
) -> None:
    put(log, *[b"a", b"b", b"c"] * 10)
    clean(logs)
    assert log.core.segment_count > 5
    put(log, *[b"c"] * 6)
    clean(logs)
    assert log.core.segment_count < 5


def test_a_clean_log_is_left_alone_until_it_is_dirty(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a", b"b"] * 10)
    cleaner = clean(logs)
    assert cleaner.choose(NOW_MS) is None
    put(log, *[b"a"] * 10)
    logs.manager.flush_rolled()
    assert cleaner.choose(NOW_MS) is None, "the recovery point is not on disk"
    logs.manager.write_checkpoints()
    assert cleaner.choose(NOW_MS) is not None


def test_uncommitted_records_are_not_cleaned(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a"] * 20)
    log.high_watermark = log.core.base_offsets[1]
    clean(logs)
    assert logs.directories[0].cleaner_offsets == {("t", 0): log.high_watermark}
    assert len(content(log)) == 20 - log.high_watermark + 1


def test_the_dirtiest_log_comes_first(logs: Logs) -> None:
    some = logs.manager.create("t", 1, TOPIC_ID)
    put(some, *[b"a"] * 20)
    clean(logs)
    put(some, *[b"a"] * 20)
    put(logs.manager.create("t", 2, TOPIC_ID), *[b"a"] * 20)
    logs.manager.flush_rolled()
    logs.manager.write_checkpoints()
    chosen = LogCleaner(logs.manager).choose(NOW_MS)
    assert chosen is not None
    assert (chosen.log.partition, chosen.cleanable.dirty_ratio) == (2, 1.0)


def test_lags_and_the_dirty_ratio_decide_what_is_due(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a"] * 10, time_ms=NOW_MS - 5_000)
    put(log, *[b"a"] * 10, time_ms=NOW_MS)
    log.flush()
    bases = log.core.base_offsets

    def found(
        now_ms: int = NOW_MS, first: int | None = None, **settings: object
    ) -> tuple[int, bool]:
        changed = LogSettings(segment_bytes=400, compacts=True, **settings)  # type: ignore[arg-type]
        found = cleanable_range(log.core, changed, first, log.end_offset, now_ms)
        return found.end_offset, found.is_due(changed)

    assert found() == (bases[-1], True)
    young = found(min_compaction_lag_ms=3_000)
    assert young[0] in bases[1:-1]
    assert young[0] <= 10 < bases[bases.index(young[0]) + 1]
    assert found(now_ms=NOW_MS + 3_000, min_compaction_lag_ms=3_000) == (bases[-1], True)
    assert found(min_cleanable_dirty_ratio=1.0) == (bases[-1], False)
    assert found(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=4_000) == (bases[-1], True)
    assert found(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=6_000) == (bases[-1], False)
    assert found(first=bases[-2]) == (bases[-1], False)
    assert found(first=99) == (bases[-1], True), "no offset of the log: all is dirty"


def test_small_segments_become_one(logs: Logs, log: PartitionLog) -> None:
    put(log, *(b"%02d" % number for number in range(40)))
    facts = [log.core.segment_facts(index) for index in range(log.core.segment_count - 1)]
    wide = LogSettings(segment_bytes=sum(one.size for one in facts[:3]))
    groups = [[one.base_offset for one in group] for group in grouped(facts, wide, 40)]
    assert [len(group) for group in groups][:2] == [3, 3]
    assert [base for group in groups for base in group] == [one.base_offset for one in facts]
    narrow = LogSettings(segment_bytes=1 << 20, segment_index_bytes=facts[0].offset_index_bytes)
    assert all(len(group) == 1 for group in grouped(facts, narrow, 40))
    far = [one._replace(base_offset=one.base_offset << 29) for one in facts]
    assert len(next(grouped(far, LogSettings(), 1 << 40))) == 1
    assert list(grouped([], LogSettings(), 0)) == []


def test_tombstones_go_after_their_retention(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a", b"b"] * 4)
    put(log, b"a", value=None)
    put(log, *[b"c"] * 20)
    clean(logs)
    assert b"a" in content(log).values()
    logs.now_ms += 1_001
    put(log, *[b"c"] * 20)
    clean(logs)
    assert b"a" not in content(log).values()
    assert b"b" in content(log).values()


def test_the_sequence_of_an_idle_producer_is_kept(logs: Logs, log: PartitionLog) -> None:
    batch = RawBatch(
        [RawRecord(key=b"a")] * 3, producer_id=7, producer_epoch=0, base_sequence=0
    ).encoded()
    log.append_as_leader(bytearray(batch), 1)
    put(log, *[b"a"] * 20)
    clean(logs)
    first = next(iter(log.core.batches(0)))
    assert (first.base_offset, first.last_offset, len(first.data)) == (0, 2, 61)
    for path in Path(log.path).glob("*.snapshot"):
        path.unlink()
    logs.manager.close()
    again = Logs(logs.directories[0].path, settings=COMPACTED).manager.get("t", 0)
    assert again is not None
    assert again.append_as_leader(bytearray(batch), 1)[:2] == (0, 2), "a duplicate"


def test_a_full_map_ends_the_round_early(logs: Logs, log: PartitionLog) -> None:
    put(log, *(b"%d" % (number % 15) for number in range(90)))
    clean(logs, memory=24 * 8)
    kept = {
        offset: key for offset, key in content(log).items() if offset < log.core.base_offsets[-1]
    }
    assert 15 <= len(kept) < 40
    assert set(content(log).values()) == {b"%d" % number for number in range(15)}
    assert [content(log)[offset] for offset in range(85, 90)] == [
        b"%d" % (offset % 15) for offset in range(85, 90)
    ]


@pytest.mark.parametrize("cut", ["truncate", "restart", "retention", "delete", "close"])
@pytest.mark.parametrize("after", [1, 3, 6, 9])
def test_a_round_is_given_up_when_its_segments_go(
    logs: Logs, log: PartitionLog, cut: str, after: int
) -> None:
    put(log, *[b"a", b"b", b"c"] * 10)
    logs.manager.flush_rolled()
    logs.manager.write_checkpoints()
    cleaner = LogCleaner(logs.manager, step_bytes=1)
    for _ in range(after):
        assert cleaner.step(NOW_MS)
    assert cleaner.current is not None
    if cut == "truncate":
        log.truncate_to(2)
    elif cut == "restart":
        log.restart_at(50)
    elif cut == "retention":
        log.raise_start_offset(20)
        log.apply_retention(NOW_MS)
    elif cut == "delete":
        logs.manager.delete("t", 0)
    else:
        log.close()
    compaction = cleaner.current
    while cleaner.current is compaction:
        cleaner.step(NOW_MS)
    # Before the first segment was read, retention only shortens the round.
    assert not compaction.is_complete or (cut, after) == ("retention", 1)
    assert logs.directories[0].failure is None
    if cut != "delete":
        put(log, b"z")
        assert content(log)[log.end_offset - 1] == b"z"
        log.flush()
        assert not [name for name in os.listdir(log.path) if name.endswith(".cleaned")]


def test_a_truncation_makes_the_last_segment_dirty(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a", b"b"] * 15)
    clean(logs)
    before = log.core.base_offsets[-1]
    log.truncate_to(before - 1)
    assert log.core.base_offsets[-1] < before
    assert logs.directories[0].cleaner_offsets == {("t", 0): log.core.base_offsets[-1]}
    put(log, *[b"a"] * 20)
    clean(logs)
    values = list(content(log).values())
    assert values[: values.index(b"a") + 1].count(b"a") == 1


def test_damage_makes_a_log_uncleanable(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a"] * 20)
    other = logs.manager.create("t", 1, TOPIC_ID)
    put(other, *[b"a"] * 20)
    logs.manager.flush_rolled()
    path = Path(log.path) / f"{0:020d}.log"
    whole = bytearray(path.read_bytes())
    whole[61] = 0x7F
    path.write_bytes(whole)
    cleaner = clean(logs)
    assert cleaner.uncleanable == {("t", 0)}
    assert ("t", 0) not in logs.directories[0].cleaner_offsets
    assert ("t", 1) in logs.directories[0].cleaner_offsets
    assert not [name for name in os.listdir(log.path) if name.endswith(".cleaned")]


def test_an_abandoned_round_leaves_no_files(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a"] * 20)
    logs.manager.flush_rolled()
    logs.manager.write_checkpoints()
    cleaner = LogCleaner(logs.manager, step_bytes=1)
    while not [name for name in os.listdir(log.path) if name.endswith(".cleaned")]:
        assert cleaner.step(NOW_MS)
    cleaner.abandon()
    cleaner.abandon()
    assert not [name for name in os.listdir(log.path) if name.endswith(".cleaned")]
    clean(logs)
    assert logs.directories[0].cleaner_offsets == {("t", 0): log.core.base_offsets[-1]}


def test_a_slice_outlives_the_segment_that_is_replaced(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a"] * 20)
    part = log.read(0, 1 << 20, 20)
    before = part.read()
    clean(logs)
    logs.now_ms += COMPACTED.file_delete_delay_ms
    assert logs.manager.remove_due(logs.now_ms) > 0
    assert part.read() == before
    assert os.pread(part.fileno(), part.size, part.position) == before


def test_a_failing_disk_takes_the_directory_offline(logs: Logs, log: PartitionLog) -> None:
    put(log, *[b"a"] * 20)
    logs.manager.flush_rolled()
    logs.manager.write_checkpoints()
    cleaner = LogCleaner(logs.manager, step_bytes=1)
    assert cleaner.step(NOW_MS)
    os.rename(log.path, log.path + "-away")
    while cleaner.current is not None:
        cleaner.step(NOW_MS)
    assert logs.failed == [logs.directories[0].path]
    with pytest.raises(StorageError, match="offline"):
        put(log, b"a")


def test_compacted_logs_of_a_clean_start_are_read_as_they_are(
    logs: Logs, log: PartitionLog
) -> None:
    put(log, *[b"a", b"b", b"c"] * 10)
    clean(logs)
    before = content(log)
    logs.manager.close()
    again = Logs(logs.directories[0].path, settings=COMPACTED)
    found = again.manager.get("t", 0)
    assert found is not None
    assert again.directories[0].cleaner_offsets == logs.directories[0].cleaner_offsets
    assert content(found) == before
    assert [found.read(offset, 1, 30).size > 0 for offset in range(30)] == [True] * 30
