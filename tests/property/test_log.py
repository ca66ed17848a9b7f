"""The log against its slow twin: random operations on both, and random damage."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft._core.log.disk import OsDisk
from kraft._core.log.log import Log
from kraft.errors import DamagedLogError, OffsetOutOfRangeError
from kraft.simulation.memory_disk import MemoryDisk
from tests.reference.log_twin import LogTwin, TwinBatch

SHAPE = {"segment_bytes": 1500, "segment_ms": 5000, "index_interval_bytes": 200}

# (records, epochs above the last one, ms after the last timestamp, bytes of payload)
BATCH = st.tuples(
    st.integers(1, 5),
    st.sampled_from([0, 0, 0, 1, 3]),
    st.integers(-500, 2500),
    st.integers(0, 400),
)
OPERATION = st.one_of(
    st.tuples(st.just("append"), st.lists(BATCH, min_size=1, max_size=6)),
    st.tuples(st.just("append"), st.lists(BATCH, min_size=1, max_size=6)),
    st.tuples(st.just("append"), st.lists(BATCH, min_size=10, max_size=20)),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("truncate"), st.floats(0, 1.1)),
    st.tuples(st.just("advance"), st.floats(0, 1)),
    st.tuples(st.just("start at"), st.integers(0, 1000)),
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("torn"), st.integers(1, 100)),
)


def next_batches(twin: LogTwin, shapes: list[tuple[int, int, int, int]]) -> list[TwinBatch]:
    offset, epoch = twin.log_end_offset, max(twin.last_epoch, 0)
    timestamp = max((batch.timestamp for batch in twin.batches), default=10_000)
    made = []
    for count, epochs_on, ms_on, size in shapes:
        epoch += epochs_on
        timestamp = max(timestamp + ms_on, 0)
        made.append(TwinBatch(offset, count, epoch, timestamp, bytes([size % 251]) * size))
        offset += count
    return made


def assert_same(log: Log, twin: LogTwin) -> None:
    assert (log.log_start_offset, log.log_end_offset) == (
        twin.log_start_offset,
        twin.log_end_offset,
    )
    assert log.epochs == twin.epochs
    assert log.last_epoch == twin.last_epoch
    assert [(s.base_offset, s.size) for s in log.segments] == [
        (s.base_offset, len(s.log)) for s in twin.segments
    ]
    assert [bytes(batch.data) for batch in log.batches(twin.segments[0].base_offset)] == [
        batch.data for batch in twin.batches
    ]
    for offset in range(twin.log_start_offset, twin.log_end_offset + 1, 3):
        for max_size in (0, 300, 1000, 1 << 20):
            assert log.fetch(offset, max_size) == twin.fetch(offset, max_size)
            for end_offset in (offset, offset + 7, twin.log_end_offset - 1):
                assert log.fetch(offset, max_size, end_offset) == twin.fetch(
                    offset, max_size, end_offset
                )


def run(disk: Any, directory: str, operations: list[tuple[str, Any]]) -> None:
    log = Log.open(directory, disk=disk, **SHAPE)
    twin = LogTwin(**SHAPE)
    views: list[tuple[memoryview, bytes]] = []
    for operation, argument in operations:
        end = twin.log_end_offset
        if operation == "append":
            batches = next_batches(twin, argument)
            first, last = log.append(b"".join(batch.data for batch in batches))
            assert (first, last) == (batches[0].base_offset, batches[-1].last_offset)
            twin.append(batches)
        elif operation == "roll" and twin.segments[-1].batches:
            log.roll()
            twin.roll()
        elif operation == "truncate":
            offset = int(argument * end)
            twin.truncate_to(offset)
            assert log.truncate_to(offset) == twin.log_end_offset
        elif operation == "advance":
            offset = twin.log_start_offset + int(argument * (end - twin.log_start_offset))
            log.advance_log_start(offset)
            twin.advance_log_start(offset)
        elif operation == "start at":
            log.truncate_fully_and_start_at(argument)
            twin.truncate_fully_and_start_at(argument)
        elif operation == "reopen":
            log.close()
            log = Log.open(directory, disk=disk, **SHAPE)
            twin.close()
            twin.reopen()
            assert log.torn_tail is None
        elif operation == "torn":
            log.close()
            tail = next_batches(twin, [(2, 0, 0, 80)])[0].data[:argument]
            file = disk.open(log.segments[-1].path)
            position = file.append([tail])
            file.close()
            log = Log.open(directory, disk=disk, **SHAPE)
            twin.close()
            twin.reopen()
            assert log.torn_tail is not None
            assert log.torn_tail[1:4] == (twin.log_end_offset, position, len(tail))
        assert_same(log, twin)
        if twin.log_start_offset < twin.log_end_offset:
            views.append((log.fetch(twin.log_start_offset, 700), b""))
            views[-1] = (views[-1][0], bytes(views[-1][0]))
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(twin.log_end_offset + 1, 1)
    log.close()
    twin.close()
    for view, content in views:
        assert view == content
    files = {
        name: disk.open(f"{directory}/{name}").read_at(0, 1 << 20)
        for name in disk.list(directory)
        if not name.endswith(".snapshot")
    }
    assert files == twin.files()


@settings(max_examples=120, deadline=None)
@given(st.lists(OPERATION, min_size=1, max_size=12))
def test_the_log_in_memory_does_what_its_twin_does(operations: list[tuple[str, Any]]) -> None:
    run(MemoryDisk(), "part-0", operations)


@settings(max_examples=25, deadline=None)
@given(st.lists(OPERATION, min_size=4, max_size=12))
def test_the_log_on_disk_does_what_its_twin_does(operations: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run(OsDisk(), str(Path(directory) / "part-0"), operations)


@settings(max_examples=150, deadline=None)
@given(
    shapes=st.lists(BATCH, min_size=1, max_size=12),
    target=st.floats(0, 1, exclude_max=True),
    place=st.floats(0, 1, exclude_max=True),
    flip=st.integers(1, 255),
)
def test_a_flipped_byte_is_a_torn_tail_at_the_very_end_and_damage_elsewhere(
    shapes: list[tuple[int, int, int, int]], target: float, place: float, flip: int
) -> None:
    disk, twin = MemoryDisk(), LogTwin(**SHAPE)
    with Log.open("part-0", disk=disk, **SHAPE) as log:
        for batch in next_batches(twin, shapes):
            log.append(batch.data)
            twin.append([batch])
    batches = twin.batches
    hit = batches[int(target * len(batches))]
    segment = max(
        (s for s in twin.segments if s.base_offset <= hit.base_offset),
        key=lambda s: s.base_offset,
    )
    start = segment.log.index(hit.data)
    # Offset, length and epoch are outside of the CRC, which covers everything after itself.
    position = start + 17 + int(place * (len(hit.data) - 17))
    content = disk.files[f"part-0/{segment.base_offset:020d}.log"]
    content[position] ^= flip
    before = {path: bytes(data) for path, data in disk.files.items()}
    if hit is batches[-1]:
        log = Log.open("part-0", disk=disk, read_only=True)
        assert log.log_end_offset == hit.base_offset
        assert log.torn_tail is not None
        assert log.torn_tail[1:4] == (hit.base_offset, start, len(hit.data))
        whole = batches[:-1]
    else:
        with pytest.raises(DamagedLogError) as refusal:
            Log.open("part-0", disk=disk)
        assert (refusal.value.offset, refusal.value.position) == (hit.base_offset, start)
        log = Log.open("part-0", disk=disk, read_only=True, salvage=True)
        (gap,) = log.gaps
        assert (gap.offset, gap.next_offset) == (hit.base_offset, hit.last_offset + 1)
        whole = [batch for batch in batches if batch is not hit]
    assert [bytes(batch.data) for batch in log.batches()] == [batch.data for batch in whole]
    for batch in whole:
        assert bytes(log.fetch(batch.last_offset, 1)) == batch.data
    assert before == {path: bytes(data) for path, data in disk.files.items()}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_open_read_only_or_are_rejected(content: bytes, salvage: bool) -> None:
    disk = MemoryDisk()
    disk.make_directory("part-0")
    disk.files["part-0/00000000000000000000.log"] = bytearray(content)
    log = Log.open("part-0", disk=disk, read_only=True, salvage=salvage)
    assert log.log_end_offset == 0
    assert (log.torn_tail is None) == (content == b"")
    assert log.fetch(0, 100) == b""
