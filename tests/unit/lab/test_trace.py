"""Traces: events are read back as written, also after damage or an interrupted writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from kraft.errors import (
    CorruptRecordError,
    DamagedLogError,
    InvalidRequestError,
    StorageError,
)
from kraft.lab.trace import Trace, TraceHeader, TraceWriter, read_trace
from kraft.lab.trace_summary import TraceSummary

HEADER = TraceHeader("a test", "0123456789abcdef", "a machine", "c0ffee", 1_700_000_000 * 10**9)
#: The size of a frame's prefix: tag, length, type, CRC.
BODY = 1 + 4 + 1 + 4

Event = tuple[str, int, int]


def events_of(path: Path) -> list[Event]:
    """Return (what, duration in ns, count) of every event."""
    return [
        (block.names[what], int(duration), int(count))
        for block in read_trace(path)
        for what, duration, count in zip(block.what, block.duration_ns, block.counts, strict=True)
    ]


def written(path: Path, count: int, block_events: int = 10) -> list[Event]:
    """Write a trace of ``count`` events; return the events."""
    events = [(f"kind {i % 3}", i * 7, i) for i in range(count)]
    now_ns = time.perf_counter_ns()
    with TraceWriter(path, HEADER, block_events=block_events, block_age_ns=10**12) as trace:
        for what, duration_ns, many in events:
            trace.event(what, now_ns, duration_ns, many)
    return events


def test_a_written_trace_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    events = written(path, 25)
    trace = Trace(path)
    assert trace.header == HEADER
    assert trace.torn is None
    assert trace.end == path.stat().st_size
    assert [len(block.what) for block in trace.blocks()] == [10, 10, 5]
    assert events_of(path) == events


def test_times_count_from_the_start_of_the_run(tmp_path: Path) -> None:
    header = TraceHeader.of("a test", {"partitions": 3})
    time.sleep(0.01)
    with TraceWriter(tmp_path / "trace", header) as trace, trace.timed("a nap", 3):
        time.sleep(0.02)
    (block,) = read_trace(tmp_path / "trace")
    assert 10_000_000 <= block.began_ns[0] < 60 * 10**9
    assert block.duration_ns[0] >= 20_000_000
    assert block.counts.tolist() == [3]
    assert Trace(tmp_path / "trace").header == header


def test_events_can_be_written_as_columns(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace", HEADER) as trace:
        trace.events("many", np.arange(5), np.arange(5) * 10, 2)
        with pytest.raises(InvalidRequestError, match="columns of different lengths"):
            trace.events("many", np.arange(5), np.arange(4))
    assert events_of(tmp_path / "trace") == [("many", i * 10, 2) for i in range(5)]


def test_any_reader_of_msgpack_can_walk_a_trace(tmp_path: Path) -> None:
    written(tmp_path / "trace", 25)
    frames = list(msgpack.Unpacker((tmp_path / "trace").open("rb")))
    assert [frame.code for frame in frames] == [1, 2, 2, 2]
    header = msgpack.unpackb(frames[0].data[4:])
    assert header["scenario"] == "a test"
    assert header["format"] == 1
    names, what, *_ = msgpack.unpackb(frames[3].data[4:])
    assert names == ["kind 2", "kind 0", "kind 1"]
    assert what == b"\0\0\1\0\2\0\0\0\1\0"


def test_an_event_is_on_disk_within_a_second_or_so(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace", HEADER, block_age_ns=0) as trace:
        trace.event("first", time.perf_counter_ns(), 5)
        assert events_of(tmp_path / "trace") == [("first", 5, 1)]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    written(tmp_path / "trace", 3)
    before = (tmp_path / "trace").read_bytes()
    with pytest.raises(StorageError, match="already exists"):
        TraceWriter(tmp_path / "trace", HEADER)
    assert (tmp_path / "trace").read_bytes() == before


def test_of_a_file_cut_anywhere_whole_blocks_are_read_and_the_rest_is_reported(
    tmp_path: Path,
) -> None:
    events = written(tmp_path / "whole", 25)
    data = (tmp_path / "whole").read_bytes()
    whole = Trace(tmp_path / "whole")
    borders = [*whole.frames, whole.end]
    cut = tmp_path / "cut"
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        if size < borders[0]:
            with pytest.raises(
                CorruptRecordError, match=r"not a trace.*cut, byte 0|not a trace.*byte 0"
            ):
                Trace(cut)
            continue
        trace = Trace(cut)
        blocks = sum(border <= size for border in borders[1:])
        assert trace.end == borders[blocks]
        assert events_of(cut) == events[: blocks * 10]
        if size in borders:
            assert trace.torn is None
        else:
            assert trace.torn is not None
            assert trace.torn[:3] == (str(cut), borders[blocks], size - borders[blocks])


def test_damage_that_whole_frames_follow_is_an_error_with_its_position(tmp_path: Path) -> None:
    written(tmp_path / "trace", 25)
    data = (tmp_path / "trace").read_bytes()
    first, second, third = Trace(tmp_path / "trace").frames
    for position in range(first, third):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        (tmp_path / "trace").write_bytes(damaged)
        frame = first if position < second else second
        with pytest.raises(CorruptRecordError, match=rf"file .*trace, byte {frame}\b"):
            events_of(tmp_path / "trace")


def test_a_length_beyond_the_end_is_damage_and_not_a_torn_end(tmp_path: Path) -> None:
    written(tmp_path / "trace", 25)
    data = bytearray((tmp_path / "trace").read_bytes())
    _, second, third = Trace(tmp_path / "trace").frames
    data[second + 1 : second + 5] = (len(data) + 100).to_bytes(4, "big")
    (tmp_path / "trace").write_bytes(data)
    with pytest.raises(DamagedLogError, match=rf"whole frames follow from byte {third} on"):
        Trace(tmp_path / "trace")


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xc9\0\0\0\x09\x02ABCDefghi", b"\xc9"])
def test_an_invalid_last_frame_is_skipped(tmp_path: Path, tail: bytes) -> None:
    events = written(tmp_path / "trace", 25)
    size = (tmp_path / "trace").stat().st_size
    with (tmp_path / "trace").open("ab") as file:
        file.write(tail)
    trace = Trace(tmp_path / "trace")
    assert trace.torn is not None
    assert trace.torn[1:3] == (size, len(tail))
    assert events_of(tmp_path / "trace") == events


def test_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    for data in (b"", b"{}", b'{"machine_info": {}}' * 100, b"\xc9" + b"\0" * 100):
        path.write_bytes(data)
        with pytest.raises(CorruptRecordError, match=r"not a trace: .*foreign, byte 0"):
            Trace(path)
    with pytest.raises(StorageError, match="cannot read"):
        Trace(tmp_path / "absent")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"scenario": 5},
        {"settings": None},
        {"started_ns": "now"},
        {"more": 1},
    ],
    ids=str,
)
def test_an_invalid_header_is_rejected(
    tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = msgpack.packb
    monkeypatch.setattr(msgpack, "packb", lambda made: pack({**made, **change}))
    TraceWriter(tmp_path / "trace", HEADER).close()
    with pytest.raises(CorruptRecordError, match="not a trace"):
        Trace(tmp_path / "trace")


def test_reading_continues_at_a_position(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with TraceWriter(path, HEADER, block_age_ns=10**12) as trace:
        trace.event("first", 0, 1)
        trace.flush()
        stopped = Trace(path).end
        trace.event("second", 0, 2)
        trace.flush()
    later = Trace(path, begin=stopped)
    assert later.frames == [stopped]
    assert [block.names for block in later.blocks()] == [("second",)]
    middle = Trace(path).frames[1]
    assert [block.names for block in Trace(path).blocks(0, middle)] == [("first",)]


def interrupted_calls(monkeypatch: pytest.MonkeyPatch, name: str, when: str) -> None:
    """Raise KeyboardInterrupt before, during or after the next call of an ``os`` function."""
    real: Callable[..., int] = getattr(os, name)

    def call(fd: int, data: memoryview, position: int) -> int:
        monkeypatch.setattr(os, name, real)
        if when == "after":
            real(fd, data, position)
        elif when == "half":
            real(fd, data[: len(data) // 2], position)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_ctrl_c_in_a_write_loses_and_repeats_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    path = tmp_path / "trace"

    def run() -> None:
        with TraceWriter(path, HEADER, block_events=10, block_age_ns=10**12) as trace:
            for number in range(100):
                if number == 42:
                    interrupted_calls(monkeypatch, "pwrite", when)
                trace.event("a", 0, number)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert [duration for _, duration, _ in events_of(path)] == list(range(50))


def test_a_full_disk_is_an_error_and_a_later_write_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: memoryview, position: int) -> int:
        raise OSError(28, "No space left on device")

    trace = TraceWriter(tmp_path / "trace", HEADER, block_age_ns=10**12)
    trace.event("a", 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match=r"cannot write .*No space left"):
            trace.flush()
    trace.event("b", 0, 2)
    trace.close()
    trace.close()
    assert events_of(tmp_path / "trace") == [("a", 1, 1), ("b", 2, 1)]


def test_a_killed_writer_leaves_whole_blocks(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from kraft.lab.trace import TraceHeader, TraceWriter\n"
        "trace = TraceWriter(sys.argv[1], TraceHeader.of('killed'), block_events=100)\n"
        "print('begun', flush=True)\n"
        "number = 0\n"
        "while True:\n"
        "    trace.event('turn', time.perf_counter_ns(), number)\n"
        "    number += 1\n"
    )
    path = tmp_path / "trace"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "begun\n"
        while path.stat().st_size < 100_000:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    durations = [duration for _, duration, _ in events_of(path)]
    assert len(durations) >= 3000
    assert durations == list(range(len(durations)))


def test_a_summary_has_measured_durations(tmp_path: Path) -> None:
    durations = [1000 * i for i in range(1, 201)]
    with TraceWriter(tmp_path / "trace", HEADER, block_events=7) as trace:
        for duration_ns in reversed(durations):
            trace.event("turn", 0, duration_ns, 2)
        trace.event("rare", 0, 5)
    summary = TraceSummary.of([Trace(tmp_path / "trace")])
    turn, rare = summary.kinds
    assert (turn.what, turn.events, turn.count) == ("turn", 200, 400)
    assert (turn.p50, turn.p99, turn.worst) == (100e-6, 198e-6, 200e-6)
    assert turn.total == pytest.approx(sum(durations) / 1e9)
    assert (rare.events, rare.p50, rare.p99, rare.worst) == (1, 5e-9, 5e-9, 5e-9)
    assert "commit c0ffee" in summary.title
    twice = TraceSummary.of([Trace(tmp_path / "trace")] * 2)
    assert [kind.events for kind in twice.kinds] == [400, 2]
